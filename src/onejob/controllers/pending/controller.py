"""Pending-deadline controller: fail Pods that have not started in time.

The time is set by the annotation `onejob.dev/pending-deadline-seconds`.

The node agent stops anything it has begun for a Pod that was failed from outside, and the Job
controller counts it like any failed Pod.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from onejob.client.base import Patch
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.due_keys import DeadlineTimer
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue, work
from onejob.metrics import QueueName
from onejob.objects.meta import Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.names import PENDING_DEADLINE_ANNOTATION
from onejob.planning.pod.pending import EXCEEDED, failure_patch, pending_deadline, waits_for
from onejob.wire.errors import NotFound

_WORKERS = 5


class PendingDeadlines:
    """Controller of Pods with a pending deadline."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._recorder = context.recorder
        self._clock = context.clock
        self._waiting = DeadlineTimer(context.clock)
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=0.05, longest_delay=60.0)
        context.informers.pods.on_change(self._changed)

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        """Queues by the name that metrics use."""
        return {"pending_deadline": self._queue}

    async def run(self) -> None:
        """Process the deadlines until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(work(self._queue, self.sync, workers=_WORKERS, name="pending"))
            group.create_task(self._waiting.feed(self._queue))

    def clock_jumped(self) -> None:
        self._waiting.clock_jumped()

    def _changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Update the deadlines of changed Pods."""
        for delta in deltas:
            pod = delta.new or delta.old
            if pod is None or PENDING_DEADLINE_ANNOTATION not in pod.metadata.annotations:
                continue
            due = None if delta.new is None else pending_deadline(delta.new)
            if due is None:
                self._waiting.drop(delta.key)
            else:
                self._waiting.set(delta.key, due)

    async def sync(self, key: Key) -> None:
        """Fail a Pod if its deadline has passed.

        The Pod is read afresh, because caches lag behind its start.
        """
        try:
            document = await self._client.get(key)
            pod = read_pod(document)
            due = pending_deadline(pod)
            if due is None:
                return
            now = self._clock.now()
            if due > now:
                self._waiting.set(key, due)
                return
            contents = msgspec.json.decode(document)
            await self._client.write(
                Patch(key, failure_patch(contents, now), "strategic", "status")
            )
        except NotFound:
            return
        subject = about("v1", "Pod", pod.metadata)
        self._recorder.record(subject, "Warning", EXCEEDED, waits_for(contents))
