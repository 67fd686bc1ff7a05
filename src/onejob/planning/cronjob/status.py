"""CronJob status and history limits, derived from the existing Jobs."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.cronjob import Child, CronJob, CronJobStatus, ObjectReference
from onejob.planning.cronjob.documents import is_unwritten_since, reference_to, slot_of
from onejob.planning.job.plan import Event

_EVER = datetime(1, 1, 1, tzinfo=UTC)


class Deleted(Struct, frozen=True):
    """Result of deleting a Job; `error` is None if it was deleted."""

    name: str
    uid: str
    error: str | None = None


class CurrentState(Struct, frozen=True):
    """CronJob with its updated status, before a Job is started."""

    cronjob: CronJob
    status: CronJobStatus
    #: True if the status must be written in any case.
    changed: bool = False
    events: tuple[Event, ...] = ()
    #: Active Jobs missing from the cache: each must be looked up in the API.
    unseen: tuple[ObjectReference, ...] = ()


def plan_history(cronjob: CronJob, jobs: Iterable[Child], now: datetime) -> tuple[Child, ...]:
    """Return the finished Jobs beyond the history limits, oldest first.

    `jobs` are the Jobs of this CronJob. A Job whose slot is not recorded yet is kept until it is:
    without it the slot would be run again.
    """
    finished = {"Complete": list[Child](), "Failed": list[Child]()}
    # A start time in the future predates a clock adjustment: sort it as oldest.
    for job in sorted(jobs, key=lambda job: (not _started_after(job, now), *by_start_time(job))):
        if condition := job.finished_condition:
            finished[condition.type].append(job)
    excess = (
        *_beyond_limit(finished["Complete"], cronjob.spec.successful_jobs_history_limit),
        *_beyond_limit(finished["Failed"], cronjob.spec.failed_jobs_history_limit),
    )
    return tuple(
        job
        for job in excess
        if not job.metadata.deleting and _unrecorded_slot(cronjob, cronjob.status, job, now) is None
    )


def needs_reread(cronjob: CronJob, jobs: Iterable[Child]) -> bool:
    """Return whether a running Job is missing from status.active: the status may be stale."""
    active = _uids(cronjob.status)
    return any(not job.finished and job.metadata.uid not in active for job in jobs)


def update_status(
    cronjob: CronJob, live: CronJob | None, jobs: Sequence[Child], deleted: Sequence[Deleted] = ()
) -> CurrentState:
    """Return the status updated from `jobs`.

    `live` is the CronJob as re-read from the API, or None.
    """
    if live is not None and _is_newer(live, cronjob, jobs):
        cronjob = live
    update = StatusUpdate(cronjob, cronjob.status)
    for deletion in deleted:
        update.record_deletion(deletion)
    for job in jobs:
        update.record_job(job)
        if _forgotten_slot(cronjob, job) is not None:
            update.record_forgotten(job)
    ours = {job.metadata.uid for job in jobs}
    unseen = tuple(reference for reference in update.active if reference.uid not in ours)
    return CurrentState(cronjob, update.status(), update.changed, tuple(update.events), unseen)


def record_slots(
    current: CurrentState, jobs: Sequence[Child], now: datetime, started: datetime | None = None
) -> CurrentState:
    """Return the state with lastScheduleTime set to the latest slot that is not recorded yet.

    Considers the slots of finished Jobs, of running Jobs missing from the status, and the slot
    `started` last, whose Job may no longer exist.
    """
    last = current.status.last_schedule_time
    finished = (_unrecorded_slot(current.cronjob, current.status, job, now) for job in jobs)
    # These were started after the last status write, so they also replace a lastScheduleTime in the
    # future, which predates the clock adjustment.
    newest = (
        slot
        for slot in (*(_forgotten_slot(current.cronjob, job) for job in jobs), started)
        if slot is not None and (last is None or slot > last or slot <= now < last)
    )
    slots = [slot for slot in (*finished, *newest) if slot is not None]
    if not slots:
        return current
    latest = max(slots, key=lambda slot: (slot <= now, slot))
    return replace(
        current, status=status_with(current.status, last_schedule_time=latest), changed=True
    )


def without_missing(current: CurrentState, missing: AbstractSet[str]) -> CurrentState:
    """Return the state without Jobs that do not exist, with an Event about each."""
    gone = [reference for reference in current.unseen if reference.uid in missing]
    if not gone:
        return current
    kept = tuple(reference for reference in current.status.active if reference not in gone)
    events = tuple(
        Event("Normal", "MissingJob", f"Active job went missing: {reference.name}")
        for reference in gone
    )
    status = status_with(current.status, active=kept)
    return replace(current, status=status, changed=True, events=(*current.events, *events))


def by_start_time(job: Child) -> tuple[bool, datetime, str]:
    """Return a sort key: oldest start first, not yet started last, then by name."""
    started_at = job.status.start_time
    return (started_at is None, started_at or _EVER, job.metadata.name)


def controls(cronjob: CronJob, job: Child) -> bool:
    """Return whether the CronJob is the Job's controller."""
    controller = job.metadata.controller_ref
    return controller is not None and controller.uid == cronjob.metadata.uid


