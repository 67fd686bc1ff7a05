"""Due slot of a CronJob, and the time of its next sync.

A *slot* is one of the times at which a schedule fires. However many slots were missed, only the
latest one is started.
"""

import zlib
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct

from onejob.objects.cronjob import CronJob, CronJobStatus
from onejob.planning.cronjob.schedule import Schedule, ScheduleError, parse_schedule
from onejob.planning.cronjob.time_zones import time_zone_error
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.metadata_values import annotated_number
from onejob.planning.names import JITTER_ANNOTATION

Missed: TypeAlias = Literal["none", "few", "many"]

#: Number of missed slots above which an Event is emitted: a wrong clock, or a server that was down.
MISSED_EVENT_THRESHOLD = 100
#: Syncing slightly after the slot instead of before it avoids a second sync.
SYNC_DELAY_AFTER_SLOT = timedelta(milliseconds=100)

NO_INTERVAL = "time difference between two schedules is less than 1 second"

_EVER = datetime(1, 1, 1, tzinfo=UTC)


def schedule_of(cronjob: CronJob, local_zone: str) -> Schedule | None:
    """Return the CronJob's schedule, or None if it is invalid; the plan reports the reason."""
    zone = cronjob.spec.time_zone
    if zone is not None and time_zone_error(zone):
        return None
    try:
        return parse_schedule(cronjob.spec.schedule, zone, local=local_zone)
    except ScheduleError:
        return None


class Recent(Struct, frozen=True):
    """Slot that became due since `earliest`, the last run or the creation."""

    earliest: datetime
    slot: datetime | None = None
    missed: Missed = "none"
    #: Set if the schedule has no two distinct times.
    error: str | None = None


def most_recent_slot(
    cronjob: CronJob,
    status: CronJobStatus,
    now: datetime,
    schedule: Schedule,
    *,
    within_deadline: bool,
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> Recent:
    """Return the latest slot up to `now`, computed rather than by iterating from `earliest`.

    The interval between the first two slots is assumed to hold for all. On uneven schedules this
    may overshoot and find none although some were missed: upstream's behaviour, kept on purpose.
    """
    earliest = future_times.counts_from(slots_from(cronjob, status))
    deadline_seconds = cronjob.spec.starting_deadline_seconds
    if within_deadline and deadline_seconds is not None:
        earliest = max(earliest, _subtract_seconds(now, deadline_seconds))
    first = schedule.next(earliest)
    second = schedule.next(first) if first is not None else None
    if first is not None and now < first:
        return Recent(earliest)
    if first is not None and second is not None and now < second:
        return Recent(earliest, first)
    if first is None or second is None:
        return Recent(earliest, error=NO_INTERVAL)
    interval_seconds = int((second - first).total_seconds())
    missed = int((now - first).total_seconds()) // interval_seconds + 1
    slot = None
    later = schedule.next(first + timedelta(seconds=(missed - 2) * interval_seconds))
    while later is not None and later <= now:
        slot, later = later, schedule.next(later)
    return Recent(earliest, slot, "many" if missed > MISSED_EVENT_THRESHOLD else "few")


def slots_from(cronjob: CronJob, status: CronJobStatus) -> datetime:
    """Return the time after which slots are considered: the last run, else the creation."""
    return status.last_schedule_time or cronjob.metadata.creation_timestamp or _EVER


def due_slot(
    cronjob: CronJob,
    status: CronJobStatus,
    now: datetime,
    schedule: Schedule,
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> Recent:
    """Return the slot that should be running by now, if any, subject to startingDeadlineSeconds."""
    return most_recent_slot(
        cronjob, status, now, schedule, within_deadline=True, future_times=future_times
    )


def look_again_seconds(
    cronjob: CronJob,
    status: CronJobStatus,
    now: datetime,
    schedule: Schedule,
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> float | None:
    """Return the seconds until the next slot; None if there is none."""
    recent = most_recent_slot(
        cronjob, status, now, schedule, within_deadline=False, future_times=future_times
    )
    if recent.error is not None:
        after = now
    elif recent.slot is not None:
        after = recent.slot
    else:
        after = recent.earliest if recent.missed == "none" else now
    slot = schedule.next(after)
    return (slot + SYNC_DELAY_AFTER_SLOT - now).total_seconds() if slot is not None else None


def start_delay(cronjob: CronJob) -> timedelta:
    """Return the CronJob's start delay after each slot (jitter).

    The delay is constant per CronJob, up to the maximum in its annotation, so that CronJobs with
    the same schedule do not all start at once.
    """
    longest = annotated_number(cronjob.metadata, JITTER_ANNOTATION)
    if not longest:
        return timedelta()
    return timedelta(seconds=zlib.crc32(cronjob.metadata.uid.encode()) % (longest + 1))


def is_too_late(cronjob: CronJob, slot: datetime, now: datetime) -> bool:
    deadline_seconds = cronjob.spec.starting_deadline_seconds
    return deadline_seconds is not None and slot < _subtract_seconds(now, deadline_seconds)


def _subtract_seconds(now: datetime, seconds: int) -> datetime:
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        # Deadlines of thousands of years are legal and mean "never too late".
        return _EVER
