"""Documents that scenarios create."""

from typing import Any

from tests.build import Document, a_job, a_pod, container, template

CONTAINER: Document = container()


def job(name: str = "j", *, restart: str = "Never", pod: Any = None, **spec: Any) -> Document:
    """Return a Job; `pod` are more fields of the Pod template's spec."""
    pods = template(restartPolicy=restart, **(pod or {}))
    return a_job(name, **{"template": pods, **spec})


def indexed(completions: int, parallelism: int | None = None, **spec: Any) -> dict[str, Any]:
    return job(
        completionMode="Indexed",
        completions=completions,
        parallelism=completions if parallelism is None else parallelism,
        **spec,
    )


def pod(name: str, **metadata: Any) -> Document:
    return a_pod(name, metadata=metadata)


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
