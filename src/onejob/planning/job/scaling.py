"""Pod scaling: desired parallelism, selection of surplus Pods, creation of missing ones."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from onejob.metrics import CreationReason, SyncAction
from onejob.objects.job import Job
from onejob.objects.pod import ContainerStatus, Pod
from onejob.planning.counts import counted
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.backoff import BackoffRecord, backoff_policy
from onejob.planning.job.counting import JobCounters, JobPods
from onejob.planning.job.indexes import NO_INDEXES, first_pending
from onejob.planning.job.oom import MemoryGrowth, OomHistory
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.per_index import due_indexes, next_failure_counts
from onejob.planning.job.plan import (
    Note,
    NoteKind,
    PodDeletion,
    PodSeed,
)
from onejob.planning.job.pod_facts import completion_index, is_tracked, sidecar_names

#: Minimum delay of a scheduled sync; an earlier one would only see the same events again.
_MIN_SYNC_DELAY = timedelta(seconds=1)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}


class PodChanges(Struct, frozen=True):
    """Pod deletions or creations, never both.

    A Pod being deleted may be miscounted until it is gone.
    """

    deletions: tuple[PodDeletion, ...] = ()
    creations: tuple[PodSeed, ...] = ()
    reason: CreationReason = "new"
    action: SyncAction = "tracking"
    notes: tuple[Note, ...] = ()


def change_pods(
    job: Job,
    census: JobPods,
    tally: JobCounters,
    backoff: BackoffRecord,
    now: datetime,
    settings: Settings,
    future_times: FutureTimes = NO_FUTURE_TIMES,
    nodes_in_maintenance: frozenset[str] = frozenset(),
) -> PodChanges:
    """Return the Pods to delete and to create, and why."""
    if job.spec.suspend:
        return PodChanges(
            deletions=deletions(census.active.values(), census), action="pods_deleted"
        )
    wanted = wanted_active(job, tally)
    surplus = surplus_pods(job, census, tally.active - wanted)[: settings.max_pod_changes]
    if surplus:
        return PodChanges(deletions=deletions(surplus, census), action="pods_deleted")
    missing = wanted - tally.active
    ending: Sequence[Pod] = ()
    if replaces_only_failed(job):
        # A node under maintenance may never report the end of its Pods: these are replaced at once.
        ending = [
            pod for pod in census.ending.values() if pod.spec.node_name not in nodes_in_maintenance
        ]
    if missing <= len(ending):
        return PodChanges(notes=_idle_notes(job, missing, len(ending)))
    missing -= len(ending)
    return _start_pods(job, census, tally, backoff, now, settings, future_times, missing, ending)


def wanted_active(job: Job, tally: JobCounters) -> int:
    """Return the number of Pods that should be active."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        # Work queue: the first success means that the queue runs empty. Leave active Pods alone.
        return tally.active if tally.succeeded else parallelism
    return max(0, min(job.spec.completions - tally.succeeded, parallelism))


def replaces_only_failed(job: Job) -> bool:
    """Return whether Pods are replaced only after they have ended, rather than from their
    deletion."""
    return job.spec.pod_replacement_policy == "Failed"


def surplus_pods(job: Job, census: JobPods, at_least: int) -> list[Pod]:
    """Return the active Pods to stop.

    These are all without a usable index, then the least valuable ones until there are `at_least`
    that many.
    """
    misfits: list[Pod] = []
    rest: Iterable[Pod] = census.active.values()
    if job.indexed and census.has_invalid_indexes(job.spec.completions or 0):
        misfits, rest = split_by_index(rest, job.spec.completions or 0)
    more = at_least - len(misfits)
    if more <= 0:
        return misfits
    return misfits + sorted(rest, key=removal_rank)[:more]


def split_by_index(pods: Iterable[Pod], completions: int) -> tuple[list[Pod], list[Pod]]:
    """Return the Pods to remove (index invalid, or held by a more valuable Pod), and the rest."""
    by_index: dict[int | None, list[Pod]] = {}
    for pod in pods:
        by_index.setdefault(completion_index(pod), []).append(pod)
    misfits = by_index.pop(None, [])
    rest: list[Pod] = []
    beyond: list[Pod] = []
    for index in sorted(index for index in by_index if index is not None):
        rivals = by_index[index]
        if index >= completions:
            beyond += rivals
            continue
        if len(rivals) > 1:
            rivals.sort(key=removal_rank)
            misfits += rivals[:-1]
        rest.append(rivals[-1])
    return misfits + beyond, rest


def removal_rank(pod: Pod) -> tuple[object, ...]:
    """Return a sort key that puts the first Pod to stop first: the one with the least progress."""
    ready_since = _ready_since(pod)
    sidecars = sidecar_names(pod)
    created = pod.metadata.creation_timestamp
    return (
        bool(pod.spec.node_name),
        _PHASE_RANK.get(pod.status.phase, 0),
        pod.ready,
        # A more recent, or unknown, ready or creation time is removed earlier.
        *_newest_first(ready_since if pod.ready else _LONG_AGO),
        -_most_restarts(pod.status.container_statuses),
        -_most_restarts(s for s in pod.status.init_container_statuses if s.name in sidecars),
        *_newest_first(created),
    )


