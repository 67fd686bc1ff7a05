"""What to do about one CronJob.

The answers of the API decide how a sync goes on, so it has stages, each a value:

    plan_history     Jobs to delete because of the history limits
    needs_reread     whether the cached CronJob looks too old to judge its Jobs by
    update_status    status.active and lastSuccessfulTime brought up to date; which Jobs to look up
    record_slots     lastScheduleTime brought up to date with Jobs that ended
    plan_start       the slot to start now, if any, and when to look again
    settle           the status to write, given how starting went
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.cronjob import CronJob, CronJobStatus, ObjectReference
from onejob.objects.job import Job
from onejob.planning.cronjob.documents import job_document, job_name, reference_to, slot_of
from onejob.planning.cronjob.schedule import Schedule, ScheduleError, parse_schedule
from onejob.planning.cronjob.slots import (
    due_slot,
    is_too_late,
    look_again_seconds,
    slots_from,
    start_delay,
)
from onejob.planning.cronjob.time_zones import time_zone_error
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.plan import Event


class Deleted(Struct, frozen=True):
    """The result of deleting a Job; `error` None means that it is deleted."""

    name: str
    uid: str
    error: str | None = None


class CurrentState(Struct, frozen=True):
    """The CronJob and its updated status before anything is started."""

    cronjob: CronJob
    status: CronJobStatus
    #: The status is to be written, whatever else happens.
    changed: bool = False
    events: tuple[Event, ...] = ()
    #: Active Jobs that the cache does not show: ask the API for each.
    unseen: tuple[ObjectReference, ...] = ()


class JobStart(Struct, frozen=True):
    slot: datetime
    name: str
    document: bytes
    #: To be looked up and deleted first, in this order; the first failure ends the sync.
    replaces: tuple[ObjectReference, ...] = ()


class StartPlan(Struct, frozen=True):
    current: CurrentState
    now: datetime
    #: To be recorded at once.
    events: tuple[Event, ...] = ()
    schedule: Schedule | None = None
    start: JobStart | None = None
    #: When nothing is started. None: only a change can matter.
    look_again_seconds: float | None = None
    #: Why nothing is started.
    note: str = ""
    #: To be remembered for the next plan.
    future_times: FutureTimes = NO_FUTURE_TIMES


class Created(Struct, frozen=True):
    job: Job


class Existed(Struct, frozen=True):
    """A Job of that name is there already; this is it."""

    job: Job


class NotCreated(Struct, frozen=True):
    error: str
    #: Not worth an event: the namespace is going away, or somebody else was faster.
    silent: bool = False


class NotReplaced(Struct, frozen=True):
    """The start was given up before the creation: a Job in its way could not be removed."""

    error: str
    #: Looking it up failed; otherwise deleting it did.
    lookup: bool


Outcome: TypeAlias = Created | Existed | NotCreated | NotReplaced


class Settlement(Struct, frozen=True):
    """The end of a sync: write `status` if there is one, then look again or, on an error, retry."""

    status: CronJobStatus | None = None
    events: tuple[Event, ...] = ()
    look_again_seconds: float | None = None
    error: str | None = None
    #: How long after its slot the Job was created; None if none was.
    skew_seconds: float | None = None


def plan_history(cronjob: CronJob, jobs: Iterable[Job], now: datetime) -> tuple[Job, ...]:
    """The finished Jobs that are too many, oldest first. `jobs` are those of this CronJob. One
    whose slot is not recorded stays until it is: without it the slot would be run again."""
    finished = {"Complete": list[Job](), "Failed": list[Job]()}
    # What started in the future did so before the clock was set back.
    for job in sorted(jobs, key=lambda job: (not _started_after(job, now), *by_start_time(job))):
        if condition := job.finished_condition:
            finished[condition.type].append(job)
    excess = (
        *_excess(finished["Complete"], cronjob.spec.successful_jobs_history_limit),
        *_excess(finished["Failed"], cronjob.spec.failed_jobs_history_limit),
    )
    return tuple(
        job
        for job in excess
        if not job.metadata.deleting and _unrecorded_slot(cronjob, cronjob.status, job, now) is None
    )


def _started_after(job: Job, now: datetime) -> bool:
    started_at = job.status.start_time
    return started_at is not None and started_at > now


def by_start_time(job: Job) -> tuple[bool, datetime, str]:
    """Sort key: oldest start first, not yet started last, then by name."""
    started_at = job.status.start_time
    return (started_at is None, started_at or _EVER, job.metadata.name)


def needs_reread(cronjob: CronJob, jobs: Iterable[Job]) -> bool:
    """Whether a running Job is missing from status.active: then the status may be outdated."""
    active = _uids(cronjob.status)
    return any(not job.finished and job.metadata.uid not in active for job in jobs)


def update_status(
    cronjob: CronJob, live: CronJob | None, jobs: Sequence[Job], deleted: Sequence[Deleted] = ()
) -> CurrentState:
    """Bring the status up to date with the Jobs. `live` is the CronJob re-read, if it was."""
    if live is not None and _is_newer(live, cronjob, jobs):
        cronjob = live
    update = _StatusUpdate(cronjob.status)
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
    current: CurrentState, jobs: Sequence[Job], now: datetime, started: datetime | None = None
) -> CurrentState:
    """The same with slots in lastScheduleTime that are missing there: those of finished Jobs, of
    running ones that were forgotten, and the one that was `started` last, whose Job may be gone."""
    last = current.status.last_schedule_time
    finished = (_unrecorded_slot(current.cronjob, current.status, job, now) for job in jobs)
    # These were started after the last status was written, so they replace also a time that lies
    # ahead: it is from before the clock was set back.
    newest = (
        slot
        for slot in (*(_forgotten_slot(current.cronjob, job) for job in jobs), started)
        if slot is not None and (last is None or slot > last or slot <= now < last)
    )
    slots = [slot for slot in (*finished, *newest) if slot is not None]
    if not slots:
        return current
    latest = max(slots, key=lambda slot: (slot <= now, slot))
    return replace(current, status=_with(current.status, last_schedule_time=latest), changed=True)


def plan_start(
    current: CurrentState,
    missing: AbstractSet[str],
    now: datetime,
    *,
    local_zone: str = "UTC",
    known: FutureTimes | None = None,
) -> StartPlan:
    """Decide what to start. `missing` are the UIDs of unseen Jobs that do not exist any more;
    `known` is what the plan before noticed, or None to take a last run in the future as it is.

    Where the clock was set back, slots that come once more are run once more, but for the one
    that was run last: the schedule is one of the clock on the wall.
    """
    current = _without(current, missing)
    future_times = NO_FUTURE_TIMES
    if known is not None:
        future_times = known.after((slots_from(current.cronjob, current.status),), now)
    return replace(_plan_start(current, now, local_zone, future_times), future_times=future_times)


def _plan_start(
    current: CurrentState, now: datetime, local_zone: str, future_times: FutureTimes
) -> StartPlan:
    cronjob, status = current.cronjob, current.status
    zone = cronjob.spec.time_zone
    if cronjob.metadata.deleting:
        return StartPlan(current, now, note="the CronJob is being deleted")
    if zone is not None and (problem := time_zone_error(zone)):
        event = _warning("UnknownTimeZone", f"invalid timeZone: {_quoted(zone)}: {problem}")
        return StartPlan(current, now, (event,), note=event.message)
    if cronjob.spec.suspend:
        return StartPlan(current, now, note="the CronJob is suspended")
    events = _schedule_warnings(cronjob)
    try:
        schedule = parse_schedule(cronjob.spec.schedule, zone, local=local_zone)
    except ScheduleError as error:
        text = f"unparseable schedule: {_quoted(cronjob.spec.schedule)} : {error}"
        event = _warning("UnparseableSchedule", text)
        return StartPlan(current, now, (*events, event), note=event.message)
    # Slots are judged by the time that it is for this CronJob.
    judged_at = now - start_delay(cronjob)
    recent = due_slot(cronjob, status, judged_at, schedule, future_times)
    if recent.error is not None:
        text = f"invalid schedule: {cronjob.spec.schedule} : {recent.error}"
        event = _warning("InvalidSchedule", text)
        return StartPlan(current, now, (*events, event), note=event.message)
    if recent.slot is None:
        again = look_again_seconds(cronjob, status, judged_at, schedule, future_times)
        return StartPlan(
            current,
            now,
            events,
            schedule,
            look_again_seconds=again,
            note="no time of its schedule is due",
        )
    if recent.missed == "many":
        events = (*events, _TOO_MANY_MISSED)
    obstacle = _obstacle(cronjob, status, recent.slot, judged_at)
    if obstacle is not None:
        again = look_again_seconds(cronjob, status, judged_at, schedule, future_times)
        obstacle_events = (obstacle.event,) if obstacle.event else ()
        return StartPlan(
            current,
            now,
            (*events, *obstacle_events),
            schedule,
            look_again_seconds=again,
            note=obstacle.note,
        )
    start = JobStart(
        recent.slot,
        job_name(cronjob, recent.slot),
        job_document(cronjob, recent.slot),
        status.active if cronjob.spec.concurrency_policy == "Replace" else (),
    )
    return StartPlan(current, now, events, schedule, start)


def settle(
    plan: StartPlan, replaced: Sequence[Deleted] = (), outcome: Outcome | None = None
) -> Settlement:
    """The end of the sync. `outcome` None: there was nothing to start."""
    update = _StatusUpdate(plan.current.status, changed=plan.current.changed)
    for deletion in replaced:
        update.record_deletion(deletion)
    match outcome:
        case None:
            return update.settlement(look_again_seconds=plan.look_again_seconds)
        case NotReplaced(error, lookup):
            if lookup:
                update.events.append(_warning("FailedGet", f"Get job: {error}"))
            return update.settlement(error=error)
        case NotCreated(error, silent):
            if not silent:
                update.events.append(_warning("FailedCreate", f"Error creating job: {error}"))
            return update.settlement(error=error)
        case Existed(job):
            # A namesake of someone else's, or one that is known: nothing of ours to record.
            if not controls(plan.current.cronjob, job) or job.metadata.uid in update.uids():
                return update.settlement()
            return _started(plan, update, job)
        case Created(job):
            name = job.metadata.name
            update.events.append(Event("Normal", "SuccessfulCreate", f"Created job {name}"))
            return replace(_started(plan, update, job), skew_seconds=_skew(plan, job))


def reschedule(
    old: CronJob,
    new: CronJob,
    now: datetime,
    *,
    local_zone: str = "UTC",
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> tuple[float | None, Event | None]:
    """After an update: in how many seconds to sync (None: not at all), and what to say.

    A changed schedule must not start the slot that the new text puts just before now.
    """
    if (old.spec.schedule, old.spec.time_zone) == (new.spec.schedule, new.spec.time_zone):
        return 0.0, None
    zone = new.spec.time_zone
    try:
        known_zone = zone if zone is not None and time_zone_error(zone) is None else None
        schedule = parse_schedule(new.spec.schedule, known_zone, local=local_zone)
    except ScheduleError:
        text = f"unparseable schedule for cronjob: {new.spec.schedule}"
        return None, _warning("UnParseableCronJobSchedule", text)
    judged_at = now - start_delay(new)
    seconds = look_again_seconds(new, new.status, judged_at, schedule, future_times)
    # A schedule without any slot is to be told of now: nothing else will ever lead to a sync.
    return (0.0 if seconds is None else seconds), None


_EVER = datetime(1, 1, 1, tzinfo=UTC)


class _Obstacle(Struct, frozen=True):
    note: str
    event: Event | None = None


def _obstacle(
    cronjob: CronJob, status: CronJobStatus, slot: datetime, now: datetime
) -> _Obstacle | None:
    """Why a due slot must not be started, if it must not."""
    if is_too_late(cronjob, slot, now):
        stamp = slot.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        text = f"Missed scheduled time to start a job: {stamp}"
        return _Obstacle("it is too late for the slot", _warning("MissSchedule", text))
    name = job_name(cronjob, slot)
    # Equality, not order: it also holds when the clock was set back or the Job was deleted.
    if status.last_schedule_time == slot or any(ref.name == name for ref in status.active):
        return _Obstacle(f"the time that is due is already started as {name}")
    if cronjob.spec.concurrency_policy == "Forbid" and status.active:
        return _Obstacle("the previous Job is still running", _ALREADY_ACTIVE)
    return None


def _started(plan: StartPlan, update: "_StatusUpdate", job: Job) -> Settlement:
    assert plan.start is not None, "a Job was started without a plan to"
    assert plan.schedule is not None, "a Job was started without a schedule"
    update.active.append(reference_to(job))
    update.changed = True
    status = _with(update.status(), last_schedule_time=plan.start.slot)
    judged_at = plan.now - start_delay(plan.current.cronjob)
    again = look_again_seconds(plan.current.cronjob, status, judged_at, plan.schedule)
    return Settlement(status, tuple(update.events), again)


def _skew(plan: StartPlan, job: Job) -> float | None:
    created_at = job.metadata.creation_timestamp
    if created_at is None or plan.start is None:
        return None
    return (created_at - plan.start.slot).total_seconds()


def _without(current: CurrentState, missing: AbstractSet[str]) -> CurrentState:
    gone = [reference for reference in current.unseen if reference.uid in missing]
    if not gone:
        return current
    kept = tuple(reference for reference in current.status.active if reference not in gone)
    events = tuple(
        Event("Normal", "MissingJob", f"Active job went missing: {reference.name}")
        for reference in gone
    )
    status = _with(current.status, active=kept)
    return replace(current, status=status, changed=True, events=(*current.events, *events))


class _StatusUpdate:
    """A CronJob's status while it is being brought up to date."""

    def __init__(self, status: CronJobStatus, *, changed: bool = False) -> None:
        self.active = list(status.active)
        self.last_schedule_time = status.last_schedule_time
        self.last_successful_time = status.last_successful_time
        self.changed = changed
        self.events: list[Event] = []
        self._before = status

    def uids(self) -> set[str]:
        return {reference.uid for reference in self.active}

    def status(self) -> CronJobStatus:
        return _with(
            self._before,
            active=tuple(self.active),
            last_schedule_time=self.last_schedule_time,
            last_successful_time=self.last_successful_time,
        )

    def record_deletion(self, deletion: Deleted) -> None:
        if deletion.error is not None:
            self.events.append(_warning("FailedDelete", f"Deleted job: {deletion.error}"))
            return
        self._remove_active(deletion.uid)
        self.changed = True
        self.events.append(Event("Normal", "SuccessfulDelete", f"Deleted job {deletion.name}"))

    def record_job(self, job: Job) -> None:
        name, listed = job.metadata.name, job.metadata.uid in self.uids()
        condition = job.finished_condition
        if condition is None:
            if not listed:
                text = f"Saw a job that the controller did not create or forgot: {name}"
                self.events.append(_warning("UnexpectedJob", text))
            return
        if listed:
            self._remove_active(job.metadata.uid)
            self.changed = True
            text = f"Saw completed job: {name}, condition: {condition.type}"
            self.events.append(Event("Normal", "SawCompletedJob", text))
        if condition.type == "Complete":
            self._record_success(job.status.completion_time)

    def record_forgotten(self, job: Job) -> None:
        self.active.append(reference_to(job))
        self.changed = True

    def _record_success(self, completed_at: datetime | None) -> None:
        latest = self.last_successful_time
        if latest is None or (completed_at is not None and completed_at > latest):
            self.last_successful_time = completed_at
            self.changed = True

    def _remove_active(self, uid: str) -> None:
        self.active = [reference for reference in self.active if reference.uid != uid]

    def settlement(
        self, *, look_again_seconds: float | None = None, error: str | None = None
    ) -> Settlement:
        status = self.status() if self.changed else None
        return Settlement(status, tuple(self.events), look_again_seconds, error)


