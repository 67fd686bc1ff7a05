"""What a Job's document says of its part in the queue."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.meta import Meta, View

#: On a Job that the queue has suspended: when it entered the queue, as a revision. Without it a
#: suspended Job was suspended by somebody else, and is none of the queue's business.
QUEUED_ANNOTATION: Final = "onejob.dev/queued"

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"

Standing: TypeAlias = Literal["absent", "waiting", "running"]


def standing(job: Job, *, has_pods: Callable[[Job], bool]) -> Standing:
    """`has_pods` says whether it has Pods that have not ended. A Job that was let start has them a
    moment before its status says so."""
    if job.finished or job.metadata.deleting:
        return "absent"
    if job.spec.suspend:
        return "waiting" if is_queued(job) else "absent"
    started = job.status.start_time is not None and not job.condition_is_true("Suspended")
    return "running" if started or has_pods(job) else "waiting"


def is_queued(job: Job) -> bool:
    return job.spec.suspend and QUEUED_ANNOTATION in job.metadata.annotations


def entered_at(job: Job) -> int:
    """The revision at which it entered the queue, by its annotation or, if it has just come, its
    own. A value that somebody else wrote and that is no number counts as just now."""
    text = job.metadata.annotations.get(QUEUED_ANNOTATION, "")
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return job.metadata.revision


# --- priorities -----------------------------------------------------------------------------


class PriorityClass(View, frozen=True):
    """A PriorityClass, as far as the queue reads it."""

    metadata: Meta = Meta()
    value: int = 0
    global_default: bool = False


read_priority_class = msgspec.json.Decoder(PriorityClass).decode

#: Those that every cluster has, whether or not there are objects for them.
_SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class Priorities(Struct, frozen=True):
    """Of the classes by name, and of Jobs that name none."""

    by_class: Mapping[str, int]
    default: int = 0

    @classmethod
    def of(cls, classes: Iterable[PriorityClass]) -> "Priorities":
        known = {**_SYSTEM_CLASSES}
        default = 0
        for one in classes:
            known[one.metadata.name] = one.value
            if one.global_default:
                default = one.value
        return cls(known, default)

    def of_job(self, job: Job) -> int:
        """By the class that its Pods name; a class that there is not counts as none."""
        name = priority_class_of(job)
        return self.by_class.get(name, self.default) if name else self.default


class _TemplateSpec(View, frozen=True):
    priority_class_name: str = ""


class _Template(View, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


def priority_class_of(job: Job) -> str:
    return _read_class(bytes(job.spec.template))


@lru_cache(maxsize=64)
def _read_class(template: bytes) -> str:
    return msgspec.json.decode(template, type=_Template).spec.priority_class_name


# --- patches --------------------------------------------------------------------------------


def hold_patch(job: Job, entered: int) -> bytes:
    """Suspend a Job that has to wait. A merge patch, refused if the Job is another one by now."""
    return _patch(job, suspend=True, annotation=str(entered))


def release_patch(job: Job) -> bytes:
    return _patch(job, suspend=False, annotation=None)


def _patch(job: Job, *, suspend: bool, annotation: str | None) -> bytes:
    metadata: dict[str, Any] = {
        "uid": job.metadata.uid,
        "annotations": {QUEUED_ANNOTATION: annotation},
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {"suspend": suspend}})
