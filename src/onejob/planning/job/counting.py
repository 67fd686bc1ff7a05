"""Which of a Job's Pods run, are ending or have ended, and what that adds to its counters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.failure_policy import judge_failed_pod
from onejob.planning.job.indexes import NO_INDEXES, IndexSet, parse_indexes
from onejob.planning.job.per_index import failed_indexes, retained_pods
from onejob.planning.job.pod_facts import (
    completion_index,
    is_tracked,
    pod_failed,
    restart_count,
    valid_index,
)


class Census:
    """The Pods of one Job, sorted once by what they mean for it.

    May be kept between syncs and told of each Pod that changed (`put`, `remove`), so that a
    sync costs what changed and not what exists. What may be left out of it: Pods that have
    ended and hold no tracking finalizer, for the status counts them already, unless the Job
    has a failedPodsLimit or is not tracked with finalizers.
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
        #: Neither ended nor about to be ended, by UID; the finalizer does not matter.
        self.active: dict[str, Pod] = {}
        #: Deleted, but not ended yet.
        self.ending: dict[str, Pod] = {}
        #: Ended, and holding the finalizer: not accounted for.
        self.ended: dict[str, Pod] = {}
        #: Ended, without the finalizer.
        self.accounted: dict[str, Pod] = {}
        #: UIDs of active Pods that are ready.
        self.ready: set[str] = set()
        #: Active Pods by completion index; None: without a valid one.
        self.active_by_index: dict[int | None, dict[str, Pod]] = {}
        self._highest_index = -1
        #: Of Pods that run or are about to, where there were any.
        self._restarts: dict[str, int] = {}
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        """Add a Pod, or replace what was known of it."""
        uid = pod.metadata.uid
        if uid in self.active or uid in self.ended or uid in self.ending or uid in self.accounted:
            self.remove(uid)
        if pod.terminal:
            (self.ended if is_tracked(pod) else self.accounted)[uid] = pod
            return
        if pod.metadata.deletion_timestamp is not None:
            self.ending[uid] = pod
        else:
            self._put_active(uid, pod)
        if pod.status.phase in ("Running", "Pending") and (restarts := restart_count(pod)):
            self._restarts[uid] = restarts

    def remove(self, uid: str) -> None:
        """Forget a Pod; one that was never known is fine."""
        if self._restarts:
            self._restarts.pop(uid, None)
        pod = self.active.pop(uid, None)
        if pod is None:
            # In one of these, if in any.
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
        """How often containers of Pods that have not ended were restarted in place."""
        return sum(self._restarts.values())

    def restarts_of(self, uid: str) -> int:
        return self._restarts.get(uid, 0)

    @property
    def empty(self) -> bool:
        return not (self.active or self.ending or self.ended or self.accounted)

    def get(self, uid: str) -> Pod | None:
        for group in (self.ended, self.active, self.ending, self.accounted):
            if uid in group:
                return group[uid]
        return None

    def holds(self, uid: str) -> bool:
        """Whether the Pod still has its finalizer, as far as we know."""
        pod = self.get(uid)
        return pod is not None and is_tracked(pod)

    def finished_holders(self, job: Job) -> tuple[Pod, ...]:
        """Pods that count as ended and hold the finalizer."""
        if job.spec.pod_replacement_policy == "Failed":
            return tuple(self.ended.values())
        return (*self.ended.values(), *(pod for pod in self.ending.values() if is_tracked(pod)))

    def failed_pods(self, job: Job, *, accounted: bool) -> Iterator[Pod]:
        """All that count as failed; with those that are accounted for, if these are asked for."""
        groups = [self.ended, self.ending, *([self.accounted] if accounted else [])]
        for pod in chain.from_iterable(group.values() for group in groups):
            if pod_failed(pod, job):
                yield pod

    def has_misfits(self, completions: int) -> bool:
        """Whether some active Pod has no valid index, or shares one."""
        return (
            len(self.active) != len(self.active_by_index)
            or None in self.active_by_index
            or self._highest_index >= completions
        )


class Tally(Struct, frozen=True):
    """The counters as they would be if all that has ended were accounted for."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    new_succeeded: tuple[Pod, ...] = ()
    new_failed: tuple[Pod, ...] = ()
    #: For Indexed Jobs: those in the status, and those with them whose Pods wait to be counted.
    recorded_indexes: IndexSet | None = None
    completed_indexes: IndexSet | None = None
    #: Only with backoffLimitPerIndex.
    failed_indexes: IndexSet | None = None
    #: By index, the failed Pod that keeps the failure count of an index nobody works on.
    retained: Mapping[int, Pod] = field(default_factory=dict)


def count_pods(job: Job, census: Census) -> Tally:
    status = job.status
    uncounted = status.uncounted_terminated_pods
    listed_succeeded = uncounted.succeeded if uncounted else ()
    listed_failed = uncounted.failed if uncounted else ()
    finished = census.finished_holders(job)
    new_succeeded, new_failed = new_finished_pods(job, finished)
    policy = job.spec.pod_failure_policy
    counted_failures = sum(judge_failed_pod(policy, pod).counts for pod in new_failed)
    tally = Tally(
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
    """Of Pods that hold the finalizer, those that ended unknown to the status: succeeded, failed.

    For Indexed Jobs a Pod without an index of the Job ends unnoticed.
    """
    uncounted = job.status.uncounted_terminated_pods
    listed_succeeded = frozenset(uncounted.succeeded if uncounted else ())
    listed_failed = frozenset(uncounted.failed if uncounted else ())
    succeeded: list[Pod] = []
    failed: list[Pod] = []
    for pod in pods:
        uid = pod.metadata.uid
        if not is_tracked(pod):
            continue
        if job.indexed and valid_index(pod, job) is None:
            continue
        if pod.status.phase == "Succeeded":
            if uid not in listed_succeeded and uid not in listed_failed:
                succeeded.append(pod)
        elif uid not in listed_failed and pod_failed(pod, job):
            failed.append(pod)
    return tuple(succeeded), tuple(failed)


def completed_indexes(job: Job, pods: Iterable[Pod]) -> tuple[IndexSet, IndexSet]:
    """The completed indexes in the status, and the same with those that these Pods complete."""
    recorded = parse_indexes(job.status.completed_indexes, job.spec.completions or 0)
    return recorded, recorded.with_indexes(
        index
        for pod in pods
        if pod.status.phase == "Succeeded"
        and is_tracked(pod)
        and (index := valid_index(pod, job)) is not None
    )


def _apart(job: Job, completed: IndexSet, failed: IndexSet) -> tuple[IndexSet, IndexSet]:
    """Pods of one index can end both ways: one succeeds while it is being deleted, and the one in
    its place fails. What is on record stays; otherwise the index is completed."""
    recorded = parse_indexes(job.status.failed_indexes or "", job.spec.completions or 0)
    completed = completed.without(recorded)
    return completed, failed.without(completed)


def _with_indexes(
    job: Job,
    census: Census,
    finished: Sequence[Pod],
    tally: Tally,
) -> Tally:
    recorded, completed = completed_indexes(job, finished)
    failed: IndexSet | None = None
    retained: Mapping[int, Pod] = {}
    if job.spec.backoff_limit_per_index is not None:
        completed, failed = _apart(job, completed, failed_indexes(job, finished))
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
