"""TTL controller: delete finished Jobs, Pods and custom resources when their TTL expires.

Finished objects wait in a heap of deadlines; nothing is scanned. Before a deletion the object is
read afresh, since its TTL may have been raised or the name may belong to another object now.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from onejob.client.base import Client, Delete
from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.controllers.custom_ttl import FinishableKinds
from onejob.controllers.due_keys import DeadlineTimer
from onejob.gates import FeatureGates
from onejob.informers.cache import Delta
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.metrics import Metrics, QueueName
from onejob.objects.job import read_job
from onejob.objects.meta import JOBS, PODS, WORKFLOWS, Key
from onejob.objects.pod import read_pod
from onejob.planning.custom_ttl import Unusable
from onejob.planning.ttl import (
    NEVER,
    Expires,
    Expiry,
    NeverExpires,
    UnknownEnd,
    job_expiry,
    pod_expiry,
)
from onejob.wire.errors import NotFound
from onejob.wire.registry import KindRegistry
from onejob.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from onejob.objects.workflow import Workflow

log = logging.getLogger(__name__)

V = TypeVar("V")

#: Seconds between two warnings about objects with an end in the future.
_SKEW_WARNING_SECONDS: Final = 60.0


class TtlController:
    """Controller of expired objects."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        *,
        clock: Clock,
        metrics: Metrics,
        gates: FeatureGates,
        kinds: KindRegistry | None = None,
        recorder: EventRecorder | None = None,
        workers: int = 20,
        workflows: bool = False,
    ) -> None:
        """Create a controller; with `workflows`, also of workflows, whatever the gates.

        Custom resources are handled only if the server's `kinds` and a `recorder` are given.

        The recorder is for Events about unusable TTLs.
        """
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._workers = workers
        self._waiting = DeadlineTimer(clock)
        #: Monotonic time.
        self._next_skew_warning = 0.0
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=0.005, longest_delay=1000.0)
        if gates.enabled("TTLAfterFinished"):
            informers.jobs.on_change(partial(self._changed, job_expiry))
        if workflows:
            informers.workflows.on_change(partial(self._changed, job_expiry))
        self._custom: FinishableKinds | None = None
        if gates.enabled("TTLAfterFinished") and kinds is not None and recorder is not None:
            self._custom = FinishableKinds(
                client, informers, kinds, recorder, schedule=self._schedule
            )
        if gates.enabled("TTLAfterFinishedPods"):
            informers.pods.on_change(partial(self._changed, pod_expiry))

    def __len__(self) -> int:
        """Return the number of finished objects that wait for their TTL."""
        return len(self._waiting)

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        """Queues by the name that metrics use."""
        return {"ttl_jobs_to_delete": self._queue}

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle

    async def run(self) -> None:
        """Delete expired objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(work(self._queue, self.sync, workers=self._workers, name="ttl"))
            group.create_task(self._waiting.feed(self._queue))
            if self._custom is not None:
                group.create_task(self._custom.run())

    def clock_jumped(self) -> None:
        """Re-evaluate deadlines.

        As upstream, an object whose end is in the future by the new time still waits for its whole
        TTL.
        """
        self._waiting.clock_jumped()

    def _changed(self, expiry_of_kind: Callable[[V], Expiry], deltas: Sequence[Delta[V]]) -> None:
        """Update the expiry of changed objects of one kind."""
        waiting = bool(self._waiting)
        for delta in deltas:
            expiry = expiry_of_kind(delta.new) if delta.new is not None else NEVER
            # Mostly nothing waits, and nothing expires.
            if waiting or expiry is not NEVER:
                self._schedule(delta.key, expiry)
                waiting = True

    def _schedule(self, key: Key, expiry: Expiry | Unusable) -> None:
        """Set or drop the deadline of an object."""
        match expiry:
            case Expires():
                self._wait(key, expiry, self._clock.now())
            case NeverExpires() | Unusable():
                # An unusable TTL was reported; it is evaluated again when the object changes.
                self._waiting.drop(key)
            case UnknownEnd():
                self._queue.add(key)

    def _wait(self, key: Key, expiry: Expires, now: datetime) -> None:
        """Set the deadline of an object; warn, rarely, if it ended in the future."""
        self._waiting.set(key, expiry.at)
        monotonic = self._clock.monotonic()
        if expiry.is_skewed(now) and monotonic >= self._next_skew_warning:
            # A wrong clock affects thousands of objects: one warning stands for all.
            self._next_skew_warning = monotonic + _SKEW_WARNING_SECONDS
            log.warning(
                "%s finished in the future, at %s (check the clocks); keeping it until %s",
                key,
                rfc3339(expiry.finished_at),
                rfc3339(expiry.at),
            )

    async def sync(self, key: Key) -> None:
        """Read one object afresh and delete it if it has expired."""
        try:
            expiry, uid = await self._read(key)
        except NotFound:
            return
        match expiry:
            case NeverExpires() | Unusable():
                return
            case UnknownEnd(error):
                raise Retry(error)
            case Expires():
                now = self._clock.now()
                if expiry.at > now:
                    self._wait(key, expiry, now)
                else:
                    await self._delete(key, uid, expiry)

    async def _read(self, key: Key) -> tuple[Expiry | Unusable, str]:
        """Return the expiry of an object's newest version, and its UID. Raises NotFound."""
        if self._custom is not None and key.resource not in (JOBS, PODS, WORKFLOWS):
            return await self._custom.read(key)
        document = await self._client.get(key)
        if key.resource == PODS:
            pod = read_pod(document)
            return pod_expiry(pod), pod.metadata.uid
        finished = read_job(document) if key.resource == JOBS else self._read_workflow(document)
        return job_expiry(finished), finished.metadata.uid

    def _read_workflow(self, document: bytes) -> "Workflow":
        from onejob.objects.workflow import read_workflow

        return read_workflow(document)

    async def _delete(self, key: Key, uid: str, expiry: Expires) -> None:
        """Delete an expired object; one that is gone or replaced is left alone."""
        # In the foreground, so that a Job is not deleted before its Pods are.
        op = Delete(key, uid=uid) if key.resource == PODS else Delete(key, "Foreground", uid=uid)
        try:
            await self._client.write(op)
        except NotFound:
            return
        log.info("deleting %s, which expired at %s", key, expiry.at)
        if key.resource == JOBS:
            delay = (self._clock.now() - expiry.at).total_seconds()
            self._metrics.ttl_deletion_delay.observe(delay)
