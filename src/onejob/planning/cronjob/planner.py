"""CronJob planner: one sync of one CronJob.

Responses of the API decide how a sync continues, so it has stages, each returning a value:

    plan_history     Jobs to delete because of the history limits
    needs_reread     whether the cached CronJob looks stale compared with its Jobs
    update_status    current status.active and lastSuccessfulTime; which Jobs to look up
    record_slots     lastScheduleTime updated with Jobs that ended
    plan_start       the slot to start now, if any, and the time of the next sync
    settle           the status to write, given the outcome of the start

The first four are in `status`.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.cronjob import Child, CronJob, CronJobStatus, ObjectReference
from onejob.planning.cronjob.catch_up import catches_up
from onejob.planning.cronjob.documents import job_document, job_name, reference_to
from onejob.planning.cronjob.schedule import Schedule, ScheduleError, parse_schedule
from onejob.planning.cronjob.slots import (
    due_slot,
    is_too_late,
    look_again_seconds,
    slots_from,
    start_delay,
)
from onejob.planning.cronjob.status import (
    CurrentState,
    Deleted,
    StatusUpdate,
    controls,
    status_with,
    warning,
    without_missing,
)
from onejob.planning.cronjob.time_zones import time_zone_error
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.plan import Event


class JobStart(Struct, frozen=True):
    slot: datetime
    name: str
    document: bytes
    #: Jobs to look up and delete first, in this order; the first failure ends the sync.
    replaces: tuple[ObjectReference, ...] = ()


class StartPlan(Struct, frozen=True):
    current: CurrentState
    now: datetime
    #: Events to record immediately.
    events: tuple[Event, ...] = ()
    schedule: Schedule | None = None
    start: JobStart | None = None
    #: Seconds until the next sync if nothing is started; None if only a change can matter.
    look_again_seconds: float | None = None
    #: Reason why nothing is started.
    note: str = ""
    #: The status's nextScheduleTime: the first slot after now.
    next_slot: datetime | None = None
    #: To be passed to the next plan.
    future_times: FutureTimes = NO_FUTURE_TIMES


class Created(Struct, frozen=True):
    job: Child


class Existed(Struct, frozen=True):
    """A Job with that name already exists; `job` is the existing one."""

    job: Child


class NotCreated(Struct, frozen=True):
    error: str
    #: True to emit no Event: the namespace is terminating, or another client created the Job first.
    silent: bool = False


class NotReplaced(Struct, frozen=True):
    """The start was abandoned before the creation: a Job to be replaced could not be removed."""

    error: str
    #: True if looking the Job up failed; False if deleting it failed.
    lookup: bool


Outcome: TypeAlias = Created | Existed | NotCreated | NotReplaced


class Settlement(Struct, frozen=True):
    """End of a sync.

    Write `status` if set; then sync again in `look_again_seconds`, or retry on error.
    """

    status: CronJobStatus | None = None
    events: tuple[Event, ...] = ()
    look_again_seconds: float | None = None
    error: str | None = None
    #: Seconds between the slot and the creation of its Job; None if no Job was created.
    skew_seconds: float | None = None


def plan_start(
    current: CurrentState,
    missing: AbstractSet[str],
    now: datetime,
    *,
    local_zone: str = "UTC",
    known: FutureTimes | None = None,
    shows_next_slot: bool = False,
) -> StartPlan:
    """Decide which slot to start.

    Where the clock was set back, slots that recur are run again, except the last one run: a
    schedule refers to wall-clock time.

    Args:
        missing: UIDs of unseen Jobs that no longer exist.
        known: Future times found by the previous plan; None to take a last run in the future
            literally.
        shows_next_slot: Whether the status has nextScheduleTime (CronJobsNextScheduleTime).
    """
    current = without_missing(current, missing)
    future_times = NO_FUTURE_TIMES
    if known is not None:
        future_times = known.after((slots_from(current.cronjob, current.status),), now)
    plan = _plan_start(current, now, local_zone, future_times)
    next_slot = None
    if shows_next_slot and plan.schedule is not None:
        next_slot = plan.schedule.next(now - start_delay(current.cronjob))
    return replace(plan, next_slot=next_slot, future_times=future_times)


def _plan_start(
    current: CurrentState, now: datetime, local_zone: str, future_times: FutureTimes
) -> StartPlan:
    cronjob, status = current.cronjob, current.status
    zone = cronjob.spec.time_zone
    if cronjob.metadata.deleting:
        return StartPlan(current, now, note="the CronJob is being deleted")
    if zone is not None and (problem := time_zone_error(zone)):
        event = warning("UnknownTimeZone", f"invalid timeZone: {_quoted(zone)}: {problem}")
        return StartPlan(current, now, (event,), note=event.message)
    if cronjob.spec.suspend:
        return StartPlan(current, now, note="the CronJob is suspended")
    events = _schedule_warnings(cronjob)
    try:
        schedule = parse_schedule(cronjob.spec.schedule, zone, local=local_zone)
    except ScheduleError as error:
        text = f"unparseable schedule: {_quoted(cronjob.spec.schedule)} : {error}"
        event = warning("UnparseableSchedule", text)
        return StartPlan(current, now, (*events, event), note=event.message)
    # Compare slots with this CronJob's own time, which lags behind by its jitter.
    judged_at = now - start_delay(cronjob)
    recent = due_slot(cronjob, status, judged_at, schedule, future_times)
    if recent.error is not None:
        text = f"invalid schedule: {cronjob.spec.schedule} : {recent.error}"
        event = warning("InvalidSchedule", text)
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
    last = status.last_schedule_time
    start = JobStart(
        recent.slot,
        job_name(cronjob, recent.slot),
        job_document(cronjob, recent.slot, last_run_ahead=last is not None and last > recent.slot),
        status.active if cronjob.spec.concurrency_policy == "Replace" else (),
    )
    return StartPlan(current, now, events, schedule, start)


def settle(
    plan: StartPlan, replaced: Sequence[Deleted] = (), outcome: Outcome | None = None
) -> Settlement:
    """Return the end of the sync. `outcome` is None if there was nothing to start."""
    update = StatusUpdate(plan.current.cronjob, plan.current.status, changed=plan.current.changed)
    if not plan.current.cronjob.metadata.deleting:
        update.record_next_slot(plan.next_slot)
    for deletion in replaced:
        update.record_deletion(deletion)
    noun = plan.current.cronjob.cron_kind.noun
    match outcome:
        case None:
            return _settlement(update, look_again_seconds=plan.look_again_seconds)
        case NotReplaced(error, lookup):
            if lookup:
                update.events.append(warning("FailedGet", f"Get {noun}: {error}"))
            return _settlement(update, error=error)
        case NotCreated(error, silent):
            if not silent:
                update.events.append(warning("FailedCreate", f"Error creating {noun}: {error}"))
            return _settlement(update, error=error)
        case Existed(job):
            # A Job of the same name with another owner, or one already listed: nothing to record.
            if not controls(plan.current.cronjob, job) or job.metadata.uid in update.uids():
                return _settlement(update)
            return _settle_started(plan, update, job)
        case Created(job):
            name = job.metadata.name
            update.events.append(Event("Normal", "SuccessfulCreate", f"Created {noun} {name}"))
            return replace(_settle_started(plan, update, job), skew_seconds=_start_delay(plan, job))


def reschedule(
    old: CronJob,
    new: CronJob,
    now: datetime,
    *,
    local_zone: str = "UTC",
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> tuple[float | None, Event | None]:
    """Return the seconds until the sync after an update (or None), and an Event to emit.

    A changed schedule must not start the slot that the new schedule puts just before now.
    """
    if (old.spec.schedule, old.spec.time_zone) == (new.spec.schedule, new.spec.time_zone):
        return 0.0, None
    zone = new.spec.time_zone
    try:
        known_zone = zone if zone is not None and time_zone_error(zone) is None else None
        schedule = parse_schedule(new.spec.schedule, known_zone, local=local_zone)
    except ScheduleError:
        text = f"unparseable schedule for cronjob: {new.spec.schedule}"
        return None, warning("UnParseableCronJobSchedule", text)
    judged_at = now - start_delay(new)
    seconds = look_again_seconds(new, new.status, judged_at, schedule, future_times)
    # A schedule without any slot is reported now: nothing else would ever trigger a sync.
    return (0.0 if seconds is None else seconds), None


class _Obstacle(Struct, frozen=True):
    note: str
    event: Event | None = None


def _obstacle(
    cronjob: CronJob, status: CronJobStatus, slot: datetime, now: datetime
) -> _Obstacle | None:
    """Return the reason why a due slot must not be started, or None."""
    if is_too_late(cronjob, slot, now):
        stamp = slot.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        text = f"Missed scheduled time to start a job: {stamp}"
        return _Obstacle("it is too late for the slot", warning("MissSchedule", text))
    name = job_name(cronjob, slot)
    # Equality, not order: it also holds when the clock was set back or the Job was deleted.
    if status.last_schedule_time == slot or any(ref.name == name for ref in status.active):
        return _Obstacle(f"the time that is due is already started as {name}")
    if cronjob.spec.concurrency_policy == "Forbid" and status.active:
        return _Obstacle("the previous Job is still running", _ALREADY_ACTIVE)
    if catches_up(cronjob) and status.active:
        return _Obstacle("all slots are run one after the other; the previous Job is still running")
    return None


def _settle_started(plan: StartPlan, update: StatusUpdate, job: Child) -> Settlement:
    """Return the settlement after a Job was started; the Job is added to `update`."""
    assert plan.start is not None, "a Job was started without a plan to"
    assert plan.schedule is not None, "a Job was started without a schedule"
    update.active.append(reference_to(plan.current.cronjob, job))
    update.changed = True
    status = status_with(update.status(), last_schedule_time=plan.start.slot)
    judged_at = plan.now - start_delay(plan.current.cronjob)
    again = look_again_seconds(plan.current.cronjob, status, judged_at, plan.schedule)
    return Settlement(status, tuple(update.events), again)


def _settlement(
    update: StatusUpdate, *, look_again_seconds: float | None = None, error: str | None = None
) -> Settlement:
    """Return a settlement; it has a status only if `update` has changed."""
    status = update.status() if update.changed else None
    return Settlement(status, tuple(update.events), look_again_seconds, error)


def _start_delay(plan: StartPlan, job: Child) -> float | None:
    """Return the seconds from the slot to the creation of its Job, or None."""
    created_at = job.metadata.creation_timestamp
    if created_at is None or plan.start is None:
        return None
    return (created_at - plan.start.slot).total_seconds()


def _schedule_warnings(cronjob: CronJob) -> tuple[Event, ...]:
    """Return the warning about a time zone in the schedule."""
    if "TZ" not in cronjob.spec.schedule:
        return ()
    text = (
        f"CRON_TZ or TZ used in schedule {_quoted(cronjob.spec.schedule)} is not officially"
        " supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
        " for more details"
    )
    return (warning("UnsupportedSchedule", text),)


def _quoted(text: str) -> str:
    """Return a text in quotes, as Go's %q."""
    return msgspec.json.encode(text).decode()


_TOO_MANY_MISSED = warning(
    "TooManyMissedTimes",
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds"
    " or check clock skew",
)


_ALREADY_ACTIVE = Event(
    "Normal",
    "JobAlreadyActive",
    "Not starting job because prior execution is running and concurrency policy is Forbid",
)
