"""The CronJob controller: wakes for each slot and each change, syncs, writes the status."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onejob.client.events import about
from onejob.controllers.cronjob_sync import Synced, sync_cronjob, write_status
from onejob.controllers.surroundings import Surroundings
from onejob.informers.cache import Delta
from onejob.informers.loop import Retry, work
from onejob.informers.workqueue import WorkQueue
from onejob.objects.cronjob import CronJob, CronJobStatus
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, Key
from onejob.planning.cronjob.news import cronjob_is_news, job_is_news
from onejob.planning.cronjob.planner import reschedule
from onejob.planning.future_times import NONE_NOTICED, Noticed
from onejob.planning.job.plan import Event

#: How long to wait for the caches to show our own writes before giving the worker to others.
_CATCH_UP_SECONDS = 5.0
#: A slot whose name is taken by a stranger's Job waits for that Job, which tells us nothing.
_BLOCKED_SECONDS = 3600.0


@dataclass(slots=True)
class _Memory:
    """What is remembered of a CronJob between syncs."""

    #: The newest revisions written for it and for its Jobs: do not plan on older caches.
    cronjob_revision: int = 0
    job_revision: int = 0
    #: What was done for it last: news of that is none.
    starting: str = ""
    written: CronJobStatus | None = None
    note: str = ""
    noticed: Noticed = NONE_NOTICED

    def start(self, job: str) -> None:
        self.starting = job


class CronJobController:
    def __init__(self, around: Surroundings, *, local_zone: str = "UTC", workers: int = 20) -> None:
        """`local_zone` is for schedules that name no time zone."""
        self._client = around.client
        self._cronjobs = around.informers.cronjobs
        self._jobs = around.informers.jobs
        self._recorder = around.recorder
        self._clock = around.clock
        self._metrics = around.metrics
        self._local_zone = local_zone
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        self._memories: dict[Key, _Memory] = {}
        self._cronjobs.on_change(self._cronjobs_changed)
        self._jobs.on_change(self._jobs_changed)

    async def run(self) -> None:
        await work(self._queue, self.sync, workers=self._workers, name="cronjob")

    @property
    def queue_depths(self) -> Mapping[str, int]:
        return {"cronjob": len(self._queue)}

    @property
    def idle(self) -> bool:
        return self._queue.idle

    def note(self, key: Key) -> str:
        """Why the last sync started nothing, for `onejob why`; empty if it did."""
        memory = self._memories.get(key)
        return memory.note if memory is not None else ""

    # --- what wakes it --------------------------------------------------------------------

    def _cronjobs_changed(self, deltas: Sequence[Delta[CronJob]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self._forget(delta.key)
            elif delta.old is None:
                self._queue.add(delta.key)
            else:
                self._edited(delta.key, delta.old, delta.new)

    def _edited(self, key: Key, old: CronJob, new: CronJob) -> None:
        memory = self._memory_of(key)
        if not cronjob_is_news(old, new, memory.written):
            return
        memory.written = None
        seconds, event = reschedule(
            old,
            new,
            self._clock.now(),
            local_zone=self._local_zone,
            noticed=memory.noticed,
        )
        if event is not None:
            self._tell(new, event)
        if seconds is not None:
            self._queue.add_after(key, seconds)

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            for owner in dict.fromkeys((_owner_of(delta.old), _owner_of(delta.new))):
                if owner is not None:
                    self._job_changed(owner, delta)

    def _job_changed(self, owner: Key, delta: Delta[Job]) -> None:
        memory = self._memories.get(owner)
        cronjob = self._cronjobs.cache.get(owner)
        starting = memory.starting if memory is not None else ""
        if job_is_news(delta.old, delta.new, cronjob=cronjob, starting=starting):
            self._queue.add(owner)

    def clock_jumped(self) -> None:
        """Slots may be due, or come once more."""
        for cronjob in self._cronjobs.cache:
            self._queue.add(cronjob.key)

    def _memory_of(self, key: Key) -> _Memory:
        return self._memories.setdefault(key, _Memory())

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
        self._queue.drop(key)
        self._metrics.drop("kube_cronjob_status_active", key.namespace, key.name)

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Bring one CronJob a step further. Returns the seconds until its next slot."""
        await self._catch_up(key)
        cronjob = self._cronjobs.cache.get(key)
        if cronjob is None:
            return None
        memory = self._memory_of(key)
        synced = await sync_cronjob(
            self._client,
            cronjob,
            self._jobs_of(cronjob),
            self._clock.now(),
            local_zone=self._local_zone,
            starting=memory.start,
            known=memory.noticed,
        )
        memory.noticed = synced.noticed
        memory.note = synced.note
        memory.job_revision = max(memory.job_revision, synced.job_revision)
        for event in synced.events:
            self._tell(cronjob, event)
        # Before it is written: the news of it may come before the answer.
        memory.written = synced.status or memory.written
        written = await write_status(self._client, synced)
        memory.cronjob_revision = max(memory.cronjob_revision, written)
        self._measure(synced)
        if synced.error is not None:
            raise Retry(synced.error)
        if key not in self._memories:
            # Deleted meanwhile.
            return None
        return _BLOCKED_SECONDS if synced.blocked else synced.look_again_seconds

    async def _catch_up(self, key: Key) -> None:
        memory = self._memories.get(key)
        if memory is None:
            return
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._cronjobs.reached(memory.cronjob_revision)
                await self._jobs.reached(memory.job_revision)
        except TimeoutError as late:
            raise Retry("the caches do not show our own writes yet") from late

    def _jobs_of(self, cronjob: CronJob) -> list[Job]:
        found = self._jobs.cache.find("owner", cronjob.metadata.uid)
        namespace = cronjob.metadata.namespace
        ours = (job for job in found if job.metadata.namespace == namespace)
        return sorted(ours, key=lambda job: job.metadata.name)

    # --- telling --------------------------------------------------------------------------

    def _tell(self, cronjob: CronJob, event: Event) -> None:
        subject = about("batch/v1", "CronJob", cronjob.metadata)
        self._recorder.record(subject, event.type, event.reason, event.message)

    def _measure(self, synced: Synced) -> None:
        metadata = synced.cronjob.metadata
        active = synced.status.active if synced.status else synced.cronjob.status.active
        self._metrics.set(
            "kube_cronjob_status_active", len(active), metadata.namespace, metadata.name
        )
        if synced.skew_seconds is not None:
            self._metrics.observe(
                "cronjob_controller_job_creation_skew_duration_seconds", synced.skew_seconds
            )


def _owner_of(job: Job | None) -> Key | None:
    owner = job.metadata.controller_ref if job is not None else None
    if job is None or owner is None or owner.kind != "CronJob":
        return None
    return Key(CRONJOBS, job.metadata.namespace, owner.name)
