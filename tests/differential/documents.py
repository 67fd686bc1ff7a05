"""Documents that scenarios create."""

from typing import Any

CONTAINER: dict[str, Any] = {"name": "c", "image": "busybox", "command": ["true"]}


def job(name: str = "j", *, restart: str = "Never", pod: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a Job; `pod` are more fields of the Pod template's spec."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {"restartPolicy": restart, "containers": [CONTAINER], **(pod or {})}
            },
            **spec,
        },
    }


def indexed(completions: int, parallelism: int | None = None, **spec: Any) -> dict[str, Any]:
    return job(
        completionMode="Indexed",
        completions=completions,
        parallelism=completions if parallelism is None else parallelism,
        **spec,
    )


def cronjob(name: str = "c", schedule: str = "* * * * *", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job()["spec"]}, **spec},
    }


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"restartPolicy": "Never", "containers": [CONTAINER]},
    }


def fail_job(code: int) -> dict[str, Any]:
    """Return a rule of a Pod failure policy."""
    return {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [code]}}


def disrupted(now: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "preempted",
            "lastTransitionTime": now,
        }
    ]