class StatusUpdate:
    """CronJob status under construction, with the Events that its changes cause."""

    def __init__(self, cronjob: CronJob, status: CronJobStatus, *, changed: bool = False) -> None:
        self._cronjob = cronjob
        self._noun = cronjob.cron_kind.noun
        self.active = list(status.active)
        self.last_successful_time = status.last_successful_time
        self.next_schedule_time = status.next_schedule_time
        self.changed = changed
        self.events: list[Event] = []
        self._before = status

    def uids(self) -> set[str]:
        """Return the UIDs of the active Jobs."""
        return {reference.uid for reference in self.active}

    def status(self) -> CronJobStatus:
        """Return the resulting status."""
        return status_with(
            self._before,
            active=tuple(self.active),
            last_successful_time=self.last_successful_time,
            next_schedule_time=self.next_schedule_time,
        )

    def record_deletion(self, deletion: Deleted) -> None:
        """Remove a deleted Job from the active ones, and record an Event; or one about its
        failure."""
        if deletion.error is not None:
            self.events.append(warning("FailedDelete", f"Deleted {self._noun}: {deletion.error}"))
            return
        self._remove_active(deletion.uid)
        self.changed = True
        self.events.append(
            Event("Normal", "SuccessfulDelete", f"Deleted {self._noun} {deletion.name}")
        )

    def record_job(self, job: Child) -> None:
        """Update the active Jobs by one Job, and record Events about what was found."""
        name, listed = job.metadata.name, job.metadata.uid in self.uids()
        condition = job.finished_condition
        if condition is None:
            if not listed:
                text = f"Saw a {self._noun} that the controller did not create or forgot: {name}"
                self.events.append(warning("UnexpectedJob", text))
            return
        if listed:
            self._remove_active(job.metadata.uid)
            self.changed = True
            text = f"Saw completed {self._noun}: {name}, condition: {condition.type}"
            self.events.append(Event("Normal", "SawCompletedJob", text))
        if condition.type == "Complete":
            self._record_success(job.status.completion_time)

    def record_next_slot(self, slot: datetime | None) -> None:
        if slot != self.next_schedule_time:
            self.next_schedule_time = slot
            self.changed = True

    def record_forgotten(self, job: Child) -> None:
        self.active.append(reference_to(self._cronjob, job))
        self.changed = True

    def _record_success(self, completed_at: datetime | None) -> None:
        latest = self.last_successful_time
        if latest is None or (completed_at is not None and completed_at > latest):
            self.last_successful_time = completed_at
            self.changed = True

    def _remove_active(self, uid: str) -> None:
        self.active = [reference for reference in self.active if reference.uid != uid]


def status_with(status: CronJobStatus, **changes: object) -> CronJobStatus:
    return msgspec.structs.replace(status, **changes)


def warning(reason: str, message: str) -> Event:
    """Return a Warning event."""
    return Event("Warning", reason, message)


def _started_after(job: Child, now: datetime) -> bool:
    """Return whether the Job's startTime is in the future."""
    started_at = job.status.start_time
    return started_at is not None and started_at > now


def _beyond_limit(jobs: Sequence[Child], limit: int | None) -> Sequence[Child]:
    """Return the Jobs to delete, the first of `jobs`."""
    return jobs[: max(len(jobs) - limit, 0)] if limit is not None else ()


def _is_newer(live: CronJob, cached: CronJob, jobs: Iterable[Child]) -> bool:
    """Return whether the re-read CronJob lists a running Job that the cached one lacks."""
    active = _uids(live.status) - _uids(cached.status)
    return any(not job.finished and job.metadata.uid in active for job in jobs)


def _uids(status: CronJobStatus) -> set[str]:
    """Return the UIDs of the active Jobs."""
    return {reference.uid for reference in status.active}


def _forgotten_slot(cronjob: CronJob, job: Child) -> datetime | None:
    """Return the slot of a running Job that the CronJob started but does not list, else None.

    The status could not be written after the creation and must be repaired. Kubernetes only warns
    about such a Job, and starts the next one concurrently, regardless of the concurrency policy.
    """
    if job.metadata.uid in _uids(cronjob.status):
        return None
    replaced = job.metadata.deleting and cronjob.spec.concurrency_policy == "Replace"
    return None if job.finished or replaced else slot_of(cronjob, job)


def _unrecorded_slot(
    cronjob: CronJob, status: CronJobStatus, job: Child, now: datetime
) -> datetime | None:
    """Return the slot of a finished Job if no status was written since its creation, else None."""
    slot, last = slot_of(cronjob, job) if job.finished else None, status.last_schedule_time
    # Slots in the future were run before the clock was set back.
    if slot is None or slot > now:
        return None
    if last is None or slot > last or is_unwritten_since(cronjob, job):
        return slot
    return None
