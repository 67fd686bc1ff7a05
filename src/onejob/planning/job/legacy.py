"""Legacy Job tracking: count Pods by existence, as before tracking finalizers.

The counters equal the number of existing Pods in each terminal phase. A deleted Pod is forgotten,
and its work may be repeated.
"""

from collections.abc import Set as AbstractSet
from datetime import datetime

import msgspec
from msgspec.structs import replace

from onejob.objects.job import Job, JobStatus, UncountedPods
from onejob.objects.pod import Pod
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.job.bookkeeping import Draft, TrackingMode
from onejob.planning.job.conditions import ensure_condition
from onejob.planning.job.counting import JobCounters, JobPods, count_pods
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.fate import completion_time, interim_condition, terminal_condition
from onejob.planning.job.plan import (
    Accounting,
    JobOutcome,
    Ledger,
    Observed,
    Plan,
    PodRef,
    StatusWrite,
)
from onejob.planning.job.pod_facts import finish_time, is_tracked
from onejob.planning.job.reporting import finish_events, finish_metrics, progress_metrics
from onejob.planning.names import TRACKING, TRACKING_NAMES


def drop_annotation_patch(job: Job) -> bytes:
    """Return a JSON merge patch that removes the tracking annotation.

    This switches the Job to legacy tracking permanently.
    """
    metadata = {
        "resourceVersion": job.metadata.resource_version,
        "annotations": dict.fromkeys(TRACKING_NAMES),
    }
    return msgspec.json.encode({"metadata": metadata})


def count_existing(job: Job, census: JobPods) -> JobCounters:
    """Count all existing Pods from zero, treating Pods that still run as not failed."""
    fresh = msgspec.structs.replace(
        job,
        spec=msgspec.structs.replace(job.spec, pod_replacement_policy="Failed"),
        status=JobStatus(),
    )
    return count_pods(fresh, JobPods(map(_as_if_tracked, census)))


def account_for_existing(plan: Plan, draft: Draft) -> Accounting:
    """Stage one status write, and the removal of every Pod's finalizer.

    Ended Pods that still hold a finalizer are listed as uncounted, as in finalizer tracking: a
    server that uses finalizers may run the next sync, and would count again a Pod that is already
    in a counter. Pods beyond the cap of the list keep their finalizer, and stay out of the
    counters, until the next sync.
    """
    job, tally, fate = plan.job, plan.ledger.tally, draft.fate
    held = {pod.metadata.uid for pod in plan.ledger.held}
    succeeded, failed = tally.succeeded, tally.failed
    uncounted = _uncounted(plan, held, fate)
    listed = _capped(uncounted, job.status.uncounted_terminated_pods, plan.settings.max_uncounted)
    waiting = {*uncounted.succeeded, *uncounted.failed} - {*listed.succeeded, *listed.failed}
    if fate is not None and not fate.succeeds:
        # Count Pods stopped because the Job failed at once, without waiting for them to end.
        failed += len(plan.deletions)
    stored = job.status.uncounted_terminated_pods or UncountedPods()
    completed, failed_indexes = tally.completed_indexes, tally.failed_indexes
    status = msgspec.structs.replace(
        draft.status,
        succeeded=_monotonic(
            plan,
            succeeded - len(uncounted.succeeded),
            job.status.succeeded + len(set(stored.succeeded) - held),
        ),
        failed=_monotonic(
            plan,
            failed - len(uncounted.failed),
            job.status.failed + len(set(stored.failed) - held),
        ),
        completed_indexes="" if completed is None else str(completed),
        failed_indexes=None if failed_indexes is None else str(failed_indexes),
        uncounted_terminated_pods=None if listed == UncountedPods() else listed,
    )
    write = _finish(plan, status, fate) if fate is not None else None
    if write is None and status != job.status:
        write = StatusWrite(status, metrics=progress_metrics(job, job.status, status))
    if write is not None:
        write = replace(write, events=draft.events + write.events, backoff=plan.backoff)
    return Accounting(
        plan,
        status if write is None else write.status,
        draft.terminating,
        write=write,
        removals=tuple(
            PodRef(pod.metadata.name, pod.metadata.uid)
            for pod in plan.ledger.held
            if pod.metadata.uid not in waiting
        ),
        capped=bool(waiting),
        metrics=draft.metrics,
        error=draft.error,
    )


