"""Run history of a CronJob, reconstructed from the remaining Jobs and Events. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.planning.cronjob.documents import SCHEDULED_AT_ANNOTATION, slot_of
from onejob.planning.cronjob.schedule import Schedule
from onejob.planning.cronjob.slots import is_too_late, start_delay

#: Label of a Job that was created for a past slot (backfill): the CronJob's name.
BACKFILL_LABEL = "onejob.dev/backfill"

FireState: TypeAlias = Literal[
    "Complete", "Failed", "Running", "Suspended", "Skipped", "Missed", "Unknown"
]

_FIRST_SPAN = timedelta(hours=1)
#: Maximum number of slots searched backwards; a schedule may have one per second.
_MAX_SLOTS = 100_000

#: State of a slot without a Job, by the reason of an Event about the CronJob.
_REASONS: Mapping[str, FireState] = {
    "JobAlreadyActive": "Skipped",
    "MissSchedule": "Missed",
    "FailedCreate": "Missed",
    "TooManyMissedTimes": "Missed",
}


@dataclass(frozen=True, slots=True)
class CronJobEvent:
    """Event about the CronJob."""

    reason: str
    message: str
    first_at: datetime
    last_at: datetime


def read_event(document: Mapping[str, Any]) -> CronJobEvent | None:
    """Parse an Event; None if it has no timestamp."""
    last = document.get("lastTimestamp") or document.get("eventTime")
    if not last:
        return None
    first = document.get("firstTimestamp") or last
    return CronJobEvent(
        document.get("reason", ""),
        document.get("message", ""),
        datetime.fromisoformat(first),
        datetime.fromisoformat(last),
    )


@dataclass(frozen=True, slots=True)
class Fire:
    """Run of a CronJob at one slot."""

    slot: datetime
    state: FireState
    #: Job name; empty if there is no Job.
    job: str = ""
    why: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


def fires(
    cronjob: CronJob,
    jobs: Iterable[Job],
    events: Sequence[CronJobEvent],
    schedule: Schedule,
    now: datetime,
    count: int,
) -> Sequence[Fire]:
    """Return the last `count` slots and their outcome, newest first."""
    by_slot = dict(_slots_of_jobs(cronjob, jobs))
    delay = start_delay(cronjob)
    slots = last_slots(schedule, cronjob.metadata.creation_timestamp or now, now - delay, count)
    found = [
        _fire_of_slot(cronjob, slot, until, by_slot.get(slot), events, now)
        for slot, until in pairwise((*slots, now))
    ]
    return found[::-1]


def last_slots(
    schedule: Schedule, not_before: datetime, until: datetime, count: int
) -> Sequence[datetime]:
    """Return the last `count` slots up to `until`, in ascending order.

    A schedule can only compute its next slot, so the search restarts from ever earlier times.
    """
    span = _FIRST_SPAN
    while True:
        begin = max(until - span, not_before)
        found = list(slots_between(schedule, begin, until))
        if len(found) >= count or begin == not_before:
            return found[-count:]
        span *= 4


def slots_between(schedule: Schedule, begin: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the slots after `begin`, up to and including `until`."""
    slot = schedule.next(begin)
    for _ in range(_MAX_SLOTS):
        if slot is None or slot > until:
            return
        yield slot
        slot = schedule.next(slot)


def slots_from_now(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    slot = schedule.next(now)
    while slot is not None:
        yield slot
        slot = schedule.next(slot)


def _slots_of_jobs(cronjob: CronJob, jobs: Iterable[Job]) -> Iterator[tuple[datetime, Job]]:
    for job in jobs:
        slot = slot_of(cronjob, job)
        if slot is None and job.metadata.labels.get(BACKFILL_LABEL) == cronjob.metadata.name:
            slot = _annotated_slot(job)
        if slot is not None:
            yield slot, job


def _annotated_slot(job: Job) -> datetime | None:
    """Return the slot in a Job's annotation; None if it is absent or malformed."""
    try:
        return datetime.fromisoformat(job.metadata.annotations.get(SCHEDULED_AT_ANNOTATION, ""))
    except ValueError:
        return None


def _fire_of_slot(
    cronjob: CronJob,
    slot: datetime,
    until: datetime,
    job: Job | None,
    events: Sequence[CronJobEvent],
    now: datetime,
) -> Fire:
    """Return the outcome of one scheduled time."""
    if job is not None:
        return _with_job(slot, job)
    for event in events:
        if event.reason in _REASONS and event.first_at < until and event.last_at >= slot:
            return Fire(slot, _REASONS[event.reason], why=event.message)
    if cronjob.spec.suspend:
        return Fire(slot, "Unknown", why="the CronJob is suspended now")
    last = cronjob.status.last_schedule_time
    if last is None or slot > last:
        if is_too_late(cronjob, slot, now):
            deadline = cronjob.spec.starting_deadline_seconds
            return Fire(slot, "Missed", why=f"startingDeadlineSeconds ({deadline}) had passed")
        return Fire(slot, "Missed", why="no Job has been started for it yet")
    return Fire(
        slot,
        "Unknown",
        why="its Job was deleted (history limits), or it was skipped or missed and the Events "
        "have expired",
    )


def _with_job(slot: datetime, job: Job) -> Fire:
    """Return the run that a Job belongs to."""
    condition = job.finished_condition
    started = job.status.start_time
    if condition is None:
        waits: FireState = "Suspended" if job.spec.suspend else "Running"
        return Fire(slot, waits, job.metadata.name, started_at=started)
    state: FireState = "Complete" if condition.type == "Complete" else "Failed"
    why = condition.message if state == "Failed" else ""
    return Fire(slot, state, job.metadata.name, why, started, condition.last_transition_time)
