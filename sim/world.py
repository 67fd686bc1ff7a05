"""A Job, a node, a user who edits, a controller that is restarted, and faults in between."""

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Delete, Patch
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod
from onejob.virtual_time import run_virtual
from onejob.wire.errors import ApiError
from sim.checks import History
from sim.cluster import Cluster, RunningController, Script, ScriptedNode, a_cluster
from sim.faults import Faults, FaultyClient

#: Faults, edits and restarts end after this; then everything must converge.
CALM_AFTER_SECONDS = 120.0
CONVERGE_WITHIN_SECONDS = 6 * 3600.0

#: Exit codes for which a Job may have a rule.
IGNORED_EXIT, FATAL_EXIT = 42, 43
_FAILURE_POLICY = {
    "rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [IGNORED_EXIT]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FATAL_EXIT]}},
    ]
}

DEEDS = ("restart", "suspend", "resume", "scale", "kill a Pod", "nothing")
#: A Pod that leaves its Job and comes back may find its index taken, and that is nobody's fault.
DEEDS_WITHOUT_INDEXES = ("disown a Pod", "relabel a Pod")
DEEDS_WITH_INDEXES = ("resize",)
_SELECTED_BY = "batch.kubernetes.io/controller-uid"


@dataclass(frozen=True)
class Verdict:
    seed: int
    problems: tuple[str, ...]
    story: str


def simulate(seed: int) -> Verdict:
    """One whole life of one Job. The same seed always lives the same life."""
    # Memory, not disk: a simulation dies with its process, and syncing is most of its time.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="onejob-sim-", dir=place) as folder:
        return run_virtual(_live(seed, Path(folder)))


async def _live(seed: int, folder: Path) -> Verdict:
    rng = Random(seed)
    async with a_cluster(folder, seed=seed) as cluster:
        history = History()
        watching = [
            asyncio.create_task(history.follow(cluster.client, kind)) for kind in (JOBS, PODS)
        ]
        node = cluster.start_node(_script(rng))
        node.runs_seconds = rng.choice((0.1, 1.0, 5.0))
        spec = _random_spec(rng)
        indexed = "completionMode" in spec
        world = _World(cluster, node, rng, await cluster.create_job(**spec), indexed=indexed)
        with suppress(TimeoutError):  # The history tells that the Job did not finish.
            await world.run()
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        return Verdict(seed, history.problems(), f"{spec} {world.deeds}")


class _World:
    def __init__(
        self, cluster: Cluster, node: ScriptedNode, rng: Random, job: Key, *, indexed: bool
    ) -> None:
        self.deeds: list[str] = []
        self._cluster = cluster
        self._node = node
        self._rng = rng
        self._job = job
        self._client = FaultyClient(cluster.client, Faults(), rng)
        self._controller: RunningController | None = None
        self._possible = DEEDS + (DEEDS_WITH_INDEXES if indexed else DEEDS_WITHOUT_INDEXES)

    async def run(self) -> None:
        await self._restart_controller()
        loop = asyncio.get_running_loop()
        calm_at = loop.time() + CALM_AFTER_SECONDS
        while loop.time() < calm_at:
            await asyncio.sleep(self._rng.random() * 6)
            await self._disturb()
        self._client.heal()
        await self._edit({"suspend": False, "parallelism": 3})
        await self._cluster.until_finished(self._job, within=CONVERGE_WITHIN_SECONDS)
        # Finalizers of the last Pods may still be on their way off.
        await asyncio.sleep(120)
        assert self._controller is not None
        await self._controller.stop()

    async def _disturb(self) -> None:
        deed = self._rng.choice(self._possible)
        self.deeds.append(deed)
        match deed:
            case "restart":
                await self._restart_controller()
            case "suspend":
                await self._edit({"suspend": True})
            case "resume":
                await self._edit({"suspend": False})
            case "scale":
                await self._edit({"parallelism": self._rng.randint(0, 6)})
            case "resize":
                size = self._rng.randint(1, 12)
                await self._edit({"completions": size, "parallelism": size})
            case "kill a Pod":
                await self._kill_a_pod()
            case "disown a Pod":
                await self._change_a_pod({"ownerReferences": None})
            case "relabel a Pod":
                await self._change_a_pod({"labels": {_SELECTED_BY: None}})
            case _:
                pass

    async def _restart_controller(self) -> None:
        """As after a crash: whatever it was doing, it is not heard of again."""
        if self._controller is not None:
            await self._controller.stop()
        self._controller = await self._cluster.start_job_controller(self._client)

    async def _edit(self, spec: dict[str, Any]) -> None:
        body = msgspec.json.encode({"spec": spec})
        await self._cluster.client.write_many([Patch(self._job, body, "merge")])

    async def _change_a_pod(self, metadata: dict[str, Any]) -> None:
        pods = [pod for pod in await self._cluster.pods() if pod.active]
        if pods:
            body = msgspec.json.encode({"metadata": metadata})
            patch = Patch(self._rng.choice(pods).key, body, "merge")
            await self._cluster.client.write_many([patch])

    async def _kill_a_pod(self) -> None:
        pods = [pod for pod in await self._cluster.pods() if pod.active]
        if pods:
            victim = self._rng.choice(pods)
            for result in await self._cluster.client.write_many([Delete(victim.key)]):
                if isinstance(result, ApiError):
                    self.deeds.append(str(result))


def _script(rng: Random) -> Script:
    failing = rng.choice((0.0, 0.1, 0.4))
    codes: dict[str, int] = {}

    def script(pod: Pod) -> int:
        code = rng.choice((1, IGNORED_EXIT, FATAL_EXIT)) if rng.random() < failing else 0
        return codes.setdefault(pod.metadata.uid, code)

    return script


def _random_spec(rng: Random) -> dict[str, Any]:
    completions = rng.randint(1, 12)
    spec: dict[str, Any] = {
        "completions": completions,
        "parallelism": rng.randint(1, 5),
        "backoffLimit": rng.choice((0, 3, 1000)),
        "annotations": {"onejob.dev/backoff-seconds": rng.choice(("0", "1", "10"))},
    }
    if rng.random() < 0.5:
        spec["completionMode"] = "Indexed"
        if rng.random() < 0.5:
            spec |= {"backoffLimitPerIndex": rng.randint(0, 2), "backoffLimit": 1000}
        if rng.random() < 0.3:
            spec["successPolicy"] = {"rules": [{"succeededCount": rng.randint(1, completions)}]}
    if rng.random() < 0.3:
        spec["podReplacementPolicy"] = "Failed"
    if rng.random() < 0.3:
        spec |= {"podFailurePolicy": _FAILURE_POLICY, "podReplacementPolicy": "Failed"}
    if rng.random() < 0.1:
        spec["activeDeadlineSeconds"] = rng.randint(1, 200)
    return spec
