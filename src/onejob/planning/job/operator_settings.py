"""Operator settings of Job planning, and the modes of a Job that follow from them.

Two modes are decided before anything else in a sync: whether this controller reconciles the Job
(`spec.managedBy`), and how it counts Pods.
"""

from collections.abc import Mapping

from msgspec import Struct

from onejob.gates import FeatureGates
from onejob.objects.job import Job
from onejob.planning.names import BUILT_IN_MANAGER, STARTED_BY_MARK, TRACKING, TRACKING_NAMES


class Settings(Struct, frozen=True):
    #: `spec.managedBy` of Jobs for this controller; the built-in name also takes Jobs without one.
    manager: str = BUILT_IN_MANAGER
    #: False: ignore `managedBy` and reconcile every Job.
    respect_managed_by: bool = True
    #: False: track no Job with finalizers; counters then follow the existing Pods.
    track_with_finalizers: bool = True
    #: True: use finalizers only for Jobs with the tracking annotation.
    tracking_needs_annotation: bool = False
    tracking_finalizer: str = TRACKING
    #: False: a suspended Job keeps its startTime.
    suspending_clears_start_time: bool = True
    #: True: emit JobStart and JobFinish in addition to upstream's Events.
    lifecycle_events: bool = True
    default_failed_pods_limit: int | None = None
    backoff_base_seconds: int = 10
    backoff_ceiling_seconds: int = 600
    #: Per sync. Keeps a status below about 20 kB, and one Job from starving the others.
    max_uncounted: int = 500
    max_pod_changes: int = 500

    @classmethod
    def under(
        cls,
        gates: FeatureGates,
        *,
        manager: str = BUILT_IN_MANAGER,
        tracking_finalizer: str = TRACKING,
        default_failed_pods_limit: int | None = None,
    ) -> "Settings":
        """Return the settings for the given feature gates."""
        return cls(
            manager=manager,
            respect_managed_by=gates.enabled("JobManagedBy"),
            track_with_finalizers=gates.enabled("JobTrackingWithFinalizers"),
            tracking_needs_annotation=gates.enabled("JobTrackingAnnotation"),
            tracking_finalizer=tracking_finalizer,
            suspending_clears_start_time=gates.enabled(
                "MutableSchedulingDirectivesForSuspendedJobs"
            ),
            lifecycle_events=gates.enabled("JobLifecycleEvents"),
            default_failed_pods_limit=default_failed_pods_limit,
        )


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
