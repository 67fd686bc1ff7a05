"""Which changes call for a look at a CronJob. Most follow from what was just done for it: the
Job it started appears, its own status comes back, a Job it deleted goes."""

from onejob.objects.cronjob import CronJob, CronJobStatus
from onejob.objects.job import Job


def cronjob_is_news(old: CronJob, new: CronJob, written: CronJobStatus | None) -> bool:
    """`written` is the status that was written last, if any was."""
    return written is None or new.status != written or _wish(old) != _wish(new)


def job_is_news(
    old: Job | None, new: Job | None, *, cronjob: CronJob | None, starting: str = ""
) -> bool:
    """Whether a change of one of its Jobs can alter what a sync of the CronJob finds to do.

    `cronjob` is as the cache has it, `starting` the name of the Job that is being created for it:
    whoever creates it goes on to write the status.
    """
    if new is None:
        assert old is not None, "a change without a before and an after"
        # A finished Job that is not listed as active any more has been accounted for.
        return cronjob is None or not old.finished or _lists(cronjob, old)
    if old is None and not new.finished and new.metadata.name == starting:
        return False
    return _seen(old) != _seen(new)


def _wish(cronjob: CronJob) -> object:
    metadata = cronjob.metadata
    return (metadata.uid, metadata.generation, metadata.deleting)


def _lists(cronjob: CronJob, job: Job) -> bool:
    return any(reference.uid == job.metadata.uid for reference in cronjob.status.active)


def _seen(job: Job | None) -> object:
    """What a sync looks at; of a Job that runs only that it does."""
    if job is None:
        return None
    owner, condition = job.metadata.controller_ref, job.finished_condition
    end = condition and (condition.type, job.status.start_time, job.status.completion_time)
    return (job.metadata.uid, owner.uid if owner is not None else None, end)
