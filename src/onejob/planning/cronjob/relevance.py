"""Filter for watch events that require a sync of a CronJob.

Most changes are effects of the last sync: the Job that it created appears, its own status write is
observed, a Job that it deleted disappears.
"""

from onejob.objects.cronjob import Child, CronJob, CronJobStatus


def cronjob_change_matters(old: CronJob, new: CronJob, written: CronJobStatus | None) -> bool:
    """Return whether a CronJob update requires a sync.

    `written` is the last status written, if any.
    """
    return written is None or new.status != written or _desired_state(old) != _desired_state(new)


def job_change_matters(
    old: Child | None, new: Child | None, *, cronjob: CronJob | None, starting: str = ""
) -> bool:
    """Return whether a change of a Job can alter the result of its CronJob's sync.

    `cronjob` is the cached state; `starting` is the name of the Job currently being created for it,
    whose creator writes the status next.
    """
    if new is None:
        assert old is not None, "a change without a before and an after"
        # A finished Job that is no longer listed as active has been accounted for.
        return cronjob is None or not old.finished or _lists_as_active(cronjob, old)
    if old is None and not new.finished and new.metadata.name == starting:
        return False
    return _observed_state(old) != _observed_state(new)


def _desired_state(cronjob: CronJob) -> object:
    metadata = cronjob.metadata
    return (metadata.uid, metadata.generation, metadata.deleting)


def _lists_as_active(cronjob: CronJob, job: Child) -> bool:
    """Return whether the CronJob's status lists the Job as active."""
    return any(reference.uid == job.metadata.uid for reference in cronjob.status.active)


def _observed_state(job: Child | None) -> object:
    """Return the part of a Job that a sync depends on.

    For a running Job this is only that it runs.
    """
    if job is None:
        return None
    owner, condition = job.metadata.controller_ref, job.finished_condition
    end = condition and (condition.type, job.status.start_time, job.status.completion_time)
    return (job.metadata.uid, owner.uid if owner is not None else None, end)
