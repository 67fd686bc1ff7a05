"""Finalizer-based Job tracking: count each ended Pod exactly once, across any failure.

At any time a Pod's UID is in exactly one place: on a Pod that holds the finalizer, in the status'
list of uncounted Pods, or summed up in a counter. Therefore the list is written before the
finalizer is removed, and the counter is incremented only afterwards.
"""

from collections import Counter
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Struct, field

from onejob.metrics import FailurePolicyAction
from onejob.objects.job import Job, JobStatus, UncountedPods
from onejob.objects.meta import Condition
from onejob.objects.pod import Pod
from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.bookkeeping import Draft, TrackingMode
from onejob.planning.job.conditions import ensure_condition
from onejob.planning.job.counting import JobCounters, JobPods, count_pods
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.fate import completion_time, interim_condition, terminal_condition
from onejob.planning.job.indexes import NO_INDEXES
from onejob.planning.job.plan import (
    Accounting,
    JobOutcome,
    Ledger,
    Observed,
    Plan,
    PodRef,
    RemovalOutcomes,
    Settlement,
    StatusWrite,
)
from onejob.planning.job.pod_facts import (
    completion_index,
    finish_time,
    is_tracked,
    pod_failed,
    valid_index,
)
from onejob.planning.job.reporting import (
    failure_policy_metrics,
    finish_events,
    finish_metrics,
    progress_metrics,
)


def account_for_held(plan: Plan, draft: Draft) -> Accounting:
    """Return the UIDs to list as uncounted, and the finalizers to remove once they are listed."""
    job, fate = plan.job, draft.fate
    status, moved = _release(draft.status, plan.ledger.released)
    batch = _collect(plan, status.uncounted_terminated_pods or UncountedPods(), fate)
    status = msgspec.structs.replace(status, uncounted_terminated_pods=batch.uncounted)
    status = _with_indexes(plan, status, batch.new_indexes)
    dirty = draft.dirty or moved or batch.dirty or _index_texts(status) != _index_texts(job.status)
    if fate is not None and not fate.recorded:
        status = _with_condition(status, interim_condition(fate, plan.now))
        dirty = True
    write = None
    at_once, rulings = draft.metrics, failure_policy_metrics(batch.actions)
    if dirty:
        # Rules are evaluated again if the write fails, so their metrics wait for its success.
        write = StatusWrite(
            status,
            events=draft.events,
            metrics=progress_metrics(job, job.status, status) + rulings,
            backoff=plan.backoff,
        )
    else:
        at_once += rulings
    return Accounting(
        plan,
        status,
        draft.terminating,
        write=write,
        removals=tuple(PodRef(pod.metadata.name, pod.metadata.uid) for pod in batch.freed),
        fate=fate,
        capped=batch.capped,
        metrics=at_once,
        error=draft.error,
    )


def settle(accounting: Accounting, outcomes: RemovalOutcomes) -> Settlement:
    """Count the Pods whose finalizer was removed; finish the Job if nothing else is pending."""
    job, now = accounting.plan.job, accounting.plan.now
    status, dirty = _release(accounting.status, outcomes.removed, keep_succeeded=job.indexed)
    if accounting.plan.legacy and status.uncounted_terminated_pods == UncountedPods():
        status = msgspec.structs.replace(status, uncounted_terminated_pods=None)
    if outcomes.error is not None:
        # Store the progress before the retry, so that the lists do not exceed the cap.
        return Settlement(_progress(accounting, status) if dirty else None, outcomes.error)
    fate = accounting.fate
    if fate is None or not _may_finish(accounting, status):
        return Settlement(_progress(accounting, status) if dirty else None, accounting.error)
    terminal = terminal_condition(fate, now)
    status = _with_condition(status, terminal)
    if fate.succeeds:
        status = msgspec.structs.replace(
            status, completion_time=completion_time(status.start_time, now)
        )
    lifecycle = accounting.plan.settings.lifecycle_events
    write = StatusWrite(
        status,
        events=finish_events(job, status, terminal, lifecycle=lifecycle),
        metrics=progress_metrics(job, accounting.status, status) + finish_metrics(job, terminal),
        finishes=True,
    )
    return Settlement(write, accounting.error)


class _Batch(Struct):
    """Pods whose finalizers are removed in this sync, and the UIDs to list before that."""

    uncounted: UncountedPods
    freed: list[Pod] = field(default_factory=list)
    new_indexes: list[int] = field(default_factory=list)
    actions: Counter[FailurePolicyAction] = field(default_factory=Counter)
    dirty: bool = False
    capped: bool = False


def _collect(plan: Plan, uncounted: UncountedPods, fate: JobOutcome | None) -> _Batch:
    """Return the next ended Pods to count, up to the limit of one status write."""
    job, tally = plan.job, plan.ledger.tally
    recorded = tally.recorded_indexes or NO_INDEXES
    failed_indexes = tally.failed_indexes or NO_INDEXES
    held = plan.ledger.held
    indexed = job.indexed
    if indexed:
        held = tuple(sorted(held, key=_index_order))
    succeeded, failed = list(uncounted.succeeded), list(uncounted.failed)
    listed_succeeded, listed_failed = frozenset(succeeded), frozenset(failed)
    batch = _Batch(uncounted)
    for pod in held:
        if not _may_lose_finalizer(plan, pod, fate):
            continue
        batch.freed.append(pod)
        uid = pod.metadata.uid
        if pod.status.phase == "Succeeded" and uid not in listed_failed:
            if not indexed:
                if uid not in listed_succeeded:
                    succeeded.append(uid)
            else:
                # The index identifies the success, so no UID is listed for it.
                index = valid_index(pod, job)
                if index is not None and index not in recorded and index not in failed_indexes:
                    batch.new_indexes.append(index)
        elif uid not in listed_failed and _counts_as_failed(job, pod, fate):
            ruling = match_failure_policy(job.spec.pod_failure_policy, pod)
            if ruling.action is not None:
                batch.actions[ruling.action] += 1
            if ruling.counts:
                failed.append(uid)
        if len(batch.new_indexes) + len(succeeded) + len(failed) >= plan.settings.max_uncounted:
            batch.capped = True
            break
    batch.uncounted = UncountedPods(succeeded=tuple(succeeded), failed=tuple(failed))
    batch.dirty = batch.uncounted != uncounted or bool(batch.new_indexes)
    return batch


