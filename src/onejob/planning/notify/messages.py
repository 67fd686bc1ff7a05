"""Notification messages, independent of the kind of target, and their expiry."""

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.planning.notify.annotations import FAILED, FINISHED, LATE, RECOVERED
from onejob.planning.notify.events import Lateness, ended_at

TEST: Final = "test"
_MAX_MESSAGE_LENGTH: Final = 2000
_VERBS: Final = {FAILED: "failed", FINISHED: "finished", RECOVERED: "succeeded again"}


class Message(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Notification of one event for one target."""

    #: Deduplication key: identical whenever this event is sent to this target.
    id: str
    event: str
    target: str
    #: Time of the event, or of its detection.
    at: datetime
    #: One line for humans.
    text: str
    kind: str = "Job"
    namespace: str = ""
    name: str = ""
    uid: str = ""
    cronjob: str = ""
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    succeeded: int = 0
    failed: int = 0


encode_message = msgspec.json.Encoder().encode
decode_message = msgspec.json.Decoder(Message).decode


def message_id(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def end_message(job: Job, event: str, target: str, now: datetime) -> Message:
    """Return the message about the end of a Job."""
    condition = job.finished_condition
    assert condition is not None, "only Jobs that have ended"
    metadata = job.metadata
    owner = metadata.controller_ref
    why = _readable(condition.message)
    reason = f" ({_readable(condition.reason)})" if condition.reason and event == FAILED else ""
    explained = f": {why}" if why and event == FAILED else ""
    return Message(
        id=message_id(metadata.uid, "end", target),
        event=event,
        target=target,
        at=ended_at(job) or now,
        text=f"job/{metadata.name} in {metadata.namespace} {_verb(job, event)}{reason}{explained}",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        cronjob=owner.name if owner is not None and owner.kind == "CronJob" else "",
        reason=_readable(condition.reason),
        message=why,
        started_at=job.status.start_time,
        ended_at=ended_at(job),
        succeeded=job.status.succeeded,
        failed=job.status.failed,
    )


def late_job_message(job: Job, target: str, now: datetime) -> Message:
    """Return the message about a late Job."""
    metadata = job.metadata
    return Message(
        id=message_id(metadata.uid, LATE, target),
        event=LATE,
        target=target,
        at=now,
        text=f"job/{metadata.name} in {metadata.namespace} is late: it has not finished",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        started_at=job.status.start_time,
        succeeded=job.status.succeeded,
        failed=job.status.failed,
    )


def late_cronjob_message(
    cronjob: CronJob, target: str, lateness: Lateness, now: datetime
) -> Message:
    metadata = cronjob.metadata
    slot = lateness.slot.strftime("%Y-%m-%dT%H:%M:%SZ")
    return Message(
        id=message_id(metadata.uid, LATE, slot, target),
        event=LATE,
        target=target,
        at=now,
        text=f"cronjob/{metadata.name} in {metadata.namespace} is late: no Job has succeeded since "
        f"{slot}",
        kind="CronJob",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        cronjob=metadata.name,
    )


def trial_message(target: str, now: datetime) -> Message:
    """Return a test message to a target."""
    return Message(
        id=message_id(TEST, target, now.isoformat()),
        event=TEST,
        target=target,
        at=now,
        text=f"This is a test message for the notification target {target} of onejob.",
    )


def is_too_old(message: Message, now: datetime, give_up_after: timedelta) -> bool:
    """Return whether the message has expired.

    A time in the future (the clock was set back) is not old.
    """
    return now - message.at > give_up_after


def to_give_up(waiting: Sequence[Message], new: Message) -> Message:
    """Return the message to drop when the queue is full.

    That is the newest of the namespace with the most messages, so that no namespace crowds out
    others.
    """
    counts = Counter(message.namespace for message in (*waiting, new))
    most = max(counts.values())
    if counts[new.namespace] == most:
        return new
    return [message for message in waiting if counts[message.namespace] == most][-1]


def signature(secret: bytes, message: str, timestamp: int, body: bytes) -> str:
    """Return the signature over the ID, the time of sending and the body.

    Defined by https://www.standardwebhooks.com.
    """
    signed = b"%s.%d.%s" % (message.encode(), timestamp, body)
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _verb(job: Job, event: str) -> str:
    """Return the predicate of an event."""
    if event == FINISHED:
        return "failed" if job.condition_is_true("Failed") else "succeeded"
    return _VERBS[event]


def _readable(text: str) -> str:
    """Return one line without control characters, safe for mail, chat and terminals."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= _MAX_MESSAGE_LENGTH else f"{shown[: _MAX_MESSAGE_LENGTH - 1]}…"
