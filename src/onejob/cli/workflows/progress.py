"""Progress of a workflow in a run, updated with every event. No I/O, no clock."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from onejob.cli.display.terminal import visible
from onejob.objects.job import Job
from onejob.objects.workflow import TaskStatus, Workflow, all_tasks
from onejob.planning.counts import counted
from onejob.planning.workflow.documents import job_name
from onejob.planning.workflow.states import (
    COMPLETE,
    ENDED,
    FAILED,
    GIVEN,
    RUNNING,
    SKIPPED,
    WAITING,
)

#: Time after the last change for which a workflow is expected to start its next tasks.
_BETWEEN_TASKS = timedelta(seconds=2)
_STATES = (COMPLETE, FAILED, SKIPPED, RUNNING, WAITING)


class WorkflowProgress(msgspec.Struct):
    """Progress of one workflow. `workflow` is its newest version, also after its deletion."""

    workflow: Workflow
    created_at: datetime
    gone: bool = False
    finished_at: datetime | None = None
    #: Time of the last change of the workflow or of one of its Jobs.
    moved_at: datetime | None = None
    #: Reason why the run ended early because of the workflow's Jobs; "" otherwise.
    blocked_by: str = ""
    #: Ended tasks by name that were returned by `new_ends`.
    _seen: set[str] = msgspec.field(default_factory=set)

    @property
    def title(self) -> str:
        return f"workflow/{self.workflow.metadata.name}"

    @property
    def size(self) -> int:
        return len(self.workflow.spec.tasks) + len(self.workflow.spec.finally_)

    @property
    def ended(self) -> int:
        status = self.workflow.status
        return status.complete + status.failed + status.skipped

    @property
    def done(self) -> bool:
        return self.workflow.finished or self.gone

    @property
    def complete(self) -> bool:
        return self.workflow.condition_is_true("Complete")

    @property
    def outcome(self) -> str:
        """Complete, Failed or Deleted; Blocked or Stopped if the run ends before that."""
        condition = self.workflow.finished_condition
        if condition is not None:
            return condition.type
        if self.gone:
            return "Deleted"
        return "Blocked" if self.blocked_by else "Stopped"

    @property
    def problem(self) -> str:
        """Reason why it did not complete, in one line."""
        condition = self.workflow.finished_condition
        if condition is not None:
            return visible(f"{condition.reason}: {' '.join(condition.message.split())}")
        return visible(self.blocked_by) or "the run ended before the workflow"

    @property
    def job_uids(self) -> Iterator[str]:
        """UIDs of the Jobs that its tasks have started."""
        return (task.job_uid for task in self.workflow.status.tasks if task.job_uid)

    @property
    def job_names(self) -> list[str]:
        """Names of the Jobs of all tasks, whether or not they exist."""
        return [job_name(self.workflow, task) for task in all_tasks(self.workflow)]

    def saw(self, workflow: Workflow, now: datetime, *, deleted: bool) -> None:
        self.workflow = workflow
        self.gone = self.gone or deleted
        self.moved_at = now
        if self.done and self.finished_at is None:
            self.finished_at = now

    def new_ends(self) -> list[TaskStatus]:
        """Return the tasks that have ended since the last call."""
        found = [
            task
            for task in self.workflow.status.tasks
            if task.state in ENDED and task.name not in self._seen
        ]
        self._seen.update(task.name for task in found)
        return found

    def moves(self, now: datetime) -> bool:
        """Return whether its next tasks may be about to start."""
        return not self.done and (self.moved_at is None or now - self.moved_at < _BETWEEN_TASKS)

    def wall_seconds(self, now: datetime) -> float:
        return ((self.finished_at or now) - self.created_at).total_seconds()

    def counts_text(self) -> str:
        """Return `4 complete, 1 skipped`."""
        states = [task.state for task in self.workflow.status.tasks]
        parts = [f"{states.count(state)} {state.lower()}" for state in _STATES if state in states]
        return ", ".join(parts) or counted(self.size, "task")


def owner_of(job: Job) -> str:
    """Return the UID of the workflow that controls a Job; "" if none does."""
    owner = job.metadata.controller_ref
    return owner.uid if owner is not None and owner.kind == "Workflow" else ""


def end_text(task: TaskStatus) -> str:
    """Return the line about the end of a task without a Job; "" if its Job's end is shown."""
    if task.job_uid or task.reason == GIVEN:
        return ""
    why = ": ".join(part for part in (task.reason, visible(task.message)) if part)
    return f"task {task.name} {task.state.lower()}: {why}"
