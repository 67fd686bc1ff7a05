"""Result type of `onejob why`, and phrases that its explanations share. Pure functions."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from onejob.diagnosis.durations import short_seconds
from onejob.planning.job.plan import Note
from onejob.planning.names import REASON_ANNOTATION

Document = dict[str, Any]

RUN_IS_OVER: Final = "nothing: the run has ended; start another with onejob run"


class Explanation(msgspec.Struct, frozen=True):
    #: One sentence.
    state: str
    cause: tuple[str, ...]
    evidence: tuple[str, ...]
    next: tuple[str, ...]
    #: Pod whose last log lines are most informative, as (name, container); None if there is none.
    shown_failure: tuple[str, str] | None = None
    #: The planner's notes about a Job, with times to count down to.
    notes: tuple[Note, ...] = ()
    #: Whether an unfinished object makes no progress until its cause is removed.
    blocked: bool = False


def time_text(moment: datetime, now: datetime, word: str = "at") -> str:
    """Return `at 12:00:10 UTC (in 6.0s)`; with the date if it is not today.

    In UTC, because the reader may be in another zone than the server.
    """
    at, today = moment.astimezone(UTC), now.astimezone(UTC).date()
    form = "%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M:%S"
    left = short_seconds((moment - now).total_seconds())
    return f"{word} {at.strftime(form)} UTC (in {left})"


def ago_text(moment: datetime, now: datetime) -> str:
    return f"{short_seconds((now - moment).total_seconds())} ago"


def set_by(document: Document, *path: str) -> str:
    """Return the last manager of a field according to managedFields, or "".

    The format is `, set by kubectl at ...`.
    """
    writers = []
    for entry in document["metadata"].get("managedFields", ()):
        fields: Any = entry.get("fieldsV1", {})
        for segment in path:
            fields = fields.get(segment) if isinstance(fields, dict) else None
        if fields is not None:
            writers.append((entry.get("time", ""), entry.get("manager", "")))
    if not writers:
        return ""
    time, manager = max(writers)
    return f", set by {manager} at {time}"


def given_reason(document: Document, introduction: str) -> list[str]:
    """Return the reason of `--reason` with an introduction; [] if none was given."""
    reason = document["metadata"].get("annotations", {}).get(REASON_ANNOTATION, "")
    return [f"{introduction}: {reason}"] if reason else []


def last_end_text(report: Document) -> str:
    """Return how a container's previous instance ended; "" if there was none.

    `report` is the container's status.
    """
    end = report.get("lastState", {}).get("terminated")
    if end is None:
        return ""
    message = " ".join(end.get("message", "").split())
    text = f"its last exit code was {end['exitCode']} ({end.get('reason', '')})"
    return f"{text}: {message}" if message else text
