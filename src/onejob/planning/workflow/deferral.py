"""Statuses that need not be on disk yet, because a later sync would derive them from Jobs again."""

from onejob.objects.workflow import TaskStatus, WorkflowStatus


def is_derivable(before: WorkflowStatus, after: WorkflowStatus) -> bool:
    """Return whether a plan on `before`, with the same Jobs, leads to `after` again.

    That is so for starts, and for ends without results and without a failure. Everything else is a
    decision: what `when` was, which failure came first, results of a Pod that may be deleted.
    """
    if (
        before.conditions != after.conditions
        or before.start_time != after.start_time
        or len(before.tasks) != len(after.tasks)
    ):
        return False
    changed = [
        new
        for old, new in zip(before.tasks, after.tasks, strict=True)
        if new is not old and new != old
    ]
    return all(map(_follows_from_its_job, changed))


def _follows_from_its_job(task: TaskStatus) -> bool:
    match task.state:
        case "Waiting" | "Running":
            return True
        case "Complete":
            return bool(task.job_uid) and not task.results and not task.message
        case _:
            return False
