"""spec.managedBy and tracking mode.

Both are decided before anything else in a sync: whether this controller reconciles a Job, and how
it counts Pods.
"""

from collections.abc import Mapping

from onejob.objects.job import Job
from onejob.planning.job.operator_settings import Settings
from onejob.planning.names import BUILT_IN_MANAGER, STARTED_BY_MARK, TRACKING_NAMES


def is_ours(job: Job, settings: Settings) -> bool:
    """Return whether this controller reconciles the Job, by `spec.managedBy` if respected."""
    return not settings.respect_managed_by or not is_anothers(job, settings)


def is_anothers(job: Job, settings: Settings) -> bool:
    """Return whether `spec.managedBy` names another controller, even if the setting is ignored."""
    return (job.spec.managed_by or BUILT_IN_MANAGER) != settings.manager


def marks_of_pods(job: Job, settings: Settings) -> Mapping[str, str]:
    """Return annotations that mark Pods we create for another controller's Job, else none."""
    return {STARTED_BY_MARK: settings.manager} if is_anothers(job, settings) else {}


def tracks_with_finalizers(job: Job, settings: Settings) -> bool:
    """Return whether Pods are counted by finalizers, rather than by existence (legacy)."""
    if not settings.track_with_finalizers:
        return False
    return not settings.tracking_needs_annotation or has_tracking_annotation(job)


def has_tracking_annotation(job: Job) -> bool:
    return any(name in job.metadata.annotations for name in TRACKING_NAMES)
