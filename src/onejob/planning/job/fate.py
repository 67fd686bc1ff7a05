"""Terminal state of a Job: success or failure, and the reason. The first reason found wins."""

from datetime import datetime, timedelta

from onejob.objects.job import Job
from onejob.objects.meta import Condition
from onejob.planning.job.conditions import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    find_true,
    new_condition,
)
from onejob.planning.job.counting import JobCounters, JobPods
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.plan import JobOutcome
from onejob.planning.job.success_policy import matching_success_rule, success_message
from onejob.planning.metadata_values import whole_second
from onejob.planning.pod.restart_policy import restart_policy_of

_DEFAULT_BACKOFF_LIMIT = 6


def decide_outcome(
    job: Job,
    census: JobPods,
    tally: JobCounters,
    start_time: datetime | None,
    now: datetime,
    *,
    legacy: bool = False,
) -> JobOutcome | None:
    """Return the Job's decided outcome before ordinary completion, or None.

    A recorded outcome stands; failure of the whole Job outranks failure of its indexes, which
    outranks success by policy. `legacy` means that Pods are counted by existence.
    """
    return (
        _recorded_fate(job)
        or _failed_by_policy(job, census, legacy=legacy)
        or _backoff_limit_exceeded(job, census, tally)
        or _deadline_exceeded(job, start_time, now)
        or _indexes_failed(job, tally)
        or _success_policy_met(job, tally)
    )


def completion_outcome(job: Job, succeeded: int, active: int) -> JobOutcome | None:
    """Return success if enough Pods succeeded and none is active, else None."""
    completions = job.spec.completions
    enough = succeeded > 0 if completions is None else succeeded >= completions
    if not enough or active:
        return None
    return JobOutcome(True, "CompletionsReached", "Reached expected number of succeeded pods")


def interim_condition(fate: JobOutcome, now: datetime) -> Condition:
    """Return the condition that announces the outcome while Pods are terminating or uncounted."""
    kind = SUCCESS_CRITERIA_MET if fate.succeeds else FAILURE_TARGET
    return new_condition(kind, "True", fate.reason, fate.message, now)


def terminal_condition(fate: JobOutcome, now: datetime) -> Condition:
    kind = COMPLETE if fate.succeeds else FAILED
    return new_condition(kind, "True", fate.reason, fate.message, now)


def completion_time(start_time: datetime | None, now: datetime) -> datetime:
    """Return the completionTime of a Job that succeeds at `now`, in whole seconds.

    Never earlier than `start_time`, as the API requires, even if the clock was set back meanwhile.
    """
    moment = whole_second(now)
    return moment if start_time is None else max(moment, start_time)


def deadline_of(job: Job, start_time: datetime | None) -> datetime | None:
    """Return when activeDeadlineSeconds expires; None without a deadline or while suspended."""
    seconds = job.spec.active_deadline_seconds
    if seconds is None or start_time is None or job.spec.suspend:
        return None
    try:
        return start_time + timedelta(seconds=seconds)
    except OverflowError:
        # The field is 64 bits wide: a deadline beyond the calendar never expires.
        return None


def _recorded_fate(job: Job) -> JobOutcome | None:
    """Return the outcome that an interim condition has recorded, or None."""
    for kind, succeeds in ((SUCCESS_CRITERIA_MET, True), (FAILURE_TARGET, False)):
        condition = find_true(job.status.conditions, kind)
        if condition is not None:
            return JobOutcome(succeeds, condition.reason, condition.message, recorded=True)
    return None


def _failed_by_policy(job: Job, census: JobPods, *, legacy: bool) -> JobOutcome | None:
    """Return the failure by a FailJob rule, or None."""
    policy = job.spec.pod_failure_policy
    if policy is None:
        return None
    # A Pod that fails the Job keeps its finalizer until the failure is recorded. A Pod without a
    # finalizer was released for another reason, such as suspension, and its exit does not matter.
    for pod in census.failed_pods(job, accounted=legacy):
        message = match_failure_policy(policy, pod).message
        if message is not None:
            return JobOutcome(False, "PodFailurePolicy", message)
    return None


def _backoff_limit_exceeded(job: Job, census: JobPods, tally: JobCounters) -> JobOutcome | None:
    """Return the failure by too many failed Pods or restarts, or None."""
    limit = job.spec.backoff_limit
    if limit is None:
        limit = _DEFAULT_BACKOFF_LIMIT
    if tally.failed > limit or _too_many_restarts(job, census, limit):
        return JobOutcome(
            False, "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        )
    return None


def _too_many_restarts(job: Job, census: JobPods, limit: int) -> bool:
    """Return whether container restarts exceed the limit.

    They count only with restartPolicy OnFailure, where containers are retried in place.
    """
    if restart_policy_of(job) != "OnFailure":
        return False
    return census.restarts > 0 if limit == 0 else census.restarts >= limit


def _deadline_exceeded(job: Job, start_time: datetime | None, now: datetime) -> JobOutcome | None:
    """Return the failure by activeDeadlineSeconds, or None."""
    deadline = deadline_of(job, start_time)
    if deadline is None or now < deadline:
        return None
    return JobOutcome(False, "DeadlineExceeded", "Job was active longer than specified deadline")


def _indexes_failed(job: Job, tally: JobCounters) -> JobOutcome | None:
    """Return the failure by failed indexes, or None."""
    if tally.failed_indexes is None or tally.completed_indexes is None:
        return None
    failed = len(tally.failed_indexes)
    most = job.spec.max_failed_indexes
    if most is not None and failed > most:
        return JobOutcome(
            False,
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        )
    if failed and failed + len(tally.completed_indexes) >= (job.spec.completions or 0):
        return JobOutcome(False, "FailedIndexes", "Job has failed indexes")
    return None


def _success_policy_met(job: Job, tally: JobCounters) -> JobOutcome | None:
    """Return the success by a rule of the success policy, or None."""
    if tally.completed_indexes is None:
        return None
    rule = matching_success_rule(
        job.spec.success_policy, job.spec.completions or 0, tally.completed_indexes
    )
    return None if rule is None else JobOutcome(True, "SuccessPolicy", success_message(rule))
