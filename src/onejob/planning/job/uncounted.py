"""Successes that a Job controller which was killed did not get to count.

Pure: documents in, documents out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from onejob.planning.job.indexes import parse_indexes, read_index
from onejob.planning.names import INDEX_ANNOTATION, TRACKING_NAMES

#: By UID of a Pod and name of a container, the exit code of the last attempt, if it is known.
ExitCodes: TypeAlias = Mapping[str, Mapping[str, int]]


def with_uncounted(
    job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], codes: ExitCodes
) -> dict[str, Any]:
    """The Job as it would be if all successes of its Pods had been counted. A Pod whose status
    records no end has succeeded if each of its containers exited with 0."""
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
    """Whether the Pod is the Job's and holds the finalizer, which it loses when it is counted."""
    owners = pod["metadata"].get("ownerReferences", ())
    owned = any(o.get("controller") and o["uid"] == job["metadata"]["uid"] for o in owners)
    return owned and not set(TRACKING_NAMES).isdisjoint(pod["metadata"].get("finalizers", ()))


def _has_succeeded(pod: Mapping[str, Any], codes: Mapping[str, int]) -> bool:
    phase: str = pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        return phase == "Succeeded"
    return all(codes.get(container["name"]) == 0 for container in pod["spec"]["containers"])