def _with(status: CronJobStatus, **changes: object) -> CronJobStatus:
    return msgspec.structs.replace(status, **changes)


def _excess(jobs: Sequence[Job], limit: int | None) -> Sequence[Job]:
    return jobs[: max(len(jobs) - limit, 0)] if limit is not None else ()


def _is_newer(live: CronJob, cached: CronJob, jobs: Iterable[Job]) -> bool:
    """Whether the re-read CronJob lists a running Job that the cached one lacks."""
    active = _uids(live.status) - _uids(cached.status)
    return any(not job.finished and job.metadata.uid in active for job in jobs)


def _uids(status: CronJobStatus) -> set[str]:
    return {reference.uid for reference in status.active}


def _forgotten_slot(cronjob: CronJob, job: Job) -> datetime | None:
    """The slot of a running Job that the CronJob started, if a status that lacks it has to be
    mended: it could not be written after the creation. Kubernetes only warns of such a Job, and
    starts the next one beside it, whatever the concurrency policy is."""
    if job.metadata.uid in _uids(cronjob.status):
        return None
    replaced = job.metadata.deleting and cronjob.spec.concurrency_policy == "Replace"
    return None if job.finished or replaced else slot_of(cronjob, job)


def _unrecorded_slot(
    cronjob: CronJob, status: CronJobStatus, job: Job, now: datetime
) -> datetime | None:
    """The slot of a finished Job, if no status was written since its creation."""
    slot = slot_of(cronjob, job) if job.finished else None
    return slot if slot is not None and _is_unrecorded(slot, status, now) else None


def _is_unrecorded(slot: datetime, status: CronJobStatus, now: datetime) -> bool:
    """Slots that lie ahead were run before the clock was set back."""
    last = status.last_schedule_time
    return slot <= now and (last is None or slot > last)


def controls(cronjob: CronJob, job: Job) -> bool:
    controller = job.metadata.controller_ref
    return controller is not None and controller.uid == cronjob.metadata.uid


def _schedule_warnings(cronjob: CronJob) -> tuple[Event, ...]:
    if "TZ" not in cronjob.spec.schedule:
        return ()
    text = (
        f"CRON_TZ or TZ used in schedule {_quoted(cronjob.spec.schedule)} is not officially"
        " supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
        " for more details"
    )
    return (_warning("UnsupportedSchedule", text),)


def _warning(reason: str, message: str) -> Event:
    return Event("Warning", reason, message)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


_TOO_MANY_MISSED = _warning(
    "TooManyMissedTimes",
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds"
    " or check clock skew",
)
_ALREADY_ACTIVE = Event(
    "Normal",
    "JobAlreadyActive",
    "Not starting job because prior execution is running and concurrency policy is Forbid",
)
