"""Small builders for the command line's tests."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod, read_pod

NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def job_document(
    name: str = "pi",
    *,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            **(metadata or {}),
        },
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, **(spec or {})},
        "status": dict(status or {}),
    }


def a_job(name: str = "pi", **parts: Any) -> Job:
    return read_job(msgspec.json.encode(job_document(name, **parts)))


def finished(kind: str, reason: str, message: str = "", at: datetime = NOON) -> dict[str, Any]:
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at),
    }
    return {"conditions": [condition]}


def pod_document(
    name: str = "pi-aaaaa",
    phase: str = "Running",
    *,
    job: str = "pi",
    exit_code: int | None = None,
    ended_at: datetime = NOON,
    message: str = "",
    index: int | None = None,
    restarts: int = 0,
    deleted: bool = False,
) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {"startedAt": stamp(NOON)}}
    if exit_code is not None:
        state = {
            "terminated": {
                "exitCode": exit_code,
                "reason": "Completed" if exit_code == 0 else "Error",
                "message": message,
                "startedAt": stamp(NOON),
                "finishedAt": stamp(ended_at),
            }
        }
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{name}",
        "creationTimestamp": stamp(NOON),
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "uid": f"uid-of-{job}",
                "controller": True,
            }
        ],
    }
    if index is not None:
        metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
    if deleted:
        metadata["deletionTimestamp"] = stamp(NOON)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "main", "restartCount": restarts, "state": state}],
        },
    }


def a_pod(name: str = "pi-aaaaa", phase: str = "Running", **parts: Any) -> Pod:
    return read_pod(msgspec.json.encode(pod_document(name, phase, **parts)))
