"""Events and metrics of the Job controller, as data."""

from collections.abc import Mapping

from onejob.objects.job import Job, JobStatus
from onejob.objects.meta import Condition
from onejob.planning.job.conditions import COMPLETE
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.plan import CreationReason, Event, Metric

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


def finish_metrics(job: Job, terminal: Condition) -> tuple[Metric, ...]:
    result = "succeeded" if terminal.type == COMPLETE else "failed"
    labels = (_mode(job), ("result", result), ("reason", terminal.reason))
    return (Metric("job_controller_jobs_finished_total", labels),)


def progress_metrics(job: Job, before: JobStatus, after: JobStatus) -> tuple[Metric, ...]:
    """Return the metric increments that follow from a change of the status counters."""
    metrics: list[Metric] = []
    succeeded = after.succeeded - before.succeeded
    if job.indexed:
        # Count within the current completions: scaling down must not decrease the metric.
        succeeded = _grown(job, before.completed_indexes, after.completed_indexes)
        per_index = job.spec.backoff_limit_per_index is not None
        limit = ("backoffLimit", "perIndex" if per_index else "global")
        failed = _grown(job, before.failed_indexes or "", after.failed_indexes or "")
        for result, amount in (("succeeded", succeeded), ("failed", failed)):
            if amount > 0:
                labels = (("status", result), limit)
                metrics.append(Metric("job_controller_job_finished_indexes_total", labels, amount))
    for result, amount in (("succeeded", succeeded), ("failed", after.failed - before.failed)):
        if amount > 0:
            labels = (_mode(job), ("result", result))
            metrics.append(Metric("job_controller_job_pods_finished_total", labels, amount))
    return tuple(metrics)


def ruling_metrics(actions: Mapping[str, int]) -> tuple[Metric, ...]:
    name = "job_controller_pod_failures_handled_by_failure_policy_total"
    return tuple(Metric(name, (("action", action),), amount) for action, amount in actions.items())


def creation_metrics(reason: CreationReason, created: int, failed: int) -> tuple[Metric, ...]:
    name = "job_controller_job_pods_creation_total"
    return tuple(
        Metric(name, (("reason", reason), ("status", status)), amount)
        for status, amount in (("succeeded", created), ("failed", failed))
        if amount
    )


def _grown(job: Job, before: str, after: str) -> int:
    if before == after:
        return 0
    completions = job.spec.completions or 0
    return len(parse_indexes(after, completions)) - len(parse_indexes(before, completions))


def _mode(job: Job) -> tuple[str, str]:
    return ("completion_mode", job.spec.completion_mode)
