"""Classification of a Job's Pods (active, terminating, ended) and the resulting counters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.indexes import NO_INDEXES, IndexSet, parse_indexes
from onejob.planning.job.per_index import failed_indexes, retained_pods
from onejob.planning.job.pod_facts import (
    completion_index,
    is_tracked,
    pod_failed,
    restart_count,
    valid_index,
)


class JobPods:
    """The Pods of one Job, grouped by lifecycle state.

    May be kept between syncs and updated with each changed Pod (`put`, `remove`); the cost of a
    sync then depends on the number of changes, not on the number of Pods. Pods that have ended and
    hold no tracking finalizer may be left out, because the status counts them already, unless the
    Job has a failedPodsLimit or is not tracked with finalizers.
    """

    __slots__ = (
        "_highest_index",
        "_restarts",
        "accounted",
        "active",
        "active_by_index",
        "ended",
        "ending",
        "ready",
    )

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        #: Pods neither ended nor being deleted, by UID, with or without the finalizer.
        self.active: dict[str, Pod] = {}
        #: Pods being deleted that have not ended yet, by UID.
        self.ending: dict[str, Pod] = {}
        #: Ended Pods that hold the finalizer, by UID: not accounted for yet.
        self.ended: dict[str, Pod] = {}
        #: Ended Pods without the finalizer, by UID.
        self.accounted: dict[str, Pod] = {}
        #: UIDs of active Pods that are ready.
        self.ready: set[str] = set()
        #: Active Pods by completion index; the key None holds Pods without a valid index.
        self.active_by_index: dict[int | None, dict[str, Pod]] = {}
        self._highest_index = -1
        #: Container restarts of Pending and Running Pods, by UID; zero counts are omitted.
        self._restarts: dict[str, int] = {}
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        """Add a Pod, or replace its previous state."""
        uid = pod.metadata.uid
        if uid in self.active or uid in self.ended or uid in self.ending or uid in self.accounted:
            self.remove(uid)
        if pod.status.phase in ("Succeeded", "Failed"):
            (self.ended if is_tracked(pod) else self.accounted)[uid] = pod
            return
        if pod.metadata.deletion_timestamp is not None:
            self.ending[uid] = pod
        else:
            self._put_active(uid, pod)
        # A new Pod has no containers that could have been restarted.
        has_run = pod.status.container_statuses or pod.status.init_container_statuses
        counts = has_run and pod.status.phase in ("Running", "Pending")
        if counts and (restarts := restart_count(pod)):
            self._restarts[uid] = restarts

    def remove(self, uid: str) -> None:
        """Remove a Pod. A UID that is not in the census is ignored."""
        if self._restarts:
            self._restarts.pop(uid, None)
        pod = self.active.pop(uid, None)
        if pod is None:
            # At most one of these groups contains the UID.
            for group in (self.ended, self.ending, self.accounted):
                if uid in group:
                    del group[uid]
                    return
            return
        self.ready.discard(uid)
        index = completion_index(pod)
        siblings = self.active_by_index[index]
        del siblings[uid]
        if not siblings:
            del self.active_by_index[index]

    def _put_active(self, uid: str, pod: Pod) -> None:
        """Add an active Pod."""
        self.active[uid] = pod
        if pod.ready:
            self.ready.add(uid)
        index = completion_index(pod)
        self.active_by_index.setdefault(index, {})[uid] = pod
        if index is not None and index > self._highest_index:
            self._highest_index = index

    def __iter__(self) -> Iterator[Pod]:
        return chain(
            self.active.values(), self.ending.values(), self.ended.values(), self.accounted.values()
        )

    @property
    def restarts(self) -> int:
        """Number of in-place container restarts in Pods that have not ended."""
        return sum(self._restarts.values())

    def restarts_of(self, uid: str) -> int:
        return self._restarts.get(uid, 0)

    @property
    def empty(self) -> bool:
        """Return whether the Job has no Pods."""
        return not (self.active or self.ending or self.ended or self.accounted)

    def get(self, uid: str) -> Pod | None:
        """Return the Pod of this UID; None if it is not one of these groups."""
        for group in (self.ended, self.active, self.ending, self.accounted):
            if uid in group:
                return group[uid]
        return None

    def holds(self, uid: str) -> bool:
        """Return whether the Pod still has its finalizer, according to the cached state."""
        pod = self.get(uid)
        return pod is not None and is_tracked(pod)

    def finished_holders(self, job: Job) -> tuple[Pod, ...]:
        """Return the Pods that count as ended and hold the finalizer."""
        if job.spec.pod_replacement_policy == "Failed":
            return tuple(self.ended.values())
        return (*self.ended.values(), *(pod for pod in self.ending.values() if is_tracked(pod)))

    def failed_pods(self, job: Job, *, accounted: bool) -> Iterator[Pod]:
        """Yield Pods that count as failed; with `accounted`, also those accounted for."""
        groups = [self.ended, self.ending, *([self.accounted] if accounted else [])]
        for pod in chain.from_iterable(group.values() for group in groups):
            if pod_failed(pod, job):
                yield pod

    def has_invalid_indexes(self, completions: int) -> bool:
        """Return whether an active Pod has no valid index, or shares its index with another Pod."""
        return (
            len(self.active) != len(self.active_by_index)
            or None in self.active_by_index
            or self._highest_index >= completions
        )


class JobCounters(Struct, frozen=True):
    """The Job's counters as if every ended Pod were accounted for."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    new_succeeded: tuple[Pod, ...] = ()
    new_failed: tuple[Pod, ...] = ()
    #: Indexed Jobs only: completed indexes in the status, and the same plus the indexes whose Pods
    #: are still to be counted.
    recorded_indexes: IndexSet | None = None
    completed_indexes: IndexSet | None = None
    #: Set only with backoffLimitPerIndex.
    failed_indexes: IndexSet | None = None
    #: For each index without an active Pod, the failed Pod that carries its failure count.
    retained: Mapping[int, Pod] = field(default_factory=dict)


