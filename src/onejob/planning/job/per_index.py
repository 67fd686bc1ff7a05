"""spec.backoffLimitPerIndex: failure limit and backoff of each index.

The failure count of an index is stored on its last failed Pod, which therefore keeps its finalizer
(and stays uncounted) until a replacement Pod takes the count over.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.backoff import BackoffPolicy
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.indexes import NO_INDEXES, IndexSet, parse_indexes
from onejob.planning.job.pod_facts import finish_time, is_tracked, pod_failed, valid_index
from onejob.planning.names import FAILURE_COUNT_ANNOTATION, IGNORED_FAILURE_COUNT_ANNOTATION

_MAX_COUNT = 2**31 - 1


def failure_count(pod: Pod) -> int:
    """Return the number of failures of the Pod's index before this Pod."""
    return _read_count(pod, FAILURE_COUNT_ANNOTATION)


def ignored_failure_count(pod: Pod) -> int:
    return _read_count(pod, IGNORED_FAILURE_COUNT_ANNOTATION)


def total_failure_count(pod: Pod) -> int:
    return failure_count(pod) + ignored_failure_count(pod)


def next_failure_counts(job: Job, predecessor: Pod | None) -> tuple[int, int]:
    """Return the (failures, ignored failures) to annotate on the successor of `predecessor`."""
    if predecessor is None:
        return 0, 0
    failures, ignored = failure_count(predecessor), ignored_failure_count(predecessor)
    if match_failure_policy(job.spec.pod_failure_policy, predecessor).counts:
        return failures + 1, ignored
    return failures, ignored + 1


def fails_its_index(job: Job, pod: Pod) -> bool:
    """Return whether the failed Pod exhausts the limit of its index, or a FailIndex rule matches
    it."""
    if not pod_failed(pod, job):
        return False
    ruling = match_failure_policy(job.spec.pod_failure_policy, pod)
    if ruling.action == "FailIndex":
        return True
    limit = job.spec.backoff_limit_per_index
    return ruling.counts and limit is not None and failure_count(pod) >= limit


def failed_indexes(job: Job, pods: Iterable[Pod]) -> IndexSet:
    """Return the failed indexes in the status, plus the indexes that these Pods fail."""
    known = parse_indexes(job.status.failed_indexes or "", job.spec.completions or 0)
    return known.with_indexes(
        index
        for pod in pods
        if is_tracked(pod)
        and (index := valid_index(pod, job)) is not None
        and fails_its_index(job, pod)
    )


def retained_pods(
    job: Job,
    pods: Iterable[Pod],
    active_indexes: Mapping[int | None, object] | AbstractSet[int],
    completed: IndexSet,
    failed: IndexSet = NO_INDEXES,
) -> dict[int, Pod]:
    """Return, by index, the Pod that must be kept because it carries the failure count.

    Covers each index that is neither completed, failed nor active; the Pod chosen is the failed Pod
    with the highest count, or of equal counts the one that ended last.
    """
    retained: dict[int, Pod] = {}
    for pod in pods:
        index = valid_index(pod, job)
        if (
            index is None
            or not is_tracked(pod)
            or not pod_failed(pod, job)
            or index in completed
            or index in failed
            or index in active_indexes
        ):
            continue
        rival = retained.get(index)
        if rival is None or _failed_later(pod, rival):
            retained[index] = pod
    return retained


def _failed_later(pod: Pod, rival: Pod) -> bool:
    """Return whether the first Pod has the higher failure count or, if they are equal, failed
    later.

    The clock may have been set back between the two.
    """
    mine, other = total_failure_count(pod), total_failure_count(rival)
    return mine > other or (mine == other and finish_time(pod) >= finish_time(rival))


def due_indexes(
    indexes: Sequence[int],
    retained: Mapping[int, Pod],
    policy: BackoffPolicy,
    now: datetime,
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> tuple[list[int], timedelta]:
    """Return the indexes that may start now; if none may, also the time until the first one may."""
    due: list[int] = []
    shortest: timedelta | None = None
    for index in indexes:
        remaining = remaining_for_index(retained.get(index), policy, now, future_times)
        if not remaining:
            due.append(index)
        elif shortest is None or remaining < shortest:
            shortest = remaining
    if due or shortest is None:
        return due, timedelta(0)
    return due, shortest


def remaining_for_index(
    last_failed: Pod | None,
    policy: BackoffPolicy,
    now: datetime,
    future_times: FutureTimes = NO_FUTURE_TIMES,
) -> timedelta:
    """Return how long the replacement of an index has to wait."""
    if last_failed is None:
        return timedelta(0)
    failed_at = finish_time(last_failed)
    failures = total_failure_count(last_failed) + 1
    return policy.remaining(failures, future_times.counts_from(failed_at), now)


def _read_count(pod: Pod, annotation: str) -> int:
    """Return the annotated count, or 0 if it is invalid, since users may edit annotations."""
    text = pod.metadata.annotations.get(annotation, "")
    if not text.isascii() or not text.isdigit() or len(text) > len(str(_MAX_COUNT)):
        return 0
    count = int(text)
    return count if count <= _MAX_COUNT else 0
