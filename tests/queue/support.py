"""Control plane in virtual time whose Jobs have scripted durations."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.api.service import Service
from onejob.client.base import Create, Delete, Patch, Selection
from onejob.client.local import LocalClient
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.controllers.queueing.config import LIMITS
from onejob.node.options import NodeOptions
from onejob.node.simulated import DURATION
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, Key
from onejob.planning.queue.limits import parse_limits
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import ApiError, NotFound
from tests import build


@asynccontextmanager
async def a_plane(
    folder: Path,
    *limits: str,
    client: Callable[[Service], LocalClient] = LocalClient,
    **settings: Any,
) -> AsyncIterator[ControlPlane]:
    """Run a control plane with queue limits and a simulated node, in virtual time."""
    plane = await ControlPlane.start(
        Settings(
            folder,
            NodeOptions(runtime="simulated", name="node", capacity={"pods": "1000", "cpu": "1000"}),
            queue_limits=parse_limits(limits) if limits else None,
            **settings,
        ),
        Dependencies(
            clock=virtual_clock(), rng=Random(1), committer=LoopCommitter(0.001), client=client
        ),
    )
    try:
        yield plane
    finally:
        await plane.stop()


def a_job(
    name: str,
    *,
    seconds: float = 10,
    queue: str = "",
    namespace: str = "default",
    priority: str = "",
    **spec: Any,
) -> Create:
    """Return the creation of a Job that runs for `seconds`."""
    prioritised: dict[str, Any] = {"priorityClassName": priority} if priority else {}
    template = build.template(metadata={"annotations": {DURATION: str(seconds)}}, **prioritised)
    labels = {"onejob.dev/queue": queue} if queue else {}
    metadata = {"namespace": namespace, "labels": labels}
    document = build.a_job(name, metadata=metadata, template=template, **spec)
    return build.creation(document, namespace)


def a_priority_class(name: str, value: int, **fields: Any) -> Create:
    """Return the creation of a PriorityClass."""
    document = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }
    return Create("priorityclasses.scheduling.k8s.io", "", msgspec.json.encode(document))


async def create(plane: ControlPlane, *jobs: Create) -> None:
    """Create objects in one batch; all must succeed."""
    for result in await plane.client.write_many(jobs):
        assert not isinstance(result, ApiError), result


async def jobs_of(plane: ControlPlane) -> dict[str, Job]:
    """Return all Jobs by name."""
    listing = await plane.client.list(Selection(JOBS))
    return {job.metadata.name: job for job in map(read_job, listing.documents)}


async def running(plane: ControlPlane) -> list[str]:
    """Return the names of all Jobs that are neither suspended nor finished, sorted."""
    found = await jobs_of(plane)
    return sorted(name for name, job in found.items() if not job.spec.suspend and not job.finished)


async def job(plane: ControlPlane, name: str) -> Job:
    return read_job(await plane.client.get(Key(JOBS, "default", name)))


async def until_finished(plane: ControlPlane) -> None:
    """Wait until all Jobs are finished."""
    cache = plane.informers.jobs.cache
    done = asyncio.Event()

    def look(_: object = None) -> None:
        if all(job.finished for job in cache):
            done.set()

    plane.informers.jobs.on_change(look)
    look()
    await done.wait()


class StartsInOrder:
    """Observer of Jobs: the order in which they started, and how many ran at once."""

    def __init__(self, plane: ControlPlane) -> None:
        self.order: list[str] = []
        self.most = 0
        cache = plane.informers.jobs.cache
        self._running = {
            job.metadata.name for job in cache if job.status.start_time and not job.finished
        }
        plane.informers.jobs.on_change(self._changed)

    def _changed(self, deltas: Sequence[Any]) -> None:
        for delta in deltas:
            new = delta.new
            name = delta.key.name
            if new is None or new.finished:
                self._running.discard(name)
            elif new.status.start_time is not None and name not in self._running:
                self._running.add(name)
                self.order.append(name)
        self.most = max(self.most, len(self._running))


async def set_limits(plane: ControlPlane, text: str | None) -> None:
    """Write the ConfigMap with the queue limits; None deletes it."""
    if text is None:
        await plane.client.write(Delete(LIMITS))
        return
    data = {"limits": text}
    try:
        await plane.client.write(Patch(LIMITS, msgspec.json.encode({"data": data}), "merge"))
    except NotFound:
        metadata = {"name": LIMITS.name, "namespace": LIMITS.namespace}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        await plane.client.write(
            Create("configmaps", LIMITS.namespace, msgspec.json.encode(document))
        )


class Releases:
    """Observer of Jobs: the suspended ones, and the order in which they were resumed."""

    def __init__(self, plane: ControlPlane) -> None:
        self.order: list[str] = []
        self._suspended: set[str] = set()
        self._changed = asyncio.Event()
        plane.informers.jobs.on_change(self._see)

    async def suspended(self, number: int) -> None:
        """Wait until so many were suspended."""
        while len(self._suspended) < number:
            self._changed.clear()
            await self._changed.wait()

    def _see(self, deltas: Sequence[Any]) -> None:
        for delta in deltas:
            if delta.new is None:
                continue
            if delta.new.spec.suspend:
                self._suspended.add(delta.key.name)
            elif delta.old is not None and delta.old.spec.suspend:
                self.order.append(delta.key.name)
        self._changed.set()
