"""Random workflows of up to seven small Jobs."""

from random import Random
from typing import Any

from sim import workloads

_CONDITIONS = ("Complete", "Complete", "Complete", "Failed", "Finished")


def workflow(rng: Random, name: str) -> dict[str, Any]:
    """Return a random Workflow. Its edges point backwards, but the tasks are in any order."""
    names = [f"t{number}" for number in range(rng.randint(1, 6))]
    tasks = [_task(rng, each, names[:number]) for number, each in enumerate(names)]
    rng.shuffle(tasks)
    spec: dict[str, Any] = {"tasks": tasks}
    if rng.random() < 0.4:
        spec["finally"] = [_task(rng, f"f{number}", []) for number in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        spec["parallelism"] = rng.randint(1, 2)
    if rng.random() < 0.15:
        spec["activeDeadlineSeconds"] = rng.choice((5, 20, 60))
    if rng.random() < 0.1:
        spec["suspend"] = True
    return {
        "apiVersion": "onejob.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": spec,
    }


def _task(rng: Random, name: str, before: list[str]) -> dict[str, Any]:
    edges = [
        {"task": other, "condition": rng.choice(_CONDITIONS)}
        for other in before
        if rng.random() < 0.4
    ]
    task: dict[str, Any] = {"name": name, "template": {"spec": _job_spec(rng)}}
    if edges:
        task["dependsOn"] = edges
    if rng.random() < 0.15:
        task["when"] = "false"
    elif edges and rng.random() < 0.2:
        task["when"] = f"tasks.{edges[0]['task']}.state != 'Skipped'"
    return task


def _job_spec(rng: Random) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "completions": rng.choice((1, 1, 2)),
        "parallelism": 2,
        "backoffLimit": rng.choice((0, 0, 3)),
        "template": workloads.pod_template(rng),
    }
    if rng.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = rng.choice((0, 5))
    if rng.random() < 0.1:
        spec["suspend"] = True
    return spec