def _uncounted(plan: Plan, held: AbstractSet[str], fate: JobOutcome | None) -> UncountedPods:
    """Return the ended Pods that still hold the finalizer.

    Successes of an Indexed Job are omitted: its counter is the set of completed indexes, in which
    adding an index twice has no effect.
    """
    job, tally = plan.job, plan.ledger.tally
    policy = job.spec.pod_failure_policy
    failed = [
        pod.metadata.uid for pod in tally.new_failed if match_failure_policy(policy, pod).counts
    ]
    if fate is not None and not fate.succeeds:
        failed += [deletion.uid for deletion in plan.deletions]
    succeeded = () if job.indexed else (pod.metadata.uid for pod in tally.new_succeeded)
    return UncountedPods(
        succeeded=tuple(uid for uid in succeeded if uid in held),
        failed=tuple(uid for uid in failed if uid in held),
    )


def _capped(uncounted: UncountedPods, stored: UncountedPods | None, most: int) -> UncountedPods:
    """Return at most `most` of the UIDs, preferring UIDs already listed.

    The finalizer of the latter may have been removed.
    """
    before = {*stored.succeeded, *stored.failed} if stored is not None else frozenset[str]()
    order = sorted((*uncounted.succeeded, *uncounted.failed), key=lambda uid: uid not in before)
    kept = set(order[:most])
    return UncountedPods(
        succeeded=tuple(uid for uid in uncounted.succeeded if uid in kept),
        failed=tuple(uid for uid in uncounted.failed if uid in kept),
    )


def _finish(plan: Plan, status: JobStatus, fate: JobOutcome) -> StatusWrite:
    """Return the status write towards an outcome: the final condition is added only when no Pod
    remains."""
    job, lifecycle = plan.job, plan.settings.lifecycle_events
    if not fate.recorded:
        conditions, _ = ensure_condition(status.conditions, interim_condition(fate, plan.now))
        status = msgspec.structs.replace(status, conditions=conditions)
    metrics = progress_metrics(job, job.status, status)
    if status.active or status.terminating or status.uncounted_terminated_pods is not None:
        return StatusWrite(status, metrics=metrics)
    terminal = terminal_condition(fate, plan.now)
    conditions, _ = ensure_condition(status.conditions, terminal)
    status = msgspec.structs.replace(
        status,
        conditions=conditions,
        completion_time=completion_time(status.start_time, plan.now) if fate.succeeds else None,
    )
    return StatusWrite(
        status,
        events=finish_events(job, status, terminal, lifecycle=lifecycle),
        metrics=metrics + finish_metrics(job, terminal),
        finishes=True,
    )


def _remember(observed: Observed, tally: JobCounters) -> BackoffRecord:
    """Return the backoff record computed from the existing Pods alone; no history is needed."""

    def ended_at(pod: Pod) -> datetime:
        return observed.future_times.counts_from(finish_time(pod))

    return NO_FAILURES.after(
        [ended_at(pod) for pod in tally.new_succeeded],
        [ended_at(pod) for pod in tally.new_failed],
    )


def _against_limit(job: Job, tally: JobCounters) -> JobCounters:
    """Return the tally without the failures that do not count towards the backoff limit.

    Failures count only if they are new and their replacement is not running yet.
    """
    if tally.failed > job.status.failed and tally.active != job.spec.parallelism:
        return tally
    return replace(tally, failed=0)


def _open_ledger(job: Job, census: JobPods, tally: JobCounters, fate: JobOutcome | None) -> Ledger:
    """Return a ledger of the tally and of the Pods that still hold the finalizer."""
    return Ledger(held=tuple(pod for pod in census if is_tracked(pod)), tally=tally)


def _monotonic(plan: Plan, counted: int, stored: int) -> int:
    """Return the counter to write, keeping it monotonic where that is required.

    Counters shrink when Pods are deleted, which the API forbids for managed Jobs. They must not
    shrink either once the outcome is recorded: the Pods that led to it, and the Pods it stopped,
    may be gone.
    """
    decided = plan.fate is not None and plan.fate.recorded
    return max(counted, stored) if decided or plan.settings.respect_managed_by else counted


def _as_if_tracked(pod: Pod) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, finalizers=(TRACKING,))
    return msgspec.structs.replace(pod, metadata=metadata)


LEGACY_TRACKING = TrackingMode(
    count=count_existing,
    remember=_remember,
    against_limit=_against_limit,
    open_ledger=_open_ledger,
    account=account_for_existing,
)
