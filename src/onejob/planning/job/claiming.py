"""Pod ownership: keep, adopt, release or leave each Pod that a Job may control."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.meta import Meta, OwnerReference
from onejob.objects.pod import Pod
from onejob.planning.job.operator_settings import Settings, marks_of_pods
from onejob.planning.names import TRACKING_NAMES
from onejob.wire.selectors import LabelMatcher, matcher_of

Claim: TypeAlias = Literal["keep", "adopt", "release", "leave"]

_WITHOUT_TRACKING = {"$deleteFromPrimitiveList/finalizers": TRACKING_NAMES}
#: Strategic merge patch that removes the tracking finalizers; a no-op for a Pod without them.
REMOVE_TRACKING_PATCH = msgspec.json.encode({"metadata": _WITHOUT_TRACKING})


def remove_tracking_patch(resource_version: str) -> bytes:
    """Return `REMOVE_TRACKING_PATCH` with a precondition: Conflict if the Pod has changed since
    `resource_version`."""
    metadata = {**_WITHOUT_TRACKING, "resourceVersion": resource_version}
    return msgspec.json.encode({"metadata": metadata})


class Claims(Struct, frozen=True):
    """Pods to keep, adopt and release before counting.

    Adoption requires a live read of the Job first (`may_adopt`). NotFound for a Pod is not an
    error, nor is Invalid for a release; any other error aborts the sync.
    """

    kept: tuple[Pod, ...] = ()
    adoptions: tuple[Pod, ...] = ()
    releases: tuple[Pod, ...] = ()


def plan_claims(job: Job, candidates: Iterable[Pod]) -> Claims:
    """Sort `candidates` into Pods to keep, adopt and release.

    `candidates` are Pods of the Job's namespace that the Job controls or that have no controller. A
    claim depends only on a Pod's labels and owner, so a caller that keeps a census needs to pass
    only Pods in which these changed.
    """
    matcher = job_matcher(job)
    kept: list[Pod] = []
    adoptions: list[Pod] = []
    releases: list[Pod] = []
    for pod in candidates:
        # Most candidates are new Pods of one template.
        if kept and _is_kept_alike(kept[-1].metadata, pod.metadata):
            kept.append(pod)
            continue
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


def _is_kept_alike(kept: Meta, metadata: Meta) -> bool:
    """Return whether a Pod is kept for the same reason as one that is kept."""
    return kept.labels == metadata.labels and kept.owner_references == metadata.owner_references


def claim_of(job: Job, matcher: LabelMatcher | None, pod: Pod) -> Claim:
    """Return whether the Job keeps, adopts, releases or leaves the Pod.

    A Pod that the Job controls is kept if it matches, else released unless the Job is being
    deleted. A Pod without a controller is adopted if it matches and neither object is being
    deleted. All others are left. `matcher` None matches nothing.
    """
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
    """Return whether the live Job still permits adoption.

    The cached Job may have been deleted, or replaced by another Job of the same name.
    """
    return (
        live is not None
        and live.metadata.uid == job.metadata.uid
        and live.metadata.deletion_timestamp is None
    )


def job_matcher(job: Job) -> LabelMatcher | None:
    """Return the matcher of the Job's selector; None if it has none, which matches nothing."""
    return None if job.spec.selector is None else matcher_of(job.spec.selector)


def owner_reference(job: Job) -> OwnerReference:
    """Return the reference of a Pod to the Job as its controller; it blocks the Job's foreground
    deletion."""
    return OwnerReference(
        api_version="batch/v1",
        kind="Job",
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def adoption_patch(job: Job, pod: Pod, settings: Settings, *, tracked: bool = True) -> bytes:
    """Return the strategic merge patch that adopts `pod`. Its UID guards against a namesake."""
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
    """Return the patch that removes the finalizer from this version of the Pod.

    A newer version may have been adopted; for it the patch fails with Conflict.
    """
    return msgspec.json.encode(
        {
            "metadata": {
                "resourceVersion": pod.metadata.resource_version,
                "$deleteFromPrimitiveList/finalizers": TRACKING_NAMES,
            }
        }
    )


def release_patch(job: Job, pod: Pod) -> bytes:
    """Return the strategic merge patch that removes the Job's reference and the tracking finalizers
    from the Pod."""
    return msgspec.json.encode(
        {
            "metadata": {
                "uid": pod.metadata.uid,
                "ownerReferences": [{"$patch": "delete", "uid": job.metadata.uid}],
                "$deleteFromPrimitiveList/finalizers": TRACKING_NAMES,
            }
        }
    )
