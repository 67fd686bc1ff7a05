"""Mutants of workflows."""

from collections.abc import Mapping

from onejob.controllers.workflow import WorkflowController
from onejob.planning.workflow import states
from onejob.planning.workflow.planner import _Sync
from sim.mutants.planting import Plant, edit

MUTANTS: Mapping[str, Plant] = {
    "task started before its dependencies ended": edit(_Sync._pass, ("elif pending:", "elif 0:")),
    "unreachable task satisfies edges": edit(
        states.satisfies, ("end.reason in _SKIPPED_ON_PURPOSE and", "")
    ),
    "handled failure fails the workflow": edit(
        _Sync._fails_workflow, ("and not self.graph.handled[position]", "")
    ),
    "task of a deleted Job started again": edit(
        _Sync._read_end,
        (
            "self._end(position, FAILED, JOB_DELETED, text)",
            'self._set(position, TaskStatus(name=task.name, state="Waiting"))\n'
            "            self.observed.created.clear()",
        ),
    ),
    "workflow finished before the Pods of a deleted Job": edit(
        _Sync._read_end, ("uid in self.observed.with_pods", "False")
    ),
    "failure does not stop new starts": edit(_Sync._pass, ("elif fate is not None:", "elif 0:")),
    "suspension of a workflow ignored": edit(_Sync._may_start, ("if spec.suspend:", "if False:")),
    "parallelism of a workflow ignored": edit(
        _Sync._within_limit, ("if limit is None:", "if True:")
    ),
    "Job of another owner taken for the task's": edit(
        _Sync._is_own,
        (
            "return owner is not None and owner.uid == self.workflow.metadata.uid",
            "return True",
        ),
    ),
    "failure written before running tasks ended": edit(
        _Sync._with_fate, ("if not ended:", "if not ended and fate is None:")
    ),
    "removed Job of a workflow not recorded": edit(
        WorkflowController.lacks_jobs, ("return workflow is not None", "return False and True")
    ),
    "records of removed Jobs not read": edit(
        WorkflowController._removed_jobs, ("if record is not None", "if False")
    ),
    "Job not stopped at the workflow's deadline": edit(
        _Sync._changes, ("stopping = self._stops_jobs()", "stopping = False")
    ),
}
