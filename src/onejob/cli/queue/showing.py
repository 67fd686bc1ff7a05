"""`onejob queue` as text: the limits and how far they are used, then the Jobs in order. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from onejob.explaining.durations import short_seconds
from onejob.planning.queue.forecast import Entry, Scope
from onejob.planning.queue.limits import QUEUE_LABEL, scope_text
from onejob.planning.queue.standing import priority_class_of

LIMIT_HEADERS = ("LIMIT OF", "RUNNING", "ALLOWED", "WAITING")
JOB_HEADERS = ("PLACE", "NAMESPACE", "JOB", "QUEUE", "PRIORITY", "AGE", "START", "WHY")


def limit_rows(scopes: Sequence[Scope]) -> list[tuple[str, ...]]:
    return [
        (scope_text(scope.name), str(scope.running), str(scope.limit), str(scope.waiting))
        for scope in scopes
    ]


def job_rows(entries: Sequence[Entry], now: datetime) -> list[tuple[str, ...]]:
    return [
        (
            str(entry.place) if entry.place else "-",
            entry.job.metadata.namespace,
            entry.job.metadata.name,
            entry.job.metadata.labels.get(QUEUE_LABEL, ""),
            str(entry.priority),
            _age(entry, now),
            start_text(entry, now),
            reason(entry),
        )
        for entry in entries
    ]


def as_document(entries: Sequence[Entry], scopes: Sequence[Scope]) -> dict[str, Any]:
    """For programs."""
    return {
        "limits": [
            {
                "scope": scope.name,
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
                "waitsFor": entry.waits_for,
                "mayStartAt": entry.may_start_at,
            }
            for entry in entries
        ],
    }


def reason(entry: Entry) -> str:
    if entry.state == "running":
        return "runs"
    if entry.waits_for:
        return f"{scope_text(entry.waits_for)}: as many run as may"
    return "others are before it" if entry.may_start_at is None else "is about to start"


def start_text(entry: Entry, now: datetime) -> str:
    """When it may start, for one that waits."""
    if entry.state == "running":
        return "started"
    if entry.may_start_at is None:
        return "unknown"
    seconds = (entry.may_start_at - now).total_seconds()
    return "now" if seconds < 1 else f"in ~{short_seconds(seconds)}"


def _age(entry: Entry, now: datetime) -> str:
    created = entry.job.metadata.creation_timestamp
    return "" if created is None else short_seconds(max(0.0, (now - created).total_seconds()))
