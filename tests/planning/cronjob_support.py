"""CronJobs, their Jobs and times for planner tests."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job, read_job


def at(text: str) -> datetime:
    """Parse a time of day on 2026-01-01, or a whole timestamp."""
    return datetime.fromisoformat(text if "T" in text else f"2026-01-01T{text}Z").astimezone(UTC)


def stamp(text: str) -> str:
    return at(text).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_cronjob(
    schedule: str = "0 * * * *",
    *,
    created: str = "09:30",
    last: str | None = None,
    last_success: str | None = None,
    active: tuple[str, ...] = (),
    deleting: bool = False,
    **spec: Any,
) -> CronJob:
    status: dict[str, Any] = {"active": [a_reference(name) for name in active]}
    if last:
        status["lastScheduleTime"] = stamp(last)
    if last_success:
        status["lastSuccessfulTime"] = stamp(last_success)
    metadata: dict[str, Any] = {
        "name": "tick",
        "namespace": "default",
        "uid": "cj",
        "resourceVersion": "7",
        "creationTimestamp": stamp(created),
    }
    if deleting:
        metadata["deletionTimestamp"] = stamp("11:00")
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    document = {
        "metadata": metadata,
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
        "status": status,
    }
    return read_cronjob(msgspec.json.encode(document))


def a_reference(name: str) -> dict[str, str]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
    }


def a_job(
    name: str,
    condition: str = "",
    *,
    started: str | None = None,
    completed: str | None = None,
    owner: str | None = "cj",
) -> Job:
    status: dict[str, Any] = {}
    if condition:
        status["conditions"] = [{"type": condition, "status": "True"}]
    if started:
        status["startTime"] = stamp(started)
    if completed:
        status["completionTime"] = stamp(completed)
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner:
        reference = {"kind": "CronJob", "name": "tick", "uid": owner, "controller": True}
        metadata["ownerReferences"] = [reference]
    return read_job(msgspec.json.encode({"metadata": metadata, "status": status}))
