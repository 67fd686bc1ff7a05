"""CPU and memory usage of containers and this machine: the API's `UsageSource`.

Measurements are taken on demand only. CPU usage is an average since the last measurement if that is
recent, or else since the container's start.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onejob.api.usage import Measurement, Usage
from onejob.clock import Clock
from onejob.node.process.process_table import (
    TICKS_PER_SECOND,
    MachineUse,
    Process,
    ProcessTable,
    machine_use,
)
from onejob.node.process.supervisor_client import SupervisorGone
from onejob.node.runtime import AttemptRef, Runtime

#: Seconds for which a measurement is cached.
_FRESH_SECONDS: Final = 1.0
#: Longest averaging window in seconds; a longer average does not reflect current usage.
_MAX_WINDOW_SECONDS: Final = 60.0
#: Seconds that the first request waits: the machine has no start time to average from.
_FIRST_WINDOW_SECONDS: Final = 0.25
_NANOS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Sample:
    #: Seconds since boot, like the start times of processes.
    at: float
    ticks: Mapping[int, int]


class UsageMeter:
    """Measurements of the node, reused for a moment."""

    def __init__(self, runtime: Runtime, node_name: str, clock: Clock) -> None:
        self._runtime = runtime
        self._node_name = node_name
        self._clock = clock
        self._asking = asyncio.Lock()
        self._pods: Mapping[str, Measurement] = {}
        self._pods_at = -_FRESH_SECONDS
        self._sample = _Sample(0.0, {})
        self._node: Measurement | None = None
        self._node_at = -_FRESH_SECONDS
        self._machine: tuple[float, MachineUse] | None = None

    async def pods(self) -> Mapping[str, Measurement]:
        async with self._asking:
            if self._clock.monotonic() - self._pods_at >= _FRESH_SECONDS:
                self._pods = await self._measure_pods()
                self._pods_at = self._clock.monotonic()
            return self._pods

    async def node(self) -> Measurement | None:
        if not self._runtime.traits.on_host:
            return None
        async with self._asking:
            if self._clock.monotonic() - self._node_at >= _FRESH_SECONDS:
                self._node = await self._measure_machine()
                self._node_at = self._clock.monotonic()
            return self._node

    async def _measure_pods(self) -> Mapping[str, Measurement]:
        """Measure all Pods with running processes; none if the supervisor is being replaced."""
        if not self._runtime.traits.on_host:
            return {}
        try:
            running = await self._runtime.first_processes()
        except SupervisorGone:
            # Another supervisor is being started, and will report the containers' fate.
            return {}
        trees = await asyncio.to_thread(_process_trees, running)
        now = _uptime()
        before, self._sample = self._sample, _Sample(now, _ticks_by_pid(trees))
        at = self._clock.now()
        found: dict[str, dict[str, Usage]] = {}
        windows: dict[str, float] = {}
        for ref, tree in trees.items():
            usage, window = _usage(tree, before, now)
            found.setdefault(ref.uid, {})[ref.container] = usage
            windows[ref.uid] = max(window, windows.get(ref.uid, 0.0))
        return {uid: Measurement(at, windows[uid], usage) for uid, usage in found.items()}

    async def _measure_machine(self) -> Measurement:
        """Measure the machine since the last measurement; waits for a first window if there is
        none."""
        before = self._machine
        if before is None or _uptime() - before[0] > _MAX_WINDOW_SECONDS:
            before = (_uptime(), await asyncio.to_thread(machine_use))
            await asyncio.sleep(_FIRST_WINDOW_SECONDS)
        now, use = _uptime(), await asyncio.to_thread(machine_use)
        self._machine = (now, use)
        window = max(now - before[0], 1 / TICKS_PER_SECOND)
        ticks = max(0, use.busy_ticks - before[1].busy_ticks)
        usage = Usage(_nanocores(ticks, window), use.memory_bytes)
        return Measurement(self._clock.now(), window, {self._node_name: usage})


def _process_trees(running: Mapping[AttemptRef, int]) -> dict[AttemptRef, list[Process]]:
    table = ProcessTable.read()
    trees = {ref: table.tree(pid) for ref, pid in running.items()}
    return {ref: tree for ref, tree in trees.items() if tree}


def _ticks_by_pid(trees: Mapping[AttemptRef, list[Process]]) -> dict[int, int]:
    return {tree[0].pid: _total_ticks(tree) for tree in trees.values()}


def _total_ticks(tree: list[Process]) -> int:
    return sum(process.ticks for process in tree)


def _usage(tree: list[Process], before: _Sample, now: float) -> tuple[Usage, float]:
    """Return the usage of a container's processes, and the period of its CPU usage in seconds."""
    first, ticks = tree[0], _total_ticks(tree)
    since = first.began / TICKS_PER_SECOND
    known = before.ticks.get(first.pid)
    recent = now - before.at <= _MAX_WINDOW_SECONDS
    if known is not None and since < before.at and recent:
        # A process that left the tree unreaped takes its ticks along, so the difference may be
        # negative.
        since, ticks = before.at, max(0, ticks - known)
    window = max(now - since, 1 / TICKS_PER_SECOND)
    # Shared pages are mostly shared within the container, by many processes of one program.
    memory = sum(process.private_bytes for process in tree)
    memory += max(process.shared_bytes for process in tree)
    return Usage(_nanocores(ticks, window), memory), window


def _nanocores(ticks: int, seconds: float) -> int:
    """Return average CPU usage."""
    return int(ticks / TICKS_PER_SECOND / seconds * _NANOS)


def _uptime() -> float:
    """Return the seconds since boot, by the clock of processes' start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