def deletions(pods: Iterable[Pod], census: JobPods) -> tuple[PodDeletion, ...]:
    """Return deletions that do not count as failures: the finalizer is removed first."""
    return tuple(
        PodDeletion(
            pod.metadata.name,
            pod.metadata.uid,
            ready=pod.metadata.uid in census.ready,
            remove_finalizer_first=is_tracked(pod),
            resource_version=pod.metadata.resource_version,
        )
        for pod in pods
    )


def _start_pods(
    job: Job,
    census: JobPods,
    tally: JobCounters,
    backoff: BackoffRecord,
    now: datetime,
    settings: Settings,
    future_times: FutureTimes,
    missing: int,
    awaited: Sequence[Pod],
) -> PodChanges:
    """Return the creation of missing Pods, as far as limits and back-off permit."""
    policy = backoff_policy(job, settings)
    per_index = job.spec.backoff_limit_per_index is not None
    if not per_index:
        failed_at = backoff.last_failure_at
        if failed_at is not None:
            failed_at = future_times.counts_from(failed_at)
        wait = policy.remaining(backoff.failures_since_success, failed_at, now)
        if wait:
            text = f"waits after {counted(backoff.failures_since_success, 'failure')} in a row"
            return _wait_changes("backoff", text, now, wait)
    missing = min(missing, settings.max_pod_changes)
    memory = OomHistory(job, census)
    if not job.indexed:
        seeds: tuple[PodSeed, ...] = (PodSeed(memory=memory.growth(None)),) * missing
    else:
        indexes: Sequence[int] = _indexes_to_start(job, census, tally, missing, awaited)
        if per_index:
            pending = indexes
            indexes, wait = due_indexes(pending, tally.retained, policy, now, future_times)
            if wait:
                which = NO_INDEXES.with_indexes(pending)
                one = len(pending) == 1
                text = f"index {which} waits" if one else f"indexes {which} wait"
                text += " after a failure" if one else " after failures"
                return _wait_changes("index-backoff", text, now, wait)
        seeds = tuple(_seed(job, index, tally, memory.growth(index)) for index in indexes)
    return PodChanges(creations=seeds, reason=_creation_reason(job, tally), action="pods_created")


def _wait_changes(kind: NoteKind, text: str, now: datetime, wait: timedelta) -> PodChanges:
    note = Note(kind, text, now + max(wait, _MIN_SYNC_DELAY))
    return PodChanges(action="pods_created", notes=(note,))


def _idle_notes(job: Job, missing: int, ending: int) -> tuple[Note, ...]:
    if missing > 0:
        text = f"{counted(ending, 'Pod')} must end before others take their place"
        return (Note("waiting-for-pods", text),)
    if job.spec.parallelism == 0:
        return (Note("no-parallelism", "parallelism is 0: no Pod is started"),)
    return ()


def _indexes_to_start(
    job: Job, census: JobPods, tally: JobCounters, count: int, awaited: Sequence[Pod]
) -> list[int]:
    """Return the first `count` indexes that are neither complete, failed nor occupied."""
    assert tally.completed_indexes is not None, "an Indexed Job is always counted by index"
    failed = tally.failed_indexes
    busy = {completion_index(pod) for pod in awaited}
    active = census.active_by_index

    def taken(index: int) -> bool:
        return index in active or index in busy or (failed is not None and index in failed)

    return first_pending(count, job.spec.completions or 0, tally.completed_indexes, taken)


def _seed(job: Job, index: int, tally: JobCounters, memory: MemoryGrowth | None) -> PodSeed:
    """Return the differences of a new Pod of this index from the template."""
    if job.spec.backoff_limit_per_index is None:
        return PodSeed(index, memory=memory)
    failures, ignored = next_failure_counts(job, tally.retained.get(index))
    return PodSeed(index, failures, ignored, memory)


def _creation_reason(job: Job, tally: JobCounters) -> CreationReason:
    if replaces_only_failed(job) and tally.failed:
        return "recreate_failed"
    if tally.failed or tally.terminating:
        return "recreate_terminating_or_failed"
    return "new"


def _ready_since(pod: Pod) -> datetime | None:
    """Return the time of the last change of readiness; None if it is unknown."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.last_transition_time
    return None


def _newest_first(moment: datetime | None) -> tuple[bool, float]:
    """Return a sort key that puts an unknown time first and earlier times last."""
    if moment is None:
        return False, 0.0
    return True, (_LONG_AGO - moment).total_seconds()


def _most_restarts(statuses: Iterable[ContainerStatus]) -> int:
    return max((status.restart_count for status in statuses), default=0)