def count_pods(job: Job, census: JobPods) -> JobCounters:
    """Return the counters of a Job that tracks its Pods by finalizers."""
    status = job.status
    uncounted = status.uncounted_terminated_pods
    listed_succeeded = uncounted.succeeded if uncounted else ()
    listed_failed = uncounted.failed if uncounted else ()
    finished = census.finished_holders(job)
    new_succeeded, new_failed = new_finished_pods(job, finished)
    policy = job.spec.pod_failure_policy
    counted_failures = sum(match_failure_policy(policy, pod).counts for pod in new_failed)
    tally = JobCounters(
        active=len(census.active),
        ready=len(census.ready),
        terminating=len(census.ending),
        succeeded=status.succeeded + len(listed_succeeded) + len(new_succeeded),
        failed=status.failed + len(listed_failed) + counted_failures,
        new_succeeded=new_succeeded,
        new_failed=new_failed,
    )
    return _with_indexes(job, census, finished, tally) if job.indexed else tally


def new_finished_pods(job: Job, pods: Iterable[Pod]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Return the (succeeded, failed) Pods that hold the finalizer and are not listed yet.

    For Indexed Jobs, Pods without a valid index of the Job are ignored.
    """
    uncounted = job.status.uncounted_terminated_pods
    listed_succeeded = frozenset(uncounted.succeeded if uncounted else ())
    listed_failed = frozenset(uncounted.failed if uncounted else ())
    succeeded: list[Pod] = []
    failed: list[Pod] = []
    indexed = job.indexed
    for pod in pods:
        uid = pod.metadata.uid
        if not is_tracked(pod):
            continue
        if indexed and valid_index(pod, job) is None:
            continue
        if pod.status.phase == "Succeeded":
            if uid not in listed_succeeded and uid not in listed_failed:
                succeeded.append(pod)
        elif uid not in listed_failed and pod_failed(pod, job):
            failed.append(pod)
    return tuple(succeeded), tuple(failed)


def completed_indexes(job: Job, pods: Iterable[Pod]) -> tuple[IndexSet, IndexSet]:
    """Return the recorded completed indexes, and the same plus the ones these Pods complete."""
    recorded = parse_indexes(job.status.completed_indexes, job.spec.completions or 0)
    return recorded, recorded.with_indexes(
        index
        for pod in pods
        if pod.status.phase == "Succeeded"
        and is_tracked(pod)
        and (index := valid_index(pod, job)) is not None
    )


def _disjoint(job: Job, completed: IndexSet, failed: IndexSet) -> tuple[IndexSet, IndexSet]:
    """Return completed and failed indexes without those in both.

    Pods of one index can end both ways: one succeeds while it is being deleted, and its replacement
    fails. An index recorded as failed stays failed; otherwise it counts as completed.
    """
    recorded = parse_indexes(job.status.failed_indexes or "", job.spec.completions or 0)
    completed = completed.without(recorded)
    return completed, failed.without(completed)


def _with_indexes(
    job: Job,
    census: JobPods,
    finished: Sequence[Pod],
    tally: JobCounters,
) -> JobCounters:
    recorded, completed = completed_indexes(job, finished)
    failed: IndexSet | None = None
    retained: Mapping[int, Pod] = {}
    if job.spec.backoff_limit_per_index is not None:
        completed, failed = _disjoint(job, completed, failed_indexes(job, finished))
        retained = retained_pods(
            job, finished, census.active_by_index, completed, failed or NO_INDEXES
        )
    return replace(
        tally,
        succeeded=len(completed),
        recorded_indexes=recorded,
        completed_indexes=completed,
        failed_indexes=failed,
        retained=retained,
    )
