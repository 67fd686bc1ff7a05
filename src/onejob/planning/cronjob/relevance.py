"""Which changes call for a sync of a CronJob. Most changes are effects of the last sync: the Job
that it created appears, its own status write comes back, a Job that it deleted goes."""

from onejob.objects.cronjob import CronJob, CronJobStatus
from onejob.objects.job import Job


def cronjob_change_matters(old: CronJob, new: CronJob, written: CronJobStatus | None) -> bool:
    """`written` is the status that was written last, if any was."""
    return written is None or new.status != written or _desired_state(old) != _desired_state(new)


def job_change_matters(
    old: Job | None, new: Job | None, *, cronjob: CronJob | None, starting: str = ""
) -> bool:
    """Whether a change of one of its Jobs can alter what a sync of the CronJob finds to do.

    `cronjob` is as the cache has it, `starting` the name of the Job that is being created for it:
    whoever creates it goes on to write the status.
    """
    if new is None:
        assert old is not None, "a change without a before and an after"
        # A finished Job that is not listed as active any more has been accounted for.
        return cronjob is None or not old.finished or _lists_as_active(cronjob, old)
    if old is None and not new.finished and new.metadata.name == starting:
        return False
    return _observed_state(old) != _observed_state(new)


def _desired_state(cronjob: CronJob) -> object:
    metadata = cronjob.metadata
    return (metadata.uid, metadata.generation, metadata.deleting)


def _lists_as_active(cronjob: CronJob, job: Job) -> bool:
    return any(reference.uid == job.metadata.uid for reference in cronjob.status.active)


def _observed_state(job: Job | None) -> object:
    """What a sync looks at; of a Job that runs only that it does."""
    if job is None:
        return None
    owner, condition = job.metadata.controller_ref, job.finished_condition
    end = condition and (condition.type, job.status.start_time, job.status.completion_time)
    return (job.metadata.uid, owner.uid if owner is not None else None, end)
