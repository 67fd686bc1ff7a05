"""Notification state, and its change with each event.

Decided here, and stored on disk by `controllers/notify/outbox.py`.
"""

from collections.abc import Mapping, Set
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.planning.notify.annotations import LATE, Subscription
from onejob.planning.notify.events import (
    Lateness,
    end_event,
    ended_at,
    has_failed,
    series_of,
)
from onejob.planning.notify.messages import (
    Message,
    end_message,
    late_cronjob_message,
    late_job_message,
)

#: Value in `NotificationRecord.seen` for a Job whose end has been processed.
ENDED: Final = "ended"
#: Maximum number of failing series remembered, since Job names may be new each time.
_MAX_FAILING_SERIES: Final = 10_000


class NotificationRecord(Struct):
    """Notification state except for the pending messages."""

    #: Events before this time are not notified: notifications were not enabled then.
    since: datetime
    #: By UID, the event processed last: the end of a Job, or its lateness.
    seen: dict[str, str] = field(default_factory=dict)
    #: Series whose last Job failed, oldest first. The values are unused.
    failing: dict[str, None] = field(default_factory=dict)

    def apply(self, change: "RecordChange") -> None:
        """Apply a change in place."""
        for uid, what in change.seen.items():
            if what is None:
                self.seen.pop(uid, None)
            else:
                self.seen[uid] = what
        for series in change.recovered:
            self.failing.pop(series, None)
        self.failing.update(dict.fromkeys(change.failing))


class RecordChange(Struct, frozen=True):
    """Atomic change of the record.

    Written to disk as one, so that a crash neither loses nor repeats a part of it.
    """

    #: None as a value: the object is gone.
    seen: Mapping[str, str | None] = field(default_factory=dict)
    failing: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()


def job_ended(
    job: Job,
    subscription: Subscription,
    record: NotificationRecord,
    usual: Mapping[str, Set[str]],
    now: datetime,
    give_up_after: timedelta,
) -> RecordChange | None:
    """Return the change for a finished Job; None if it was processed before or is too old.

    `usual` maps each configured target to its events.
    """
    uid, at = job.metadata.uid, ended_at(job)
    if at is None or record.seen.get(uid) == ENDED:
        return None
    # Condition times have whole seconds.
    if at < record.since.replace(microsecond=0) or now - at > give_up_after:
        return None
    series = series_of(job)
    was_failing = series in record.failing
    messages = []
    for target in subscription.targets:
        if target in usual:
            event = end_event(
                job, was_failing=was_failing, subscription=subscription, usual=usual[target]
            )
            if event is not None:
                messages.append(end_message(job, event, target, now))
    change = RecordChange({uid: ENDED}, messages=tuple(messages))
    if not has_failed(job):
        return replace(change, recovered=(series,))
    forgotten = () if was_failing or len(record.failing) < _MAX_FAILING_SERIES else _oldest(record)
    return replace(change, failing=(series,), recovered=forgotten)


def _oldest(record: NotificationRecord) -> tuple[str, ...]:
    """Return the series that has been failing for the longest time, as the one to forget."""
    return (next(iter(record.failing)),)


def job_is_late(
    job: Job,
    subscription: Subscription,
    record: NotificationRecord,
    usual: Mapping[str, Set[str]],
    now: datetime,
) -> RecordChange | None:
    """Return the change that reports a late Job, with a message to each subscribed target; None if
    it was reported before."""
    uid = job.metadata.uid
    if uid in record.seen:
        return None
    messages = tuple(
        late_job_message(job, target, now)
        for target in subscription.targets
        if target in usual and subscription.wants(LATE, usual[target])
    )
    return RecordChange({uid: LATE}, messages=messages)


def cronjob_is_late(
    cronjob: CronJob,
    lateness: Lateness,
    subscription: Subscription,
    record: NotificationRecord,
    usual: Mapping[str, Set[str]],
    now: datetime,
) -> RecordChange | None:
    """Return the change for a late CronJob, or None.

    A CronJob is reported once per first scheduled time missed since a success.
    """
    uid, slot = cronjob.metadata.uid, lateness.slot.isoformat()
    if record.seen.get(uid) == slot:
        return None
    messages = tuple(
        late_cronjob_message(cronjob, target, lateness, now)
        for target in subscription.targets
        if target in usual and subscription.wants(LATE, usual[target])
    )
    return RecordChange({uid: slot}, messages=messages)
