"""Property-based test of Job histories with the invariants of the simulator.

Hypothesis chooses the events of a Job, its Pods and its controller, and finds the shortest history
that fails. The controller, the API and the store are those of production. Only the node follows a
script.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onejob.client.base import Delete, Patch
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.virtual_time import run_virtual
from sim.api import FaultyClient
from sim.checks.history_checker import HistoryChecker
from sim.history import History
from sim.rights import Rights
from tests.scripted_cluster import Cluster, RunningController, Script, a_cluster

#: Faults between controller and API, as `sim.api.FaultyClient` requests them.
FAULTS = ("lost answer", "refused write", "late watch", "split watch", "broken watch",
          "expired watch", "right taken away")  # fmt: skip
DEEDS = ("wait", "restart", "delete a Pod", "scale", "resize", "suspend", "resume")
POLICY = {
    "rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [9]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
    ]
}

Step = tuple[str, int]


@st.composite
def job_specs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "parallelism": draw(st.integers(0, 4)),
        "completions": draw(st.integers(0, 6)),
        "backoffLimit": draw(st.sampled_from([0, 2, 1000])),
        "backoffSeconds": draw(st.sampled_from([0, 10])),
        "suspend": draw(st.booleans()),
        "podReplacementPolicy": draw(st.sampled_from(["TerminatingOrFailed", "Failed"])),
    }
    if draw(st.booleans()):
        spec |= {"podFailurePolicy": POLICY, "podReplacementPolicy": "Failed"}
    if draw(st.booleans()):
        spec |= {"completionMode": "Indexed"}
        if draw(st.booleans()):
            spec |= {"backoffLimitPerIndex": draw(st.integers(0, 2)), "backoffLimit": 1000}
        if draw(st.booleans()) and spec["completions"]:
            count = draw(st.integers(1, spec["completions"]))
            spec["successPolicy"] = {"rules": [{"succeededCount": count}]}
    return spec


class Planned:
    """Fault source in which each ordered fault happens once, at the next occasion."""

    def __init__(self) -> None:
        self.ordered: Counter[str] = Counter()
        self.calm = False

    def count(self, kind: str) -> None:
        """Do nothing: these tests do not use the counters."""

    def happens(self, kind: str) -> bool:
        if not self.ordered[kind]:
            return False
        self.ordered[kind] -= 1
        return True

    def up_to(self, kind: str, most: float) -> float:
        return most


class Scene:
    def __init__(self, cluster: Cluster, job: Key, *, indexed: bool) -> None:
        self._cluster = cluster
        self._job = job
        self._indexed = indexed
        self._faults = Planned()
        self._rights = Rights(self._faults)
        self._controller: RunningController | None = None

    async def play(self, steps: Sequence[Step]) -> None:
        await self._restart()
        for what, number in steps:
            if what in FAULTS:
                self._faults.ordered[what] += 1
            else:
                await self._do(what, number)
        self._faults.ordered.clear()
        self._faults.calm = True
        await self._edit(suspend=False, parallelism=3)
        await self._cluster.until_finished(self._job, within=6 * 3600)
        # Finalizers of the last Pods may still have to be removed.
        await asyncio.sleep(120)
        assert self._controller is not None
        await self._controller.stop()
        assert not any(pod.metadata.finalizers for pod in await self._cluster.pods())

    async def _do(self, what: str, number: int) -> None:
        match what:
            case "wait":
                await asyncio.sleep((0, 0.1, 0.6, 1, 2, 15, 700)[number])
            case "restart":
                await self._restart()
            case "delete a Pod":
                pods = [pod for pod in await self._cluster.pods() if pod.active]
                for pod in pods[number : number + 1]:
                    await self._cluster.client.write_many([Delete(pod.key)])
            case "scale":
                await self._edit(parallelism=number)
            case "resize" if self._indexed and number:
                await self._edit(parallelism=number, completions=number)
            case "suspend" | "resume":
                await self._edit(suspend=what == "suspend")
            case _:
                # Only an Indexed Job is resized, and not to nothing.
                pass

    async def _restart(self) -> None:
        if self._controller is not None:
            await self._controller.stop()
        client = FaultyClient(self._cluster.service, self._faults, self._rights, lambda *_: None)
        client.reliable = False
        self._controller = await self._cluster.start_job_controller(client)

    async def _edit(self, **spec: Any) -> None:
        body = msgspec.json.encode({"spec": spec})
        await self._cluster.client.write_many([Patch(self._job, body, "merge")])


def script(codes: Sequence[int]) -> Script:
    """Return a script in which Pods end with these codes, in turn; all others succeed."""
    ends: dict[str, int] = {}

    def exit_code(pod: Pod) -> int:
        uid = pod.metadata.uid
        if uid not in ends:
            ends[uid] = codes[len(ends)] if len(ends) < len(codes) else 0
        return ends[uid]

    return exit_code


async def live(
    folder: Path, spec: dict[str, Any], codes: Sequence[int], steps: Sequence[Step]
) -> HistoryChecker:
    async with a_cluster(folder) as cluster:
        history = History()
        following = history.follow(cluster.store)
        node = cluster.start_node(script(codes))
        node.runs_seconds = 0.5
        indexed = "completionMode" in spec
        job = await cluster.create_job(**spec)
        await Scene(cluster, job, indexed=indexed).play(steps)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        checker = HistoryChecker()
        checker.check(history)
        return checker


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    job_specs(),
    st.lists(st.sampled_from([0, 1, 3, 9]), max_size=6),
    st.lists(st.tuples(st.sampled_from((*DEEDS, *FAULTS)), st.integers(0, 6)), max_size=30),
)
def test_no_history_breaks_a_promise(
    spec: dict[str, Any], codes: list[int], steps: list[Step]
) -> None:
    # In memory, if possible: syncing would take most of the time.
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="onejob-history-", dir=place) as folder:
        checker = run_virtual(live(Path(folder), spec, codes, steps))
    assert not checker.problems.found
