"""Operator settings of Job planning."""

from msgspec import Struct

from onejob.gates import FeatureGates
from onejob.planning.names import BUILT_IN_MANAGER, TRACKING


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