def _may_lose_finalizer(plan: Plan, pod: Pod, fate: JobOutcome | None) -> bool:
    if fate is not None or pod.status.phase == "Succeeded" or plan.job.metadata.deleting:
        return True
    if not pod_failed(pod, plan.job):
        return False
    if match_failure_policy(plan.job.spec.pod_failure_policy, pod).message is not None:
        # The Pod fails the Job, but the failure is not recorded yet because a deletion failed. A
        # counted Pod is not evaluated again, so the failure would be lost.
        return False
    index = completion_index(pod)
    keeper = None if index is None else plan.ledger.tally.retained.get(index)
    return keeper is None or keeper.metadata.uid != pod.metadata.uid


def _counts_as_failed(job: Job, pod: Pod, fate: JobOutcome | None) -> bool:
    """Return whether the Pod counts as failed.

    A Pod stopped because its Job failed does, even while it is still running.
    """
    if job.indexed and valid_index(pod, job) is None:
        return False
    return pod_failed(pod, job) or (fate is not None and not fate.succeeds)


def _release(
    status: JobStatus, released: AbstractSet[str], *, keep_succeeded: bool = False
) -> tuple[JobStatus, bool]:
    """Move `released` UIDs from the lists to the counters.

    Return the status and whether it changed.
    """
    lists = status.uncounted_terminated_pods or UncountedPods()
    succeeded = tuple(uid for uid in lists.succeeded if uid not in released)
    failed = tuple(uid for uid in lists.failed if uid not in released)
    newly_succeeded = len(lists.succeeded) - len(succeeded)
    newly_failed = len(lists.failed) - len(failed)
    moved = bool(newly_succeeded or newly_failed)
    return msgspec.structs.replace(
        status,
        # For an Indexed Job the counter is the number of completed indexes, which is already set.
        succeeded=status.succeeded + (0 if keep_succeeded else newly_succeeded),
        failed=status.failed + newly_failed,
        uncounted_terminated_pods=UncountedPods(succeeded=succeeded, failed=failed),
    ), moved


def _with_indexes(plan: Plan, status: JobStatus, new_indexes: list[int]) -> JobStatus:
    """Return the status with newly completed indexes; unchanged for a Job without indexes."""
    tally = plan.ledger.tally
    if tally.completed_indexes is None:
        return status
    completed = tally.completed_indexes.with_indexes(new_indexes)
    failed = tally.failed_indexes
    succeeded, spec = len(completed), plan.job.spec
    if spec.completions != spec.parallelism:
        # The API lets only an elastic Job's counter decrease. A Job that was scaled down may no
        # longer be elastic; with a lower counter the API would then reject every status write.
        succeeded = max(succeeded, status.succeeded)
    return msgspec.structs.replace(
        status,
        succeeded=succeeded,
        completed_indexes=str(completed),
        failed_indexes=None if failed is None else str(failed),
    )


def _index_texts(status: JobStatus) -> tuple[str, str | None]:
    """Return the completed and the failed indexes of a status."""
    return status.completed_indexes, status.failed_indexes


def _index_order(pod: Pod) -> int:
    index = completion_index(pod)
    return -1 if index is None else index


def _with_condition(status: JobStatus, condition: Condition) -> JobStatus:
    conditions, _ = ensure_condition(status.conditions, condition)
    return msgspec.structs.replace(status, conditions=conditions)


def _may_finish(accounting: Accounting, status: JobStatus) -> bool:
    uncounted = status.uncounted_terminated_pods or UncountedPods()
    return not (
        accounting.capped or accounting.terminating or uncounted.succeeded or uncounted.failed
    )


def _progress(accounting: Accounting, status: JobStatus) -> StatusWrite:
    """Return the write of a status that is not final."""
    metrics = progress_metrics(accounting.plan.job, accounting.status, status)
    return StatusWrite(status, metrics=metrics)


def _updated_backoff(observed: Observed, tally: JobCounters) -> BackoffRecord:
    """Return the Job's backoff record including the newly finished Pods."""
    return observed.backoff.after(
        [finish_time(pod) for pod in tally.new_succeeded],
        [finish_time(pod) for pod in tally.new_failed],
    )


def open_ledger(job: Job, census: JobPods, tally: JobCounters, fate: JobOutcome | None) -> Ledger:
    """Snapshot the finalizer holders: the census may have changed by the time of accounting."""
    uncounted = job.status.uncounted_terminated_pods
    listed = (*uncounted.succeeded, *uncounted.failed) if uncounted else ()
    groups = [census.ended, census.ending]
    if fate is not None or job.metadata.deleting:
        groups.append(census.active)
    return Ledger(
        held=tuple(pod for group in groups for pod in group.values() if is_tracked(pod)),
        released=frozenset(uid for uid in listed if not census.holds(uid)),
        tally=tally,
    )


FINALIZER_TRACKING = TrackingMode(
    count=count_pods,
    remember=_updated_backoff,
    against_limit=lambda job, tally: tally,
    open_ledger=open_ledger,
    account=account_for_held,
)
