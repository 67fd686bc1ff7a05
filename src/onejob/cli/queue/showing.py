"""Text of `onejob queue`: limits with their usage, then the Jobs in order. Pure."""

from collections.abc import Sequence
from datetime import datetime

from onejob.diagnosis.durations import short_seconds
from onejob.diagnosis.queues import reason, start_text
from onejob.planning.queue.forecast import Entry, Scope
from onejob.planning.queue.limits import QUEUE_LABEL, scope_text

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


def _age(entry: Entry, now: datetime) -> str:
    created = entry.job.metadata.creation_timestamp
    return "" if created is None else short_seconds(max(0.0, (now - created).total_seconds()))
