"""Which Pods belong to a Job: keep, adopt, release or leave alone."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.meta import OwnerReference
from onejob.objects.pod import Pod
from onejob.planning.job.managing import marks_of_pods
from onejob.planning.job.settings import Settings
from onejob.planning.names import TRACKING_NAMES
from onejob.wire.selectors import LabelMatcher, matcher_of

Claim: TypeAlias = Literal["keep", "adopt", "release", "leave"]

_WITHOUT_TRACKING = {"$deleteFromPrimitiveList/finalizers": TRACKING_NAMES}
#: A strategic merge patch; taking off a name that is absent changes nothing.
REMOVE_TRACKING_PATCH = msgspec.json.encode({"metadata": _WITHOUT_TRACKING})


def remove_tracking_if_unchanged(resource_version: str) -> bytes:
    """The same, refused with Conflict if the Pod has changed since."""
    metadata = {**_WITHOUT_TRACKING, "resourceVersion": resource_version}
    return msgspec.json.encode({"metadata": metadata})


class Claims(Struct, frozen=True):
    """What to do before Pods are counted.

    Adoptions need a live look at the Job first (`may_adopt`). A Pod that is not found is no
    error, nor is a release found invalid; any other error aborts the sync.
    """

    kept: tuple[Pod, ...] = ()
    adoptions: tuple[Pod, ...] = ()
    releases: tuple[Pod, ...] = ()


def plan_claims(job: Job, candidates: Iterable[Pod]) -> Claims:
    """`candidates`: Pods of the Job's namespace that it controls or that nobody controls.

    Claims depend on nothing but a Pod's labels and owner, so a caller that keeps a census need
    only hand in Pods in which these changed.
    """
    matcher = job_matcher(job)
    kept: list[Pod] = []
    adoptions: list[Pod] = []
    releases: list[Pod] = []
    for pod in candidates:
        match claim_of(job, matcher, pod):
            case "keep":
                kept.append(pod)
            case "adopt":
                adoptions.append(pod)
            case "release":
                releases.append(pod)
            case "leave":
                pass
    return Claims(tuple(kept), tuple(adoptions), tuple(releases))


def claim_of(job: Job, matcher: LabelMatcher | None, pod: Pod) -> Claim:
    controller = pod.metadata.controller_ref
    matches = matcher is not None and matcher.matches(pod.metadata.labels)
    if controller is not None:
        if controller.uid != job.metadata.uid:
            return "leave"
        if matches:
            return "keep"
        return "leave" if job.metadata.deleting else "release"
    if not matches or pod.metadata.deleting or job.metadata.deleting:
        return "leave"
    return "adopt" if pod.metadata.namespace == job.metadata.namespace else "leave"


def may_adopt(job: Job, live: Job | None) -> bool:
    """The cached Job may be gone or replaced by a namesake: look before adopting."""
    return (
        live is not None
        and live.metadata.uid == job.metadata.uid
        and live.metadata.deletion_timestamp is None
    )


def job_matcher(job: Job) -> LabelMatcher | None:
    """None: the Job has no selector, which matches nothing."""
    return None if job.spec.selector is None else matcher_of(job.spec.selector)


def owner_reference(job: Job) -> OwnerReference:
    return OwnerReference(
        api_version="batch/v1",
        kind="Job",
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def adoption_patch(job: Job, pod: Pod, settings: Settings, *, tracked: bool = True) -> bytes:
    """A strategic merge patch; the UID keeps it from hitting a namesake."""
    metadata: dict[str, object] = {
        "ownerReferences": [owner_reference(job)],
        "uid": pod.metadata.uid,
    }
    if tracked:
        metadata["finalizers"] = [settings.tracking_finalizer]
        if marks := marks_of_pods(job, settings):
            metadata["annotations"] = marks
    return msgspec.json.encode({"metadata": metadata})


def release_finalizer_patch(pod: Pod) -> bytes:
    """Takes the finalizer off a Pod that is just as we know it, for if it has changed since,
    somebody may have adopted it."""
    return msgspec.json.encode(
        {
            "metadata": {
                "resourceVersion": pod.metadata.resource_version,
                "$deleteFromPrimitiveList/finalizers": TRACKING_NAMES,
            }
        }
    )


def release_patch(job: Job, pod: Pod) -> bytes:
    return msgspec.json.encode(
        {
            "metadata": {
                "uid": pod.metadata.uid,
                "ownerReferences": [{"$patch": "delete", "uid": job.metadata.uid}],
                "$deleteFromPrimitiveList/finalizers": TRACKING_NAMES,
            }
        }
    )
