"""Whose Job it is, and how its Pods are counted: settled before anything else."""

from collections.abc import Mapping

from onejob.objects.job import Job
from onejob.planning.job.settings import Settings
from onejob.planning.names import BUILT_IN_MANAGER, STARTED_BY_MARK, TRACKING_NAMES


def is_ours(job: Job, settings: Settings) -> bool:
    """Whether this controller is the one that `spec.managedBy` asks for."""
    return not settings.respect_managed_by or not is_anothers(job, settings)


def is_anothers(job: Job, settings: Settings) -> bool:
    """Whether `spec.managedBy` asks for another controller, be it looked at or not."""
    return (job.spec.managed_by or BUILT_IN_MANAGER) != settings.manager


def marks_of_pods(job: Job, settings: Settings) -> Mapping[str, str]:
    """Annotations that distinguish our Pods of another controller's Job from that controller's."""
    return {STARTED_BY_MARK: settings.manager} if is_anothers(job, settings) else {}


def tracks_with_finalizers(job: Job, settings: Settings) -> bool:
    """Whether the Job's Pods are counted by finalizers, or the old way, by existence."""
    if not settings.track_with_finalizers:
        return False
    return not settings.tracking_needs_annotation or has_tracking_annotation(job)


def has_tracking_annotation(job: Job) -> bool:
    return any(name in job.metadata.annotations for name in TRACKING_NAMES)
