"""Whether a Job waits for its dependencies. Evaluated for every Job, hence without the parser."""

from onejob.objects.job import Job
from onejob.planning.dependencies.state import state_of
from onejob.planning.names import AFTER_ANNOTATION


def waits_for_dependencies(job: Job) -> bool:
    """Return whether the Job must not start because of `onejob.dev/after`.

    A Job that had started before it got the annotation is not affected.
    """
    if AFTER_ANNOTATION not in job.metadata.annotations:
        return False
    if job.finished or job.metadata.deleting or job.condition_is_true("FailureTarget"):
        return False
    if job.status.start_time is not None and not job.condition_is_true("Suspended"):
        return False
    return not state_of(job).released
