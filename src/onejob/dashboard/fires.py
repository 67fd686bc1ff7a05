"""When a CronJob fired and will fire, and what came of it. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from onejob.api.strategies.printing import read_time
from onejob.explaining.ended import finish_of
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import read_job
from onejob.planning.cronjob.schedule import Calendar, Schedule, ScheduleError, parse_schedule
from onejob.planning.cronjob.time_zones import time_zone_error

Document: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Literal["Complete", "Failed", "Running", "Suspended", "none"]

#: On Jobs that a CronJob started: for which time of its schedule.
SCHEDULED_FOR: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_SHOWN_PAST: Final = 60
_SHOWN_NEXT: Final = 30
#: Times are looked for this far back at most: a CronJob of every minute has 1,440 a day.
_LOOK_BACK: Final = timedelta(days=35)
_MOST_STEPS: Final = 3000


class Fire(msgspec.Struct, frozen=True):
    at: datetime
    #: The Job that was started for it, if it is still there.
    job: str
    outcome: Outcome
    #: Why there is none, as far as can be told.
    note: str = ""


def fires_of(
    document: Document, jobs: Sequence[Document], now: datetime, *, local_zone: str
) -> Document:
    """`jobs` are its own Jobs."""
    cronjob = read_cronjob(msgspec.json.encode(document))
    schedule = _schedule(cronjob, local_zone)
    zone = schedule.zone if isinstance(schedule, Calendar) else ""
    if schedule is None:
        return {"zone": zone, "past": [], "coming": []}
    return {
        "zone": zone,
        "past": _past(cronjob, schedule, jobs, now),
        "coming": [] if cronjob.spec.suspend else _coming(schedule, now),
    }


def _schedule(cronjob: CronJob, local_zone: str) -> Schedule | None:
    zone = cronjob.spec.time_zone
    if zone is not None and time_zone_error(zone):
        return None
    try:
        return parse_schedule(cronjob.spec.schedule, zone, local=local_zone)
    except ScheduleError:
        return None


def _coming(schedule: Schedule, now: datetime) -> list[datetime]:
    found: list[datetime] = []
    at = schedule.next(now)
    while at is not None and len(found) < _SHOWN_NEXT:
        found.append(at)
        at = schedule.next(at)
    return found


def _past(
    cronjob: CronJob, schedule: Schedule, jobs: Sequence[Document], now: datetime
) -> list[Fire]:
    """The newest first."""
    started = {at: job for job in jobs if (at := _slot_of(job)) is not None}
    slots = _slots(cronjob, schedule, now)
    oldest_kept = min(started, default=None)
    fires = []
    for at in sorted({*slots, *started}, reverse=True)[:_SHOWN_PAST]:
        job = started.get(at)
        if job is not None:
            fires.append(Fire(at, job["metadata"]["name"], _outcome(job)))
        else:
            fires.append(Fire(at, "", "none", _why_none(cronjob, at, oldest_kept, now)))
    return fires


def _slots(cronjob: CronJob, schedule: Schedule, now: datetime) -> list[datetime]:
    created = cronjob.metadata.creation_timestamp or now
    start = max(created, now - _LOOK_BACK)
    first = schedule.next(start)
    second = schedule.next(first) if first is not None else None
    if first is None:
        return []
    if second is not None:
        # Of a frequent schedule only the end is walked.
        start = max(start, now - (second - first) * _SHOWN_PAST * 2)
    found = []
    at, steps = schedule.next(start), 0
    while at is not None and at <= now and steps < _MOST_STEPS:
        found.append(at)
        at, steps = schedule.next(at), steps + 1
    return found


def _slot_of(job: Document) -> datetime | None:
    text = job["metadata"].get("annotations", {}).get(SCHEDULED_FOR)
    try:
        return read_time(text)
    except ValueError:
        return None


def _outcome(document: Document) -> Outcome:
    job = read_job(msgspec.json.encode(document))
    condition = job.finished_condition
    if finish_of(document) is not None and condition is not None:
        return "Complete" if condition.type == "Complete" else "Failed"
    return "Suspended" if job.spec.suspend else "Running"


def _why_none(cronjob: CronJob, at: datetime, oldest_kept: datetime | None, now: datetime) -> str:
    last = cronjob.status.last_schedule_time
    if last is not None and at == last:
        return "its Job is no longer kept"
    if cronjob.spec.suspend and (last is None or at > last):
        return "skipped: the CronJob is suspended"
    if last is not None and at < last and (oldest_kept is None or at < oldest_kept):
        return "its Job is no longer kept, or it was missed"
    deadline = cronjob.spec.starting_deadline_seconds
    if deadline is not None and (now - at).total_seconds() > deadline:
        return f"missed: not started within {deadline} s (startingDeadlineSeconds)"
    if cronjob.spec.concurrency_policy == "Forbid":
        return (
            "skipped: the Job before still ran (concurrencyPolicy Forbid), or the server was down"
        )
    return "missed: the server was not running, or the CronJob was suspended"
