"""TTL after finish: expiry of finished Jobs and Pods.

Objects expire `ttlSecondsAfterFinished` after their end; a Job's TTL may depend on its outcome.
Ownership is independent of TTLs: owners do not keep an expired object, and a TTL does not keep an
object whose owners are gone.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.meta import Condition
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import finish_time
from onejob.planning.metadata_values import annotated_number
from onejob.planning.names import (
    FAILURE_TTL_ANNOTATION,
    POD_TTL_ANNOTATION,
    SUCCESS_TTL_ANNOTATION,
)

if TYPE_CHECKING:
    from onejob.objects.workflow import Workflow


class Expires(Struct, frozen=True):
    finished_at: datetime
    at: datetime

    def time_left(self, now: datetime) -> timedelta:
        """Return the remaining time; zero or negative once expired."""
        return self.at - now

    def is_skewed(self, now: datetime) -> bool:
        """Return whether the finish time is in the future, so that some clock is wrong.

        The TTL is measured from it nevertheless.
        """
        return self.finished_at > now


class NeverExpires(Struct, frozen=True):
    """The object is unfinished, has no TTL, or is being deleted already."""


class UnknownEnd(Struct, frozen=True):
    """The object has finished without recording a finish time."""

    error: str


Expiry: TypeAlias = Expires | NeverExpires | UnknownEnd

NEVER = NeverExpires()


def expiry_of(finished: Job | Pod) -> Expiry:
    return job_expiry(finished) if isinstance(finished, Job) else pod_expiry(finished)


def job_expiry(job: "Job | Workflow") -> Expiry:
    """Return the expiry of a Job, or of a workflow: their TTL and conditions are alike."""
    condition = job.finished_condition
    if condition is None or job.metadata.deleting:
        return NEVER
    ttl_seconds = annotated_number(job.metadata, _annotation_by_outcome(condition))
    if ttl_seconds is None:
        ttl_seconds = job.spec.ttl_seconds_after_finished
    if ttl_seconds is None:
        return NEVER
    if condition.last_transition_time is None:
        place = f"{job.metadata.namespace}/{job.metadata.name}"
        return UnknownEnd(f"unable to find the time when the Job {place} finished")
    return expires_after(condition.last_transition_time, ttl_seconds)


def ttl_source(job: Job) -> str:
    """Return the field or annotation that determines how long a finished Job is kept."""
    condition = job.finished_condition
    if condition is not None:
        annotation = _annotation_by_outcome(condition)
        if annotated_number(job.metadata, annotation) is not None:
            return annotation
    return "ttlSecondsAfterFinished"


def _annotation_by_outcome(condition: Condition) -> str:
    return SUCCESS_TTL_ANNOTATION if condition.type == "Complete" else FAILURE_TTL_ANNOTATION


def pod_expiry(pod: Pod) -> Expiry:
    """Return when a Pod expires."""
    # Inlined instead of `terminal`: called for every change of every Pod.
    if pod.status.phase not in ("Succeeded", "Failed"):
        return NEVER
    if pod.metadata.deletion_timestamp is not None:
        return NEVER
    ttl_seconds = pod.spec.ttl_seconds_after_finished
    if ttl_seconds is None and POD_TTL_ANNOTATION in pod.metadata.annotations:
        ttl_seconds = annotated_number(pod.metadata, POD_TTL_ANNOTATION)
    if ttl_seconds is None:
        return NEVER
    ends = [
        status.state.terminated.finished_at
        for status in pod.status.container_statuses
        if status.state.terminated and status.state.terminated.finished_at
    ]
    return expires_after(max(ends) if ends else finish_time(pod), ttl_seconds)


def time_left(finished: Job | Pod, now: datetime) -> timedelta | None:
    """Return the remaining time; None if no TTL applies."""
    expiry = expiry_of(finished)
    return expiry.time_left(now) if isinstance(expiry, Expires) else None


def expires_after(finished_at: datetime, ttl_seconds: int) -> Expires | NeverExpires:
    """Return the expiry after a TTL; never, if it is beyond the last representable year."""
    try:
        return Expires(finished_at, finished_at + timedelta(seconds=ttl_seconds))
    except OverflowError:
        # The expiry is beyond the last representable year. Clients with write access to the status
        # can store any finish time.
        return NEVER
