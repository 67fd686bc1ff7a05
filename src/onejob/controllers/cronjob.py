"""CronJob controller: wake for each schedule slot and each change, sync, write the status."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from onejob.client.events import about
from onejob.client.write_series import DurableWrites, WriteSeries
from onejob.controllers.context import ControllerContext
from onejob.controllers.cronjob_sync import Synced, sync_cronjob, write_status
from onejob.informers.cache import Delta
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.metrics import CronJobName, QueueName
from onejob.objects.cronjob import CRONJOB, Child, CronJob, CronJobStatus, CronKind
from onejob.objects.meta import Key
from onejob.planning.cronjob.documents import slot_of
from onejob.planning.cronjob.planner import reschedule
from onejob.planning.cronjob.relevance import cronjob_change_matters, job_change_matters
from onejob.planning.cronjob.status import controls
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.plan import Event
from onejob.wire.errors import ApiError

if TYPE_CHECKING:
    from onejob.informers.informer import Informer
    from onejob.prometheus import Gauge

#: Seconds to wait for the caches to include our own writes before requeueing the CronJob.
_CATCH_UP_SECONDS = 5.0
#: Requeue delay of a slot whose Job name is taken by a Job that is not ours; no event announces the
#: end of that wait.
_BLOCKED_SECONDS = 3600.0


class _CronJobState(Struct):
    """State of a CronJob between syncs."""

    #: Newest revisions written for it and for its Jobs: do not plan on older caches.
    cronjob_revision: int = 0
    job_revision: int = 0
    #: Effects of the last sync: the changes that they cause need no further sync.
    starting: str = ""
    #: Name of a Job that may have been created: the result of the attempt is unknown.
    unconfirmed: str = ""
    written: CronJobStatus | None = None
    #: Slot of a Job that was started, if no status with it could be written yet: the Job may be
    #: deleted before the next sync.
    unrecorded: datetime | None = None
    note: str = ""
    future_times: FutureTimes = NO_FUTURE_TIMES

    def start(self, job: str) -> None:
        """Note the name of the Job that is being created."""
        self.starting = self.unconfirmed = job

    def writes_lost(self, started: datetime | None) -> None:
        """Reset everything derived from the writes of a sync, which were rolled back.

        `started` is the slot that was unrecorded before.
        """
        self.cronjob_revision = self.job_revision = 0
        self.written = None
        self.unrecorded = started
        # Its creation may have been on disk before: the next sync looks it up.
        self.unconfirmed = self.starting

    def see_started(self, cronjob: CronJob, new: Child | None) -> None:
        """Note the slot of an observed Job whose creation was not confirmed.

        The slot will be recorded even if the Job is deleted before the next sync.
        """
        if new is not None and new.metadata.name == self.unconfirmed and controls(cronjob, new):
            self.unrecorded = slot_of(cronjob, new) or self.unrecorded


class CronJobController:
    """Controller of CronJobs: a queue of keys, and a timer for their next slots."""

    def __init__(
        self,
        context: ControllerContext,
        *,
        local_zone: str = "UTC",
        workers: int = 20,
        new_series: Callable[[], WriteSeries] | None = None,
        shows_next_slot: bool = False,
        kind: CronKind = CRONJOB,
    ) -> None:
        """`local_zone` is for schedules without a time zone; `shows_next_slot` is the gate
        CronJobsNextScheduleTime.

        `new_series` starts the write series of one sync; by default each write is awaited. `kind`
        is CronJobs with their Jobs, or CronWorkflows with their Workflows, which have no metrics
        of their own.
        """
        self._kind = kind
        self._client = context.client
        self._new_series = new_series or (lambda: DurableWrites(context.client))
        self._cronjobs: Informer[CronJob] = context.informers.metadata(kind.resource)
        self._jobs: Informer[Child] = context.informers.metadata(kind.child_resource)
        self._recorder = context.recorder
        self._clock = context.clock
        self._metrics = context.metrics
        self._gauges: Sequence[Gauge[..., CronJobName]] = ()
        if kind is CRONJOB:
            self._gauges = (
                context.metrics.cronjob_active,
                context.metrics.cronjob_last_schedule,
                context.metrics.cronjob_last_success,
            )
        self._local_zone = local_zone
        self._workers = workers
        self._shows_next_slot = shows_next_slot
        self._queue: WorkQueue[Key] = WorkQueue()
        self._queue_name: QueueName = "cronjob" if kind is CRONJOB else "cronworkflow"
        self._states: dict[Key, _CronJobState] = {}
        self._cronjobs.on_change(self._cronjobs_changed)
        self._jobs.on_change(self._jobs_changed)

    async def run(self) -> None:
        """Process the queue until cancelled, beginning with all CronJobs in the cache."""
        # Those that were there before this controller.
        for cronjob in self._cronjobs.cache:
            self._queue.add(cronjob.key)
        await work(self._queue, self.sync, workers=self._workers, name=self._queue_name)

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Key]]:
        """Queues by the name that metrics use."""
        return {self._queue_name: self._queue}

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle

    def note(self, key: Key) -> str:
        """Return why the last sync started no Job, for `onejob why`; "" if it started one."""
        state = self._states.get(key)
        return state.note if state is not None else ""

    # --- changes --------------------------------------------------------------------------

    def _cronjobs_changed(self, deltas: Sequence[Delta[CronJob]]) -> None:
        """Queue changed CronJobs, and forget deleted ones."""
        for delta in deltas:
            if delta.new is None:
                self._drop_state(delta.key)
            elif delta.old is None:
                self._queue.add(delta.key)
            else:
                self._cronjob_updated(delta.key, delta.old, delta.new)

    def _cronjob_updated(self, key: Key, old: CronJob, new: CronJob) -> None:
        """Queue a CronJob whose change matters, at the time that its new schedule requires."""
        state = self._state_of(key)
        if not cronjob_change_matters(old, new, state.written):
            return
        state.written = None
        seconds, event = reschedule(
            old,
            new,
            self._clock.now(),
            local_zone=self._local_zone,
            future_times=state.future_times,
        )
        if event is not None:
            self._record_event(new, event)
        if seconds is not None:
            self._queue.add_after(key, seconds)

    def _jobs_changed(self, deltas: Sequence[Delta[Child]]) -> None:
        for delta in deltas:
            for owner in dict.fromkeys((self._owner_of(delta.old), self._owner_of(delta.new))):
                if owner is not None:
                    self._job_changed(owner, delta)

    def _job_changed(self, owner: Key, delta: Delta[Child]) -> None:
        """Queue the owner of a changed Job if the change matters to it."""
        state = self._states.get(owner)
        cronjob = self._cronjobs.cache.get(owner)
        starting = state.starting if state is not None else ""
        if state is not None and cronjob is not None and delta.old is None:
            state.see_started(cronjob, delta.new)
        if job_change_matters(delta.old, delta.new, cronjob=cronjob, starting=starting):
            self._queue.add(owner)

    def clock_jumped(self) -> None:
        """Sync all CronJobs: slots may be due, or recur."""
        for cronjob in self._cronjobs.cache:
            self._queue.add(cronjob.key)

    def _state_of(self, key: Key) -> _CronJobState:
        """Return the state kept for a CronJob, created on first use."""
        return self._states.setdefault(key, _CronJobState())

    def _drop_state(self, key: Key) -> None:
        """Drop all state of a deleted CronJob."""
        self._states.pop(key, None)
        self._queue.drop(key)
        for gauge in self._gauges:
            gauge.drop(namespace=key.namespace, cronjob=key.name)

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Sync one CronJob. Return the seconds until its next slot, or None."""
        await self._catch_up(key)
        cronjob = self._cronjobs.cache.get(key)
        if cronjob is None:
            return None
        state = self._state_of(key)
        started = state.unrecorded
        series = self._new_series()
        synced = await sync_cronjob(
            self._client,
            cronjob,
            self._jobs_of(cronjob),
            self._clock.now(),
            local_zone=self._local_zone,
            starting=state.start,
            known=state.future_times,
            unconfirmed=state.unconfirmed,
            started=started,
            series=series,
            shows_next_slot=self._shows_next_slot,
        )
        state.unconfirmed = synced.unconfirmed
        state.future_times = synced.future_times
        state.note = synced.note
        state.job_revision = max(state.job_revision, synced.job_revision)
        for event in synced.events:
            self._record_event(cronjob, event)
        # Before it is written: the watch may deliver it before the response arrives.
        state.written = synced.status or state.written
        slot = synced.status.last_schedule_time if synced.status is not None else None
        # Not the later of the two: the clock may have been set back meanwhile.
        if slot is not None and slot != synced.cronjob.status.last_schedule_time:
            state.unrecorded = slot
        try:
            # Nothing is awaited since the Job was staged: both must be in the same commit.
            written = await write_status(series, synced)
        finally:
            await self._commit(series, state, started)
        recorded = (slot,) if synced.error is not None else (slot, started)
        if state.unrecorded in recorded:
            state.unrecorded = None
        state.cronjob_revision = max(state.cronjob_revision, written)
        self._update_gauges(synced)
        if synced.error is not None:
            raise Retry(synced.error)
        if key not in self._states:
            # The CronJob was deleted meanwhile.
            return None
        return _BLOCKED_SECONDS if synced.blocked else synced.look_again_seconds

    async def _commit(
        self, series: WriteSeries, state: _CronJobState, started: datetime | None
    ) -> None:
        """Wait until the writes of a sync are on disk. Raises Retry if they were rolled back."""
        try:
            await series.durable()
        except ApiError as lost:
            state.writes_lost(started)
            raise Retry(str(lost)) from lost

    async def _catch_up(self, key: Key) -> None:
        """Wait until the caches include our own writes. Raises Retry if they do not for too
        long."""
        state = self._states.get(key)
        if state is None:
            return
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._cronjobs.reached(state.cronjob_revision)
                await self._jobs.reached(state.job_revision)
        except TimeoutError as late:
            raise Retry("the caches do not include our own writes yet") from late

    def _jobs_of(self, cronjob: CronJob) -> list[Child]:
        found = self._jobs.cache.find("owner", cronjob.metadata.uid)
        namespace = cronjob.metadata.namespace
        ours = (job for job in found if job.metadata.namespace == namespace)
        return sorted(ours, key=lambda job: job.metadata.name)

    # --- Events and metrics ---------------------------------------------------------------

    def _record_event(self, cronjob: CronJob, event: Event) -> None:
        subject = about(self._kind.api_version, self._kind.kind, cronjob.metadata)
        self._recorder.record(subject, event.type, event.reason, event.message)

    def _update_gauges(self, synced: Synced) -> None:
        """Set the gauges of a CronJob."""
        metadata = synced.cronjob.metadata
        status = synced.status or synced.cronjob.status
        figures = (len(status.active), status.last_schedule_time, status.last_successful_time)
        for gauge, figure in zip(self._gauges, figures, strict=False):
            if figure is not None:
                value = figure if isinstance(figure, int) else figure.timestamp()
                gauge.set(value, namespace=metadata.namespace, cronjob=metadata.name)
        if synced.skew_seconds is not None and self._gauges:
            self._metrics.cronjob_skew.observe(synced.skew_seconds)

    def _owner_of(self, job: Child | None) -> Key | None:
        """Return the key of the CronJob that controls the Job; None if there is none."""
        owner = job.metadata.controller_ref if job is not None else None
        if job is None or owner is None or owner.kind != self._kind.kind:
            return None
        return Key(self._kind.resource, job.metadata.namespace, owner.name)
