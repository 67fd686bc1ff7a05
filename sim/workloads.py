"""What people ask for: Jobs of all modes, CronJobs, bare Pods, namespaces."""

from random import Random
from typing import Any

FOREIGN_FINALIZER = "example.com/hold"
#: Exit codes for which a Job may have a rule.
IGNORED_EXIT, FATAL_EXIT = 42, 43
#: How the names of Pods begin whose programs run until they are stopped.
SERVICE = "service"

_FAILURE_POLICY = {
    "rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [IGNORED_EXIT]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FATAL_EXIT]}},
    ]
}


def job(rng: Random, name: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "annotations": {"onejob.dev/backoff-seconds": rng.choice(("0", "1", "10"))},
    }
    if rng.random() < 0.1:
        metadata["finalizers"] = [FOREIGN_FINALIZER]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": job_spec(rng),
    }


def job_spec(rng: Random) -> dict[str, Any]:
    completions = rng.randint(1, 8)
    spec: dict[str, Any] = {
        "completions": completions,
        "parallelism": rng.randint(1, 5),
        "backoffLimit": rng.choice((0, 3, 1000)),
        "template": pod_template(rng),
    }
    if rng.random() < 0.5:
        _make_indexed(rng, spec, completions)
    elif rng.random() < 0.1:
        del spec["completions"]  # A work queue: one success ends it.
    if rng.random() < 0.3:
        spec["podReplacementPolicy"] = "Failed"
    never = spec["template"]["spec"]["restartPolicy"] == "Never"
    if rng.random() < 0.3 and never:
        spec |= {"podFailurePolicy": _FAILURE_POLICY, "podReplacementPolicy": "Failed"}
    if rng.random() < 0.1:
        spec["activeDeadlineSeconds"] = rng.randint(1, 200)
    if rng.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = rng.choice((0, 5, 60))
    if rng.random() < 0.1:
        spec["suspend"] = True
    return spec


def _make_indexed(rng: Random, spec: dict[str, Any], completions: int) -> None:
    spec["completionMode"] = "Indexed"
    if rng.random() < 0.5 and spec["template"]["spec"]["restartPolicy"] == "Never":
        spec |= {"backoffLimitPerIndex": rng.randint(0, 2), "backoffLimit": 1000}
        if rng.random() < 0.3:
            spec["maxFailedIndexes"] = rng.randint(0, completions)
    if rng.random() < 0.3:
        spec["successPolicy"] = {"rules": [{"succeededCount": rng.randint(1, completions)}]}


def pod_template(rng: Random) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "x", "command": ["true"]}
    if rng.random() < 0.5:
        container["resources"] = {"requests": {"cpu": rng.choice(("100m", "1"))}}
    containers = [container]
    if rng.random() < 0.1:
        containers.append({"name": "second", "image": "x", "command": ["true"]})
    return {
        "spec": {
            "restartPolicy": rng.choice(("Never", "Never", "Never", "OnFailure")),
            "containers": containers,
            "terminationGracePeriodSeconds": rng.choice((0, 2, 30)),
        }
    }


def cronjob(rng: Random, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": rng.choice(("Allow", "Forbid", "Replace")),
            "successfulJobsHistoryLimit": rng.randint(0, 2),
            "failedJobsHistoryLimit": rng.randint(0, 2),
            "jobTemplate": {"spec": job_spec(rng) | {"suspend": False}},
        },
    }


def pod(rng: Random, name: str) -> dict[str, Any]:
    template = pod_template(rng)
    metadata: dict[str, Any] = {"name": name}
    if rng.random() < 0.2:
        metadata["finalizers"] = [FOREIGN_FINALIZER]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def never_ends(pod: str) -> bool:
    """Whether the programs of the Pod with this name run until they are stopped."""
    return pod.startswith(f"{SERVICE}-")


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
