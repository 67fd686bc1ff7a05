"""Queue report, as text and as a document: running and waiting Jobs, reasons and expected starts.

Pure functions.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from onejob.diagnosis.durations import short_seconds
from onejob.planning.queue.forecast import Entry, Scope
from onejob.planning.queue.limits import QUEUE_LABEL, scope_text
from onejob.planning.queue.membership import priority_class_of


def queue_document(entries: Sequence[Entry], scopes: Sequence[Scope]) -> dict[str, Any]:
    """Return the queue as a machine-readable document."""
    return {
        "limits": [
            {
                "scope": scope.name,
                "title": scope_text(scope.name),
                "running": scope.running,
                "allowed": scope.limit,
                "waiting": scope.waiting,
            }
            for scope in scopes
        ],
        "jobs": [
            {
                "namespace": entry.job.metadata.namespace,
                "name": entry.job.metadata.name,
                "state": entry.state,
                "place": entry.place,
                "priority": entry.priority,
                "priorityClass": priority_class_of(entry.job),
                "queue": entry.job.metadata.labels.get(QUEUE_LABEL, ""),
                "createdAt": entry.job.metadata.creation_timestamp,
                "waitsFor": entry.waits_for,
                "mayStartAt": entry.may_start_at,
                "why": reason(entry),
            }
            for entry in entries
        ],
    }


def reason(entry: Entry) -> str:
    """Return why the Job waits, or `runs`."""
    if entry.state == "running":
        return "runs"
    if entry.waits_for:
        return f"{scope_text(entry.waits_for)}: limit reached"
    return "other Jobs are ahead" if entry.may_start_at is None else "is about to start"


def start_text(entry: Entry, now: datetime) -> str:
    """Return the expected start of a waiting Job, relative to `now`."""
    if entry.state == "running":
        return "started"
    if entry.may_start_at is None:
        return "unknown"
    seconds = (entry.may_start_at - now).total_seconds()
    if seconds < 1:
        # The Jobs before it run longer than most did.
        return "any moment" if entry.waits_for else "now"
    return f"in ~{short_seconds(seconds)}"
