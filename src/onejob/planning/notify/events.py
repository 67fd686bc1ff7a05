"""Notification events: the event of a Job's end, and lateness of Jobs and CronJobs."""

from collections.abc import Set
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.planning.cronjob.slots import schedule_of
from onejob.planning.metadata_values import annotated_number
from onejob.planning.notify.annotations import (
    FAILED,
    FINISHED,
    LATE_AFTER_ANNOTATION,
    RECOVERED,
    Subscription,
)

_EVER: Final = datetime(1, 1, 1, tzinfo=UTC)


def ended_at(job: Job) -> datetime | None:
    """Return the time at which the Job finished; None if it has not."""
    condition = job.finished_condition
    if condition is None:
        return None
    return condition.last_transition_time or job.status.completion_time or _EVER


def has_failed(job: Job) -> bool:
    return job.condition_is_true("Failed")


def series_of(job: Job) -> str:
    """Return the key shared by Jobs that repeat the same work: one CronJob's, or of one name."""
    owner = job.metadata.controller_ref
    kind, name = "job", job.metadata.name
    if owner is not None and owner.kind == "CronJob":
        kind, name = "cronjob", owner.name
    return f"{kind}/{job.metadata.namespace}/{name}"


def end_event(
    job: Job, *, was_failing: bool, subscription: Subscription, usual: Set[str]
) -> str | None:
    """Return the most specific event that the target subscribes to for a Job's end, or None."""
    first = FAILED if has_failed(job) else RECOVERED
    telling = (first, FINISHED) if has_failed(job) or was_failing else (FINISHED,)
    return next((event for event in telling if subscription.wants(event, usual)), None)


def job_late_at(job: Job) -> datetime | None:
    """Return the time from which the Job is late; None without a limit, or if it has finished."""
    seconds = annotated_number(job.metadata, LATE_AFTER_ANNOTATION)
    created = job.metadata.creation_timestamp
    if not seconds or created is None or job.finished or job.metadata.deleting:
        return None
    return _add_seconds(created, seconds)


class Lateness(Struct, frozen=True):
    #: First scheduled time since the last success.
    slot: datetime
    #: Time from which the CronJob is late.
    at: datetime


def cronjob_lateness(cronjob: CronJob, local_zone: str) -> Lateness | None:
    """Return when the CronJob is late, or None.

    None if no limit is set, the CronJob is suspended, or its schedule has no further time.
    """
    seconds = annotated_number(cronjob.metadata, LATE_AFTER_ANNOTATION)
    created = cronjob.metadata.creation_timestamp
    if not seconds or created is None or cronjob.spec.suspend or cronjob.metadata.deleting:
        return None
    schedule = schedule_of(cronjob, local_zone)
    if schedule is None:
        return None
    slot = schedule.next(max(created, cronjob.status.last_successful_time or created))
    if slot is None:
        return None
    at = _add_seconds(slot, seconds)
    return None if at is None else Lateness(slot, at)


def _add_seconds(at: datetime, seconds: int) -> datetime | None:
    """Return the time, or None if it is out of range."""
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:
        return None
