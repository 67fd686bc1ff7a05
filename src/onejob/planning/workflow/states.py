"""States of tasks, and which ends satisfy an edge."""

from typing import Final, Literal, TypeAlias

from onejob.objects.workflow import TaskStatus

State: TypeAlias = Literal["Waiting", "Running", "Complete", "Failed", "Skipped"]

WAITING: Final = "Waiting"
RUNNING: Final = "Running"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
SKIPPED: Final = "Skipped"
ENDED: Final = frozenset({COMPLETE, FAILED, SKIPPED})

#: Conditions of edges. `Finished` is either of the other two.
ON_COMPLETE: Final = "Complete"
ON_FAILED: Final = "Failed"
ON_FINISHED: Final = "Finished"
EDGE_CONDITIONS: Final = (ON_COMPLETE, ON_FAILED, ON_FINISHED)

#: Reasons of skipped tasks.
WHEN_FALSE: Final = "WhenFalse"
UNREACHABLE: Final = "DependencyNotMet"
WORKFLOW_FAILED: Final = "WorkflowFailed"
#: Reason of any end that was taken over from an earlier run.
GIVEN: Final = "Given"
_SKIPPED_ON_PURPOSE: Final = frozenset({WHEN_FALSE, GIVEN})

#: Reasons of failed tasks, beside those of their Jobs.
WHEN_ERROR: Final = "WhenError"
RESULT_MISSING: Final = "ResultMissing"
JOB_DELETED: Final = "JobDeleted"
JOB_NAME_TAKEN: Final = "JobNameTaken"
JOB_INVALID: Final = "JobInvalid"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"

#: Reasons of waiting tasks.
DEPENDENCIES: Final = "DependenciesNotEnded"
PARALLELISM: Final = "ParallelismReached"
SUSPENDED: Final = "WorkflowSuspended"
NOT_FINAL: Final = "TasksNotEnded"


def satisfies(condition: str, end: TaskStatus) -> bool:
    """Return whether a task that has ended satisfies an edge.

    A task whose `when` was false counts as complete. A task that was skipped for any other reason
    satisfies nothing.
    """
    match end.state:
        case "Complete":
            return condition != ON_FAILED
        case "Failed":
            return condition != ON_COMPLETE
        case _:
            return end.reason in _SKIPPED_ON_PURPOSE and condition != ON_FAILED
