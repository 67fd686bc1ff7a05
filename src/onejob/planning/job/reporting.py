"""Events and metrics of the Job controller, as data."""

from collections.abc import Iterator, Mapping
from typing import Literal

from onejob import metrics
from onejob.objects.job import Job, JobStatus
from onejob.objects.meta import Condition
from onejob.planning.job.conditions import COMPLETE
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.plan import Event, Increment

UNKNOWN_MODE = Event(
    "Warning",
    "UnknownCompletionMode",
    "Skipped Job sync because completion mode is unknown",
)
SUSPENDED = Event("Normal", "Suspended", "Job suspended")
RESUMED = Event("Normal", "Resumed", "Job resumed")
STARTED = Event("Normal", "JobStart", "Job started")


def pod_created(name: str) -> Event:
    return Event("Normal", "SuccessfulCreate", f"Created pod: {name}")


def pod_create_failed(error: str) -> Event:
    return Event("Warning", "FailedCreate", f"Error creating: {error}")


def pod_deleted(name: str) -> Event:
    return Event("Normal", "SuccessfulDelete", f"Deleted pod: {name}")


def pod_delete_failed(error: str) -> Event:
    return Event("Warning", "FailedDelete", f"Error deleting: {error}")


def finalizer_removal_failed(error: str) -> Event:
    """Return the Event of a failed finalizer removal.

    Upstream only logs it, and the Job then appears to wait without a reason.
    """
    return Event("Warning", "FailedFinalizerRemoval", f"Error removing tracking finalizer: {error}")


def finish_events(
    job: Job, status: JobStatus, terminal: Condition, *, lifecycle: bool
) -> tuple[Event, ...]:
    """Return the Events about the end of a Job."""
    events: list[Event] = []
    succeeded = terminal.type == COMPLETE
    if succeeded:
        if job.spec.completions is not None and status.succeeded > job.spec.completions:
            events.append(
                Event(
                    "Warning",
                    "TooManySucceededPods",
                    "Too many succeeded pods running after completion count reached",
                )
            )
        events.append(Event("Normal", "Completed", "Job completed"))
    else:
        events.append(Event("Warning", terminal.reason, terminal.message))
    if lifecycle:
        text = f"{terminal.reason}: {terminal.message}"
        events.append(Event("Normal" if succeeded else "Warning", "JobFinish", text))
    return tuple(events)


def finish_metrics(job: Job, terminal: Condition) -> tuple[Increment, ...]:
    labels = metrics.JobFinished(
        completion_mode=completion_mode(job),
        result="succeeded" if terminal.type == COMPLETE else "failed",
        reason=terminal.reason,
    )
    return (Increment(labels),)


def progress_metrics(job: Job, before: JobStatus, after: JobStatus) -> tuple[Increment, ...]:
    """Return the metric increments that follow from a change of the status counters."""
    increments: list[Increment] = []
    succeeded = after.succeeded - before.succeeded
    if job.indexed:
        # Count within the current completions: scaling down must not decrease the metric.
        succeeded = _count_added_indexes(job, before.completed_indexes, after.completed_indexes)
        per_index = job.spec.backoff_limit_per_index is not None
        limit: Literal["perIndex", "global"] = "perIndex" if per_index else "global"
        failed = _count_added_indexes(job, before.failed_indexes or "", after.failed_indexes or "")
        for status, amount in _by_result(succeeded, failed):
            increments.append(
                Increment(metrics.IndexesFinished(status=status, backoffLimit=limit), amount)
            )
    for result, amount in _by_result(succeeded, after.failed - before.failed):
        labels = metrics.PodsFinished(completion_mode=completion_mode(job), result=result)
        increments.append(Increment(labels, amount))
    return tuple(increments)


def failure_policy_metrics(
    actions: Mapping[metrics.FailurePolicyAction, int],
) -> tuple[Increment, ...]:
    return tuple(
        Increment(metrics.FailurePolicyMatch(action=action), amount)
        for action, amount in actions.items()
    )


def creation_metrics(
    reason: metrics.CreationReason, created: int, failed: int
) -> tuple[Increment, ...]:
    return tuple(
        Increment(metrics.PodCreation(reason=reason, status=status), amount)
        for status, amount in _by_result(created, failed)
    )


def completion_mode(job: Job) -> metrics.CompletionMode:
    return "Indexed" if job.indexed else "NonIndexed"


def _by_result(succeeded: int, failed: int) -> Iterator[tuple[metrics.Result, int]]:
    if succeeded > 0:
        yield "succeeded", succeeded
    if failed > 0:
        yield "failed", failed


def _count_added_indexes(job: Job, before: str, after: str) -> int:
    if before == after:
        return 0
    completions = job.spec.completions or 0
    return len(parse_indexes(after, completions)) - len(parse_indexes(before, completions))
