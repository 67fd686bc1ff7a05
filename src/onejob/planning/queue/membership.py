"""Membership of Jobs in the queue: their state, order and priority, and the patches that change
them."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.meta import Meta, View

#: Annotation of a Job suspended by the queue: the revision at which it entered. A suspended Job
#: without it was suspended by a user or another component, and the queue ignores it.
QUEUED_ANNOTATION: Final = "onejob.dev/queued"

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"

QueueState: TypeAlias = Literal["absent", "waiting", "running"]


def queue_state(job: Job, *, has_pods: Callable[[Job], bool]) -> QueueState:
    """Return the Job's queue state: "absent" if it is finished, being deleted or suspended by
    others.

    `has_pods` reports whether the Job has unfinished Pods; a released Job has them slightly before
    its status shows it.
    """
    if job.finished or job.metadata.deleting:
        return "absent"
    if job.spec.suspend:
        return "waiting" if is_queued(job) else "absent"
    started = job.status.start_time is not None and not job.condition_is_true("Suspended")
    return "running" if started or has_pods(job) else "waiting"


def is_queued(job: Job) -> bool:
    """Return whether the Job is suspended by the queue."""
    return is_held(job, QUEUED_ANNOTATION)


def entered_at(job: Job) -> int:
    """Return the revision at which the Job entered the queue.

    Taken from its annotation or, for a new Job, from its own resourceVersion. A malformed
    annotation, written by another client, counts as having just entered.
    """
    text = job.metadata.annotations.get(QUEUED_ANNOTATION, "")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return job.metadata.revision


# --- priorities -----------------------------------------------------------------------------


class PriorityClass(View, frozen=True):
    """PriorityClass, reduced to the fields that the queue reads."""

    metadata: Meta = Meta()
    value: int = 0
    global_default: bool = False


read_priority_class = msgspec.json.Decoder(PriorityClass).decode

#: Built-in classes of every cluster, whether or not objects exist for them.
_SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class Priorities(Struct, frozen=True):
    """Priorities by class name, and the default for Jobs without a class."""

    by_class: Mapping[str, int]
    default: int = 0

    @classmethod
    def of(cls, classes: Iterable[PriorityClass]) -> "Priorities":
        """Return the priorities of these classes and of the built-in ones. If several classes are
        the global default, the last counts."""
        known = {**_SYSTEM_CLASSES}
        default = 0
        for one in classes:
            known[one.metadata.name] = one.value
            if one.global_default:
                default = one.value
        return cls(known, default)

    def of_job(self, job: Job) -> int:
        """Return the priority of the class its Pods name; an unknown class counts as none."""
        name = priority_class_of(job)
        return self.by_class.get(name, self.default) if name else self.default


class _TemplateSpec(View, frozen=True):
    priority_class_name: str = ""


class _Template(View, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


def priority_class_of(job: Job) -> str:
    """Return the priorityClassName of the Job's template; "" if it has none."""
    return _read_class(bytes(job.spec.template))


@lru_cache(maxsize=64)
def _read_class(template: bytes) -> str:
    """Return the priorityClassName in an encoded template, from a cache."""
    return msgspec.json.decode(template, type=_Template).spec.priority_class_name


# --- suspension by a controller ---------------------------------------------------------------
# An annotation distinguishes it from a suspension by a user or by another controller, so that a
# release reverts only what the same controller has done. Dependencies between Jobs use it, too.


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
    """Return a merge patch of suspension and annotations, with the UID as a precondition."""
    metadata: dict[str, Any] = {"uid": job.metadata.uid, "annotations": annotations}
    return msgspec.json.encode({"metadata": metadata, "spec": {"suspend": suspend}})


def queue_patch(job: Job, entered: int) -> bytes:
    """Return the patch that suspends a Job of the queue."""
    return hold_patch(job, QUEUED_ANNOTATION, str(entered))


def start_patch(job: Job) -> bytes:
    """Return the patch that resumes a Job of the queue."""
    return release_patch(job, QUEUED_ANNOTATION)
