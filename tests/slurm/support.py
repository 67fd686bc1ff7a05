"""Slurm runtimes under test, with a record of their events."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from onejob.clock import SystemClock
from onejob.node.options import NodeOptions, SlurmOptions
from onejob.node.runtime import (
    AttemptRef,
    Delayed,
    Ended,
    Lost,
    NodeContext,
    RecoveredState,
    RuntimeEvent,
    Started,
)
from onejob.node.slurm.runtime import SlurmRuntime
from onejob.objects.meta import Key
from onejob.objects.pod_spec import read_node_pod
from onejob.wire.errors import NotFound
from onejob.wire.requests import LogOptions
from tests.e2e.serving import parent_of
from tests.node.support import NODE, ROOM, shell

LONG = "echo begun; sleep 3600"
#: Short times, so that tests of losses do not wait. They shorten no time that a test relies on.
QUICK: dict[str, Any] = {
    "query_seconds": 0.1,
    "idle_seconds": 3600.0,
    "lost_seconds": 3.0,
    "cancel_seconds": 6.0,
    "drain_seconds": 1.0,
}


class Trial:
    """A started Slurm runtime and its events."""

    def __init__(self, path: Path, **options: Any) -> None:
        slurm = SlurmOptions(**{**QUICK, **options})
        context = NodeContext(NODE, "127.0.0.1", ROOM)
        node = NodeOptions(runtime="slurm", slurm=slurm)
        self.path = path
        self.runtime = SlurmRuntime(path, SystemClock(), node, context)
        self.recovered = RecoveredState()
        self.events: list[RuntimeEvent] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        self.recovered = await self.runtime.start(self._deliver, self._fetch)

    def launch(self, uid: str, script: str = LONG, *, attempt: int = 0, **spec: Any) -> AttemptRef:
        """Launch a Pod; keywords are fields of its spec, or its `annotations` or `requests`."""
        document = shell(script)
        document["metadata"]["uid"] = uid
        document["metadata"]["annotations"] = spec.pop("annotations", {})
        document["spec"]["containers"][0]["resources"] = {"requests": spec.pop("requests", {})}
        document["spec"] |= spec
        pod = read_node_pod(msgspec.json.encode(document))
        (container,) = pod.spec.containers
        self.runtime.launch(pod, container, attempt)
        self.runtime.send_starts()
        return AttemptRef(uid, container.name, attempt)

    async def started(self, ref: AttemptRef) -> None:
        await self.until(lambda: self.found(ref, Started))

    async def ended(self, ref: AttemptRef) -> Ended | Lost:
        await self.until(lambda: self.found(ref, Ended, Lost))
        event = self.found(ref, Ended, Lost)
        assert isinstance(event, Ended | Lost)
        return event

    async def delayed(self, ref: AttemptRef, text: str) -> None:
        await self.until(
            lambda: any(
                isinstance(event, Delayed) and event.ref == ref and text in event.message
                for event in self.events
            )
        )

    def found(self, ref: AttemptRef, *kinds: type[RuntimeEvent]) -> RuntimeEvent | None:
        """Return the last event of one of the kinds."""
        matching = [event for event in self.events if event.ref == ref and type(event) in kinds]
        return matching[-1] if matching else None

    async def output(self, ref: AttemptRef) -> str:
        pieces = [piece async for piece in self.runtime.logs(ref, LogOptions())]
        return b"".join(pieces).decode()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(120):
            while not holds():
                self._news.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self._news.wait()
                except TimeoutError:
                    continue

    @property
    def folders(self) -> list[Path]:
        """Folders of allocations, oldest first."""
        return sorted((self.path / "slurm").iterdir(), key=lambda path: path.stat().st_ctime_ns)

    def _deliver(self, events: Sequence[RuntimeEvent]) -> None:
        self.events.extend(events)
        self._news.set()

    async def _fetch(self, key: Key) -> bytes:
        raise NotFound(f"there is no {key}")


@asynccontextmanager
async def a_trial(path: Path, *, end_pods: bool = True, **options: Any) -> AsyncIterator[Trial]:
    trial = Trial(path, **options)
    await trial.start()
    try:
        yield trial
    finally:
        await trial.runtime.close(end_pods=end_pods)


def pilots(folder: Path) -> list[int]:
    """Return the PIDs of the pilot of an allocation."""
    return _processes("slurm.pilot import main", folder)


def supervisors(folder: Path) -> list[int]:
    """Return the PIDs of the supervisor of an allocation."""
    return _processes("slurm.pilot import supervise", folder)


def scripts(folder: Path) -> list[int]:
    """Return the PIDs of the batch script of an allocation."""
    return [parent_of(pid) for pid in pilots(folder)]


def kill(pids: Sequence[int], how: signal.Signals = signal.SIGKILL) -> None:
    assert pids, "there is a process to kill"
    for pid in pids:
        os.kill(pid, how)


def _processes(program: str, folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(program in word for word in words) and str(folder) in words:
            found.append(int(entry.name))
    return found
