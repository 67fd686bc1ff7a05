"""Lines on a Job's history and progress, for the commands that describe it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.cli.sources.base import Api, ApiRequest, path_of
from onejob.diagnosis.durations import short_seconds
from onejob.objects.meta import JOBS
from onejob.planning.history import PodRecord
from onejob.planning.names import PROGRESS_MARKS
from onejob.planning.progress import JobProgress, progress_bar
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE

#: Records shown of one Job.
_SHOWN: Final = 10

_JOB: Final = BY_RESOURCE[JOBS]


class _History(msgspec.Struct):
    pods: list[PodRecord] = []
    dropped: int = 0


def history(api: Api, job: dict[str, Any], limit: int = _SHOWN) -> Sequence[PodRecord]:
    """Return the newest ended Pods of a Job, oldest first; none from a server without history."""
    return _history(api, job, limit).pods


def _history(api: Api, job: dict[str, Any], limit: int) -> _History:
    content = _ask(api, job, "history", {"limit": str(limit)})
    return _History() if content is None else msgspec.json.decode(content, type=_History)


def may_report(job: dict[str, Any]) -> bool:
    """Return whether the Job's containers may report progress."""
    template = str(job["spec"].get("template", {}))
    return any(mark in template for mark in PROGRESS_MARKS)


def progress_of(api: Api, job: dict[str, Any]) -> JobProgress | None:
    """Return what the Job's containers report; None if they report nothing."""
    if not may_report(job):
        return None
    content = _ask(api, job, "progress", {})
    found = None if content is None else msgspec.json.decode(content, type=JobProgress)
    return found if found is not None and found.total else None


def progress_lines(api: Api, job: dict[str, Any]) -> list[str]:
    found = progress_of(api, job)
    return [] if found is None else [f"progress: {progress_bar(found)}"]


def history_lines(api: Api, job: dict[str, Any], now: datetime) -> list[str]:
    """Return a line for each of the newest ended Pods, and one on those without a record."""
    found = _history(api, job, _SHOWN)
    return record_lines(found.pods, found.dropped, now)


def record_lines(records: Sequence[PodRecord], dropped: int, now: datetime) -> list[str]:
    lines = [record_text(record, now) for record in records]
    if dropped:
        lines.append(f"{dropped:,} other deleted Pods have no record")
    return lines


def deleted_failures(api: Api, job: dict[str, Any], now: datetime) -> list[str]:
    """Return lines on failed Pods that no longer exist."""
    if not job.get("status", {}).get("failed"):
        return []
    return [
        record_text(record, now)
        for record in history(api, job, limit=1000)
        if record.deleted and record.phase == "Failed"
    ][-_SHOWN:]


def record_text(record: PodRecord, now: datetime) -> str:
    index = "" if record.index is None else f" (index {record.index})"
    ago = ""
    if record.finish_time is not None:
        ago = f" {short_seconds(max((now - record.finish_time).total_seconds(), 0))} ago"
    code = "" if record.exit_code is None else f" with code {record.exit_code}"
    reason = f" ({record.reason})" if record.reason else ""
    verb = "succeeded" if record.phase == "Succeeded" else "failed"
    node = f" on {record.node}" if record.node else ""
    message = f": {record.message}" if record.message else ""
    gone = "; deleted" if record.deleted else ""
    return f"pod {record.name}{index} {verb}{ago}{node}{code}{reason}{message}{gone}"


def _ask(api: Api, job: dict[str, Any], subresource: str, query: dict[str, str]) -> bytes | None:
    metadata = job["metadata"]
    path = path_of(_JOB, metadata.get("namespace", ""), metadata["name"], subresource)
    try:
        return api.send(ApiRequest("GET", path, query)).body
    except ApiError:
        # Another API server, or a user without the permission.
        return None
