"""Suspension of a Job by a controller: `spec.suspend` together with an annotation of its own.

The annotation distinguishes the suspension from one by a user or by another controller, so that a
release reverts only what the same controller has done.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from onejob.objects.job import Job


def is_held(job: Job, annotation: str) -> bool:
    """Return whether the Job is suspended by the controller that uses this annotation."""
    return job.spec.suspend and annotation in job.metadata.annotations


def hold_patch(
    job: Job, annotation: str, value: str, others: Mapping[str, str | None] | None = None
) -> bytes:
    """Return a merge patch that suspends a Job; rejected if its UID has changed.

    `others` are further annotations to write, or to remove if None.
    """
    return _patch(job, suspend=True, annotations={annotation: value, **(others or {})})


def release_patch(
    job: Job, annotation: str, others: Mapping[str, str | None] | None = None
) -> bytes:
    """Return a merge patch that reverts `hold_patch`."""
    return _patch(job, suspend=False, annotations={annotation: None, **(others or {})})


def _patch(job: Job, *, suspend: bool, annotations: Mapping[str, str | None]) -> bytes:
    metadata: dict[str, Any] = {"uid": job.metadata.uid, "annotations": annotations}
    return msgspec.json.encode({"metadata": metadata, "spec": {"suspend": suspend}})
