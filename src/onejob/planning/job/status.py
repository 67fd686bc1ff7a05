"""A planned status as a patch of the stored document."""

from typing import Any

import msgspec

from onejob.objects.job import Job, JobStatus


def status_patch(job: Job, status: JobStatus) -> bytes:
    """A JSON merge patch for the status subresource that turns the status of `job`, as it was
    read, into `status`.

    Only what differs is named, so fields that a view does not know survive; conditions are a
    list and go whole, those of types unknown here included. The resourceVersion makes the
    server refuse it if the Job has changed meanwhile.
    """
    before = status_document(job.status)
    after = status_document(status)
    changes: dict[str, Any] = {
        name: value for name, value in after.items() if before.get(name) != value
    }
    changes.update((name, None) for name in before if name not in after)
    if "uncountedTerminatedPods" in changes:
        changes["uncountedTerminatedPods"] = _whole_lists(
            before.get("uncountedTerminatedPods"), after.get("uncountedTerminatedPods")
        )
    return msgspec.json.encode(
        {"metadata": {"resourceVersion": job.metadata.resource_version}, "status": changes}
    )


def with_status(job: Job, status: JobStatus, resource_version: str) -> Job:
    """The Job as our write of `status` left it: what the next write of a sync builds upon."""
    metadata = msgspec.structs.replace(job.metadata, resource_version=resource_version)
    return msgspec.structs.replace(job, metadata=metadata, status=status)


def status_document(status: JobStatus) -> dict[str, Any]:
    """The status as it is stored: zero counters are absent, but `ready` and `terminating` and
    an empty `failedIndexes` or `uncountedTerminatedPods` are there once they are set."""
    document: dict[str, Any] = msgspec.to_builtins(status)
    return document


def _whole_lists(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> dict[str, Any] | None:
    """A merge patch descends into objects, so a list that became empty must be named as gone."""
    if after is None:
        return None
    return {**dict.fromkeys(before or {}), **after}
