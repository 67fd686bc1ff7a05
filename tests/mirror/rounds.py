"""`make mirror-rounds`: Jobs mirrored under random faults, compared with a ledger.

Two servers are real processes with a proxy between them. Each round mirrors a Job of real processes
that write into a ledger, while connections are refused, stalled, delayed or cut and either server
is killed and restarted. Then the ledger is compared with the Job's status here: every index began
once and ended once, the counters are exact, and after deletion nothing is left on either side.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from onejob.cli.errors import CommandError
from onejob.cli.sources.base import ApiRequest, get, list_all, path_of
from onejob.cli.sources.http_api import HttpApi, open_http_api
from onejob.objects.meta import JOBS, PODS
from onejob.planning.mirror import names
from onejob.wire.errors import ApiError, NotFound
from onejob.wire.kinds import BY_RESOURCE
from tests.e2e.serving import Server, end_supervisors
from tests.mirror.fault_proxy import FaultProxy
from tests.mirror.pairs import a_job, is_complete

COMPLETIONS = 6
_ROUND_SECONDS = 180.0
Document = dict[str, Any]


class Side(Protocol):
    """A server that can be killed and restarted."""

    @property
    def kubeconfig(self) -> Path: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


#: Returns the differences between a Job's status and the processes that ran, for a Job and the
#: number of its round.
Ledger = Callable[["World", Document, int], list[str]]


@dataclass
class World:
    here: Side
    there: Side
    proxy: FaultProxy
    folder: Path
    rng: random.Random
    ledger: Ledger
    #: Faults of the present round.
    faults: list[str] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)

    def api(self, server: Side) -> HttpApi:
        return open_http_api(server.kubeconfig, "it was killed")

    def port_of_there(self) -> int:
        try:
            config = json.loads(self.there.kubeconfig.read_bytes())
        except (OSError, ValueError):
            return 1
        return urlsplit(config["clusters"][0]["cluster"]["server"]).port or 1


# --- faults -----------------------------------------------------------------------------------


async def refused(world: World) -> None:
    world.proxy.set("refusing")
    await asyncio.sleep(world.rng.uniform(0.3, 3.0))
    world.proxy.set("open")


async def stalled(world: World) -> None:
    world.proxy.set("stalled")
    await asyncio.sleep(world.rng.uniform(0.3, 3.0))
    world.proxy.set("open")


async def slow(world: World) -> None:
    world.proxy.delay_seconds = world.rng.uniform(0.05, 0.4)
    await asyncio.sleep(world.rng.uniform(0.5, 3.0))
    world.proxy.delay_seconds = 0.0


async def cut(world: World) -> None:
    for _ in range(world.rng.randint(1, 5)):
        world.proxy.cut()
        await asyncio.sleep(world.rng.uniform(0.05, 0.5))


async def killed_here(world: World) -> None:
    await _killed(world.here, world.rng)


async def killed_there(world: World) -> None:
    await _killed(world.there, world.rng)


async def both_killed(world: World) -> None:
    await asyncio.gather(_killed(world.here, world.rng), _killed(world.there, world.rng))


async def _killed(server: Side, rng: random.Random) -> None:
    server.kill()
    await asyncio.sleep(rng.uniform(0.0, 1.0))
    await asyncio.to_thread(server.start)


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    "refused": refused,
    "stalled": stalled,
    "slow": slow,
    "cut": cut,
    "killed here": killed_here,
    "killed there": killed_there,
    "both killed": both_killed,
}


# --- one round --------------------------------------------------------------------------------


@dataclass
class Outcome:
    number: int
    faults: list[str]
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


async def play(world: World, number: int) -> Outcome:
    rng = world.rng
    faults = [rng.choice(list(FAULTS)) for _ in range(rng.randint(1, 3))]
    outcome = Outcome(number, faults)
    world.faults = faults
    world.tried.update(faults)
    began = time.monotonic()
    name = f"round-{number}"
    ledger = world.folder / f"ledger-{number}"
    ledger.touch()
    seconds = rng.choice((0.05, 0.3, 0.8))
    word = "$JOB_COMPLETION_INDEX"
    command = f"echo began {word} >> {ledger}; sleep {seconds}; echo ended {word} >> {ledger}"
    job = a_job(
        name,
        command=command,
        completions=COMPLETIONS,
        parallelism=rng.randint(1, 4),
        completionMode="Indexed",
        backoffLimit=0,
    )
    await asyncio.to_thread(_send, world, "POST", "", job)
    for fault in faults:
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        await FAULTS[fault](world)
    try:
        async with asyncio.timeout(_ROUND_SECONDS):
            found = await _until(world, name, is_complete)
            outcome.problems += world.ledger(world, found, number)
            _compare(outcome, world, name, found)
            await asyncio.to_thread(_delete, world, name)
            if rng.random() < 0.5:
                fault = rng.choice(list(FAULTS))
                outcome.faults.append(f"deleting: {fault}")
                world.tried[f"deleting: {fault}"] += 1
                await FAULTS[fault](world)
            await _until(world, name, lambda _: False)
    except NotFound:
        await asyncio.to_thread(_nothing_left, outcome, world, name)
    except TimeoutError:
        last = await asyncio.to_thread(_read, world, name)
        outcome.problems.append(f"not over in time: {json.dumps(last)[:2000]}")
    outcome.seconds = time.monotonic() - began
    return outcome


def processes_that_ran(world: World, job: Document, number: int) -> list[str]:
    text = (world.folder / f"ledger-{number}").read_text()
    lines = Counter(text.split("\n")[:-1])
    return [
        f"index {index} {word} {lines[f'{word} {index}']} times"
        for index in range(COMPLETIONS)
        for word in ("began", "ended")
        if lines[f"{word} {index}"] != 1
    ]


def _compare(outcome: Outcome, world: World, name: str, job: Document) -> None:
    status = job["status"]
    if (status.get("succeeded"), status.get("failed", 0)) != (COMPLETIONS, 0):
        outcome.problems.append(f"counted {status}")
    here, there = (_phases(world, side, name) for side in (world.here, world.there))
    if here != there or len(here) < COMPLETIONS or set(here.values()) != {"Succeeded"}:
        outcome.problems.append(f"Pods here: {here}, there: {there}")


def _nothing_left(outcome: Outcome, world: World, name: str) -> None:
    for title, server in (("here", world.here), ("there", world.there)):
        api = world.api(server)
        try:
            left = [
                f"{kind} {item['metadata']['name']}"
                for kind in (JOBS, PODS)
                for item in list_all(api, BY_RESOURCE[kind], "default")
                if item["metadata"]["name"].startswith(f"{name}-")
                or item["metadata"]["name"] == name
            ]
        finally:
            api.close()
        if left:
            outcome.problems.append(f"left {title}: {', '.join(left)}")


def _phases(world: World, server: Side, name: str) -> dict[str, str]:
    api = world.api(server)
    try:
        pods = list_all(api, BY_RESOURCE[PODS], "default", labelSelector=f"job-name={name}")
    finally:
        api.close()
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}


def _send(world: World, method: str, name: str, body: Document) -> None:
    api = world.api(world.here)
    try:
        path = path_of(BY_RESOURCE[JOBS], "default", name)
        api.send(ApiRequest(method, path, body=json.dumps(body).encode()))
    finally:
        api.close()


def _delete(world: World, name: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    _send(world, "DELETE", name, options)


def _read(world: World, name: str) -> Document:
    api = world.api(world.here)
    try:
        return get(api, BY_RESOURCE[JOBS], "default", name)
    finally:
        api.close()


async def _until(world: World, name: str, test: Callable[[Document], bool]) -> Document:
    """Wait until the Job passes `test`; retry while a server starts.

    Raises NotFound once it is gone.
    """
    while True:
        try:
            job = await asyncio.to_thread(_read, world, name)
            if test(job):
                return job
        except NotFound:
            raise
        except (ApiError, CommandError, OSError):
            pass
        await asyncio.sleep(0.1)


# --- all rounds -------------------------------------------------------------------------------


async def run(rounds: int, seed: int, folder: Path) -> int:
    here, there = Server(folder / "here"), Server(folder / "there")
    for server in (here, there):
        server.data_dir.mkdir(mode=0o700)
        await asyncio.to_thread(server.start)
    try:
        return await play_all(here, there, processes_that_ran, rounds, seed, folder)
    finally:
        for server in (here, there):
            await asyncio.to_thread(server.stop)
            end_supervisors(server.data_dir)


async def play_all(
    here: Side, there: Side, ledger: Ledger, rounds: int, seed: int, folder: Path
) -> int:
    """Play all rounds; return the exit code: 0 if all was exact."""
    proxy = FaultProxy(lambda: world.port_of_there())
    world = World(here, there, proxy, folder, random.Random(seed), ledger)
    port = await proxy.start()
    try:
        await asyncio.to_thread(_add_target, world, port)
        outcomes = []
        for number in range(1, rounds + 1):
            outcome = await play(world, number)
            outcomes.append(outcome)
            state = "; ".join(outcome.problems) or "exact"
            faults = ", ".join(outcome.faults)
            print(f"{number:3}  {outcome.seconds:5.1f} s  {faults:60}  {state}", flush=True)
        return _report(world, outcomes, seed)
    finally:
        await proxy.stop()


def _add_target(world: World, port: int) -> None:
    import base64

    config = json.loads(world.there.kubeconfig.read_bytes())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    text = base64.b64encode(json.dumps(config).encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "there", "labels": {names.TARGET_LABEL: "true"}},
        "data": {names.KUBECONFIG_KEY: text},
    }
    api = world.api(world.here)
    try:
        path = path_of(BY_RESOURCE["secrets"], "default")
        api.send(ApiRequest("POST", path, body=json.dumps(secret).encode()))
    finally:
        api.close()


def _report(world: World, outcomes: list[Outcome], seed: int) -> int:
    print(f"\nseed {seed}: {len(outcomes)} rounds, {world.proxy.connections} connections")
    print(f"{'what was tried':28} {'times':>5} {'rounds exact':>13}")
    for fault, times in sorted(world.tried.items()):
        rounds = [outcome for outcome in outcomes if fault in outcome.faults]
        exact = sum(not outcome.problems for outcome in rounds)
        print(f"{fault:28} {times:>5} {exact:>6} of {len(rounds)}")
    bad = [outcome for outcome in outcomes if outcome.problems]
    processes = len(outcomes) * COMPLETIONS
    print(f"{processes} processes; rounds with a loss, a double or a remainder: {len(bad)}")
    return 1 if bad else 0


def options_of(program: str, text: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=program, description=text)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    options = options_of("python -m tests.mirror.rounds", __doc__)
    with tempfile.TemporaryDirectory(prefix="mirror-rounds-") as folder:
        return asyncio.run(run(options.rounds, options.seed, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
