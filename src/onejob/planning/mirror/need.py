"""Need of a Job for the mirror controller.

Apart from the planner, because it is evaluated before the controller is imported.
"""

from onejob.objects.job import Job
from onejob.planning.mirror.names import MANAGER


def needs_mirror(job: Job | None) -> bool:
    return (
        job is not None
        and job.spec.managed_by == MANAGER
        and (not job.finished or job.metadata.deleting)
    )
