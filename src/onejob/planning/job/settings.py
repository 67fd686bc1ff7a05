"""What an operator may set about how Jobs are planned."""

from msgspec import Struct

from onejob.gates import FeatureGates
from onejob.planning.names import BUILT_IN_MANAGER, TRACKING


class Settings(Struct, frozen=True):
    #: The name Jobs give in `spec.managedBy` to be ours; the built-in one also takes all others.
    manager: str = BUILT_IN_MANAGER
    #: Off: `managedBy` is not looked at and every Job is ours.
    respect_managed_by: bool = True
    #: Off: no Job is tracked with finalizers; counters then follow the Pods that exist.
    track_with_finalizers: bool = True
    #: On: only Jobs that carry the tracking annotation are tracked with finalizers.
    tracking_needs_annotation: bool = False
    tracking_finalizer: str = TRACKING
    #: Off: a suspended Job keeps its startTime.
    suspending_clears_start_time: bool = True
    #: Tell JobStart and JobFinish beside today's events.
    lifecycle_events: bool = True
    default_failed_pods_limit: int | None = None
    backoff_base_seconds: int = 10
    backoff_ceiling_seconds: int = 600
    #: Keeps a status below about 20 kB, and one Job from starving the others.
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
