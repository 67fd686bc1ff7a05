"""In-process control plane for benchmarks, with its own data folder; and Jobs to submit to it."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvloop

from onejob import own_process
from onejob.benchmarks.counting import CountingCommitter, operations
from onejob.benchmarks.used_nodes import record_node
from onejob.client.base import Client, Create, Selection
from onejob.clock import Clock, SystemClock
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.node.simulated import DURATION
from onejob.objects.meta import JOBS
from onejob.store.writer import ThreadCommitter

NAMESPACE = "default"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MeasuredPlane:
    plane: ControlPlane
    committer: CountingCommitter

    @property
    def client(self) -> Client:
        return self.plane.client

    def operations(self) -> Mapping[str, int]:
        return operations(self.plane, self.committer)


@asynccontextmanager
async def a_plane(
    runtime: str = "simulated",
    folder: Path | None = None,
    clock: Clock | None = None,
    pods_end_with_server: bool = False,
) -> AsyncIterator[MeasuredPlane]:
    """Start a control plane, and stop it at the end. Without a folder its state is temporary."""
    node = NodeOptions(runtime=record_node(runtime), pods_end_with_server=pods_end_with_server)
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as scratch:
        committer = CountingCommitter(ThreadCommitter())
        plane = await ControlPlane.start(
            Settings(folder or Path(scratch), node),
            Dependencies(clock=clock or SystemClock(), committer=committer),
        )
        committer.revision = lambda: plane.store.revision
        own_process.settle()
        try:
            yield MeasuredPlane(plane, committer)
        finally:
            await plane.stop()


def run_like_a_server(
    main: Coroutine[Any, Any, T], *, on: asyncio.AbstractEventLoop | None = None
) -> T:
    """Run a coroutine on the event loop of `onejob serve` (uvloop), or on an instrumented one."""
    with asyncio.Runner(loop_factory=lambda: on or uvloop.new_event_loop()) as runner:
        return runner.run(main)


def a_job(
    name: str,
    *,
    completions: int,
    parallelism: int,
    indexed: bool = False,
    command: tuple[str, ...] = ("/bin/true",),
    runs_seconds: float = 0.0,
) -> Create:
    annotations = {DURATION: str(runs_seconds)} if runs_seconds else {}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": completions,
            "parallelism": parallelism,
            "completionMode": "Indexed" if indexed else "NonIndexed",
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "none", "command": list(command)}],
                },
            },
        },
    }
    return Create(JOBS, NAMESPACE, msgspec.json.encode(document))


class Completions:
    """Watch of all Jobs that records when each was seen Complete. Raises if a Job failed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: dict[str, float] = {}
        self._waiting: dict[str, asyncio.Future[float]] = {}
        self._more = asyncio.Event()

    async def follow(self, after: int) -> None:
        async with aclosing(self._client.watch(Selection(JOBS), after=after)) as batches:
            async for batch in batches:
                for event in batch:
                    # Searched in the raw bytes: decoding every status would burden the measured
                    # event loop.
                    if b'"type":"Failed"' in event.document:
                        raise RuntimeError(f"{event.key} failed: {event.document.decode()}")
                    if b'"type":"Complete"' in event.document:
                        self._complete(event.key.name, time.perf_counter())

    async def of(self, name: str) -> float:
        """Return when (`perf_counter`) the Job was seen Complete; waits for it."""
        if name in self._seen:
            return self._seen[name]
        future = self._waiting.setdefault(name, asyncio.get_running_loop().create_future())
        return await future

    async def first(self, count: int) -> list[float]:
        """Return when each of the first `count` Jobs was seen Complete, whatever their names."""
        while len(self._seen) < count:
            self._more.clear()
            await self._more.wait()
        return list(self._seen.values())[:count]

    async def of_all(self, names: Iterable[str]) -> float:
        return max([await self.of(name) for name in names])

    def _complete(self, name: str, at: float) -> None:
        self._seen.setdefault(name, at)
        self._more.set()
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting.set_result(at)


@asynccontextmanager
async def completions(measured: MeasuredPlane) -> AsyncIterator[Completions]:
    seen = Completions(measured.client)
    # In a task group: a failed Job must end the measurement, not leave it waiting.
    async with asyncio.TaskGroup() as group:
        following = group.create_task(seen.follow(measured.plane.store.revision))
        yield seen
        following.cancel()
