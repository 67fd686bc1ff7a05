"""Random manifests: Jobs of all modes, CronJobs, bare Pods and namespaces."""

from random import Random
from typing import Any

FOREIGN_FINALIZER = "example.com/hold"
#: Exit codes for which a Job may have a rule, and one for which none has.
EXIT_CODES = (1, 42, 43, 44)
#: The `managedBy` of Jobs that the control plane must leave alone.
OTHER_MANAGER = "example.com/manager"
QUEUE = "gpu"
#: Name prefix of Pods whose programs run until they are stopped.
SERVICE = "service"


def job(rng: Random, name: str) -> dict[str, Any]:
    """Return a random Job."""
    annotations = {"onejob.dev/backoff-seconds": rng.choice(("0", "1", "10"))}
    for outcome in ("success", "failure"):
        if rng.random() < 0.1:
            seconds = rng.choice(("0", "5", "60"))
            annotations[f"onejob.dev/ttl-seconds-after-{outcome}"] = seconds
    if rng.random() < 0.2:
        annotations["onejob.dev/oom-memory-factor"] = "2"
    metadata: dict[str, Any] = {"name": name, "annotations": annotations}
    if rng.random() < 0.5:
        metadata["labels"] = {"onejob.dev/queue": QUEUE}
    if rng.random() < 0.1:
        metadata["finalizers"] = [FOREIGN_FINALIZER]
    spec = job_spec(rng)
    if rng.random() < 0.05:
        spec["managedBy"] = OTHER_MANAGER
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def job_spec(rng: Random) -> dict[str, Any]:
    """Return a random spec of a Job."""
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
    if rng.random() < 0.4 and never:
        spec["podFailurePolicy"] = _failure_policy(rng, "backoffLimitPerIndex" in spec)
        spec["podReplacementPolicy"] = "Failed"
    if rng.random() < 0.1:
        spec["activeDeadlineSeconds"] = rng.choice((1, 5, 20, 100))
    if rng.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = rng.choice((0, 5, 60))
    if rng.random() < 0.1:
        spec["suspend"] = True
    return spec


def _make_indexed(rng: Random, spec: dict[str, Any], completions: int) -> None:
    spec["completionMode"] = "Indexed"
    if rng.random() < 0.5 and spec["template"]["spec"]["restartPolicy"] == "Never":
        spec |= {"backoffLimitPerIndex": rng.randint(0, 2), "backoffLimit": 1000}
        if rng.random() < 0.5:
            spec["maxFailedIndexes"] = min(completions, rng.choice((0, 0, 1, 2)))
    if rng.random() < 0.3:
        rules = [_success_rule(rng, completions) for _ in range(rng.randint(1, 2))]
        spec["successPolicy"] = {"rules": rules}


def _success_rule(rng: Random, completions: int) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"succeededCount": rng.randint(1, completions)}
    first = rng.randrange(completions)
    last = rng.randrange(first, completions)
    rule: dict[str, Any] = {"succeededIndexes": f"{first}-{last}" if last > first else f"{first}"}
    if rng.random() < 0.5:
        rule["succeededCount"] = rng.randint(1, last - first + 1)
    return rule


def _failure_policy(rng: Random, per_index: bool) -> dict[str, Any]:
    """Return a policy with rules of any actions, in any order."""
    actions = ["Ignore", "FailJob", "Count", *(["FailIndex"] if per_index else [])]
    rules = [_failure_rule(rng, rng.choice(actions)) for _ in range(rng.randint(1, 4))]
    return {"rules": rules}


def _failure_rule(rng: Random, action: str) -> dict[str, Any]:
    if rng.random() < 0.2:
        return {"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]}
    values = sorted(rng.sample(EXIT_CODES[1:], rng.randint(1, 2)))
    operator = "In"
    if action != "Ignore" and rng.random() < 0.1:
        # Ignore must not use NotIn: a stopped Pod has none of these codes and would be ignored
        # forever.
        operator = "NotIn"
    codes: dict[str, Any] = {"operator": operator, "values": values}
    if rng.random() < 0.2:
        codes["containerName"] = "main"
    return {"action": action, "onExitCodes": codes}


def pod_template(rng: Random) -> dict[str, Any]:
    """Return a random Pod template."""
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
    """Return a random CronJob."""
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
    """Return a random bare Pod."""
    template = pod_template(rng)
    metadata: dict[str, Any] = {"name": name}
    if rng.random() < 0.2:
        metadata["finalizers"] = [FOREIGN_FINALIZER]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def never_ends(pod: str) -> bool:
    """Return whether the programs of the Pod with this name run until they are stopped."""
    return pod.startswith(f"{SERVICE}-")


def namespace(name: str) -> dict[str, Any]:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
