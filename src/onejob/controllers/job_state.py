"""Per-Job state of the Job controller between syncs, updated by the Pod informer.

Because Pods are updated as they change, rather than listed in each sync, the cost of a sync depends
on the number of changes. The state need not survive a restart: it is rebuilt from the caches.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.backoff import BackoffRecord, FinishHistory
from onejob.planning.job.counting import JobPods
from onejob.planning.job.pod_facts import PodEnd, end_of, finish_time, is_tracked
from onejob.planning.job.pod_template import PodFactory

#: Priority with which a change requires a sync of its Job.
Urgency: TypeAlias = Literal["at once", "soon", "not at all"]


class JobState(Struct):
    census: JobPods = field(default_factory=JobPods)
    #: UIDs of Pods that the server reported as not found while the cache still contains them. They
    #: are counted already, and would be counted again in every sync.
    gone: set[str] = field(default_factory=set)
    #: UIDs of Pods that are new or whose labels changed: they may have to be released.
    unclaimed: set[str] = field(default_factory=set)
    #: None before the first sync, which rebuilds it from `past_ends`.
    backoff: BackoffRecord | None = None
    past_ends: FinishHistory = field(default_factory=FinishHistory)
    future_times: FutureTimes = NO_FUTURE_TIMES
    #: Whether a terminal status was written that the cache does not include yet.
    finish_pending: bool = False
    #: Newest revisions written for the Job and for its Pods: do not plan on older caches.
    job_revision: int = 0
    pod_revision: int = 0
    #: Whether to list the Pods before the next plan. The server may have Pods that the census
    #: lacks: the response to a write was lost, or ended Pods matter now that were not kept before.
    needs_relist: bool = False
    #: Number of Pods to create in one batch: doubled after each success.
    create_batch_size: int = 1
    #: Builds the Job's Pods. Stored with its cache key: the generation of the Job, and whether its
    #: Pods are tracked.
    pod_factory: tuple[tuple[int, bool], PodFactory] | None = None

    def writes_lost(self) -> None:
        """Reset everything derived from the last writes, which were rolled back."""
        self.job_revision = self.pod_revision = 0
        self.finish_pending = False
        self.backoff = None
        self.needs_relist = True

    def put(self, pod: Pod) -> bool:
        """Add or update a Pod.

        Return whether a sync would now act differently or report a different status.
        """
        return self._put(pod, active=pod.active)

    def _put(self, pod: Pod, *, active: bool) -> bool:
        uid, census = pod.metadata.uid, self.census
        if uid in self.gone:
            return False
        known = census.get(uid)
        relabelled = known is None or known.metadata.labels != pod.metadata.labels
        if relabelled:
            self.unclaimed.add(uid)
        if relabelled or not active:
            census.put(pod)
            return True
        before = uid in census.ready, census.restarts_of(uid)
        census.put(pod)
        return before != (uid in census.ready, census.restarts_of(uid))

    def take(self, pod: Pod, end: PodEnd, *, keep_accounted: bool) -> Urgency:
        """Update a Pod of the Job; `end` is how the Pod has ended.

        An ended and counted Pod is kept only if the Job may still act on it. Return how soon the
        Job is to be synced.
        """
        if end == "accounted":
            self.record_end(pod)
            if not keep_accounted:
                self.drop(pod.metadata.uid)
                return "soon"
        active = end == "none" and pod.metadata.deletion_timestamp is None
        if not self._put(pod, active=active):
            return "not at all"
        # An active Pod only affects the counts in the status.
        return "soon" if active else "at once"

    def record_end(self, pod: Pod) -> None:
        """Record a Pod that has ended and is counted.

        It matters only for the back-off of the next Pod, and only until that back-off is computed.
        """
        if self.backoff is None:
            succeeded = pod.status.phase == "Succeeded"
            self.past_ends.note(pod.metadata.uid, finish_time(pod), succeeded=succeeded)

    def recall_backoff(self, job: Job) -> BackoffRecord:
        """Return the Job's failures, including those before this process started."""
        if self.backoff is None:
            uncounted = job.status.uncounted_terminated_pods
            for uid in (*uncounted.succeeded, *uncounted.failed) if uncounted else ():
                # Already in the status, so not new to the plan, but its finalizer is not removed
                # yet.
                if (pod := self.census.get(uid)) is not None and is_tracked(pod):
                    self.record_end(pod)
            self.backoff = self.past_ends.record(job)
            self.past_ends = FinishHistory()
        return self.backoff

    def drop(self, uid: str) -> None:
        """Remove a Pod that the cache no longer contains, or that no longer belongs to the Job."""
        self.census.remove(uid)
        if self.unclaimed:
            self.unclaimed.discard(uid)
        if self.gone:
            self.gone.discard(uid)

    def drop_before_cache(self, uid: str) -> None:
        """Remove a Pod that no longer exists although the cache may still contain it."""
        if self.census.get(uid) is not None:
            self.drop(uid)
            self.gone.add(uid)


class JobStates:
    """States by Job UID: a later Job of the same name starts with an empty one."""

    def __init__(self) -> None:
        self._by_uid: dict[str, JobState] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        """Return whether there is state of the Job with this UID."""
        return uid in self._by_uid

    def of(self, uid: str) -> JobState:
        """Return the state of a Job, creating it on first use."""
        state = self._by_uid.get(uid)
        if state is None:
            state = self._by_uid[uid] = JobState()
        return state

    def forget(self, uid: str) -> None:
        """Drop the state of a deleted Job."""
        self._by_uid.pop(uid, None)

    def job_added(self, job: Job, *, keep_accounted: bool) -> None:
        """Apply the settings of a Job that the cache received after its Pods.

        All ended Pods were kept until now, because the Job was missing.
        """
        state = self._by_uid[job.metadata.uid]
        for uid, pod in list(state.census.accounted.items()):
            if not job.finished:
                state.record_end(pod)
            if not keep_accounted:
                state.drop(uid)

    def pod_gone(self, uid: str, pod: Pod, *, job_known: bool) -> None:
        """Forget a Pod, and the state of a deleted Job after its last Pod."""
        state = self._by_uid.get(uid)
        if state is None:
            return
        state.drop(pod.metadata.uid)
        if not job_known and state.census.empty:
            # The last Pod of a deleted Job: no later change would remove the state.
            del self._by_uid[uid]


def is_accounted(pod: Pod) -> bool:
    """Return whether the Pod has ended and is counted, without a tracking finalizer."""
    return end_of(pod) == "accounted"
