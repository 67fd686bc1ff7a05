"""Successes left uncounted by a Job controller that was killed.

Pure: documents in, documents out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from onejob.planning.job.indexes import parse_indexes, read_index
from onejob.planning.names import INDEX_ANNOTATION, TRACKING_NAMES

#: Exit code of the last attempt, where available, by Pod UID and container name.
ExitCodes: TypeAlias = Mapping[str, Mapping[str, int]]


def with_uncounted(
    job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], codes: ExitCodes
) -> dict[str, Any]:
    """Return the Job with all successes of its Pods counted.

    A Pod whose status records no end has succeeded if each of its containers exited with 0.
    """
    status = job.get("status", {})
    uncounted = status.get("uncountedTerminatedPods", {}).get("succeeded", ())
    succeeded = [
        pod["metadata"]
        for pod in pods
        if _is_tracked_by(job, pod)
        and pod["metadata"]["uid"] not in uncounted
        and _has_succeeded(pod, codes.get(pod["metadata"]["uid"], {}))
    ]
    changed = {"succeeded": status.get("succeeded", 0) + len(succeeded)}
    if job["spec"].get("completionMode") == "Indexed":
        found = (
            read_index(meta.get("annotations", {}).get(INDEX_ANNOTATION)) for meta in succeeded
        )
        completions = job["spec"].get("completions") or 0
        done = parse_indexes(status.get("completedIndexes", ""), completions)
        indexes = done.with_indexes(i for i in found if i is not None and i < completions)
        changed = {"succeeded": len(indexes), "completedIndexes": str(indexes)}
    return {**job, "status": {**status, **changed}}


def _is_tracked_by(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether the Job controls the Pod and the Pod holds the finalizer.

    A Pod loses it when it is counted.
    """
    owners = pod["metadata"].get("ownerReferences", ())
    owned = any(o.get("controller") and o["uid"] == job["metadata"]["uid"] for o in owners)
    return owned and not set(TRACKING_NAMES).isdisjoint(pod["metadata"].get("finalizers", ()))


def _has_succeeded(pod: Mapping[str, Any], codes: Mapping[str, int]) -> bool:
    phase: str = pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        return phase == "Succeeded"
    return all(codes.get(container["name"]) == 0 for container in pod["spec"]["containers"])
