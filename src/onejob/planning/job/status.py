"""Job status as a JSON merge patch of the stored document."""

from typing import Any

import msgspec

from onejob.objects.job import Job, JobStatus


def status_patch(job: Job, status: JobStatus) -> bytes:
    """Return a JSON merge patch for the status subresource that changes `job.status` to `status`.

    Only differing fields are included, so fields unknown to the typed view survive. Conditions are
    a list and are replaced as a whole, including unknown types. The resourceVersion makes the
    server reject the patch if the Job has changed meanwhile.
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
    """Return the Job after our write of `status`: the base of the sync's next write."""
    metadata = msgspec.structs.replace(job.metadata, resource_version=resource_version)
    return msgspec.structs.replace(job, metadata=metadata, status=status)


def status_document(status: JobStatus) -> dict[str, Any]:
    """Return the status as it is stored.

    Zero counters are omitted, but `ready`, `terminating` and an empty `failedIndexes` or
    `uncountedTerminatedPods` are kept once they are set.
    """
    document: dict[str, Any] = msgspec.to_builtins(status)
    return document


def _whole_lists(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return a patch that replaces both lists.

    A merge patch recurses into objects, so a list that became empty must be set to null explicitly.
    """
    if after is None:
        return None
    return {**dict.fromkeys(before or {}), **after}
