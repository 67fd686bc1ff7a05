"""Workflow and CronWorkflow views of their controllers."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from onejob.objects.cronjob import CronJob, CronJobSpec, CronKind, JobTemplate
from onejob.objects.meta import (
    CRONWORKFLOWS,
    WORKFLOWS,
    Condition,
    Key,
    Meta,
    View,
    condition_is_true,
    find_condition,
)

API_VERSION = "onejob.dev/v1alpha1"


class Dependency(View, frozen=True):
    task: str = ""
    condition: str = "Complete"


class ResultDeclaration(View, frozen=True):
    name: str = ""
    default: str | None = None


class Task(View, frozen=True):
    name: str = ""
    template: JobTemplate = JobTemplate()
    depends_on: tuple[Dependency, ...] = ()
    when: str = ""
    results: tuple[ResultDeclaration, ...] = ()


class GivenEnd(View, frozen=True):
    """End of a task that is not run, taken over from an earlier run."""

    task: str = ""
    state: str = ""
    results: dict[str, str] = msgspec.field(default_factory=dict)


class WorkflowSpec(View, frozen=True):
    tasks: tuple[Task, ...] = ()
    finally_: tuple[Task, ...] = msgspec.field(default=(), name="finally")
    parallelism: int | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: str | None = None
    given: tuple[GivenEnd, ...] = ()


class TaskStatus(View, frozen=True):
    name: str = ""
    #: Not by default: a field with its default is not written.
    state: str = ""
    job_name: str = ""
    job_uid: str = msgspec.field(default="", name="jobUID")
    start_time: datetime | None = None
    completion_time: datetime | None = None
    reason: str = ""
    message: str = ""
    completed_indexes: str = ""
    failed_indexes: str = ""
    results: dict[str, str] = msgspec.field(default_factory=dict)


class WorkflowStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None
    completion_time: datetime | None = None
    waiting: int = 0
    running: int = 0
    complete: int = 0
    failed: int = 0
    skipped: int = 0
    tasks: tuple[TaskStatus, ...] = ()


class Workflow(View, frozen=True):
    metadata: Meta = Meta()
    spec: WorkflowSpec = WorkflowSpec()
    status: WorkflowStatus = WorkflowStatus()

    @property
    def key(self) -> Key:
        return Key(WORKFLOWS, self.metadata.namespace, self.metadata.name)

    @property
    def finished_condition(self) -> Condition | None:
        """The Complete or Failed condition whose status is True, or None."""
        for condition in self.status.conditions:
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                return condition
        return None

    @property
    def finished(self) -> bool:
        return self.finished_condition is not None

    def condition_is_true(self, kind: str) -> bool:
        return condition_is_true(self.status.conditions, kind)

    def condition(self, kind: str) -> Condition | None:
        return find_condition(self.status.conditions, kind)


class CronWorkflowSpec(CronJobSpec, frozen=True):
    """A CronJob's spec under other names."""

    job_template: JobTemplate = msgspec.field(default=JobTemplate(), name="workflowTemplate")
    successful_jobs_history_limit: int | None = msgspec.field(
        default=None, name="successfulWorkflowsHistoryLimit"
    )
    failed_jobs_history_limit: int | None = msgspec.field(
        default=None, name="failedWorkflowsHistoryLimit"
    )


class CronWorkflow(CronJob, frozen=True):
    spec: CronWorkflowSpec = CronWorkflowSpec()

    @property
    def cron_kind(self) -> CronKind:
        return CRONWORKFLOW


def all_tasks(workflow: Workflow) -> tuple[Task, ...]:
    """Return the tasks in the order of the status: those of `finally` last."""
    return (*workflow.spec.tasks, *workflow.spec.finally_)


class _Sections(View, frozen=True):
    """A workflow whose spec is not decoded."""

    metadata: Meta = Meta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: WorkflowStatus = WorkflowStatus()


_read_workflow = msgspec.json.Decoder(Workflow).decode
_read_sections = msgspec.json.Decoder(_Sections).decode
_read_spec = msgspec.json.Decoder(WorkflowSpec).decode


def read_workflow(document: bytes) -> Workflow:
    return _read_workflow(document)


def read_next_workflow(document: bytes, known: Callable[[Key], Workflow | None]) -> Workflow:
    """Read a workflow. The spec of a known version of the same generation is not decoded again."""
    sections = _read_sections(document)
    metadata = sections.metadata
    before = known(Key(WORKFLOWS, metadata.namespace, metadata.name))
    if (
        before is not None
        and before.metadata.uid == metadata.uid
        and before.metadata.generation == metadata.generation > 0
    ):
        return Workflow(metadata=metadata, spec=before.spec, status=sections.status)
    spec = _read_spec(sections.spec)
    return Workflow(metadata=metadata, spec=spec, status=sections.status)


_read_cronworkflow = msgspec.json.Decoder(CronWorkflow).decode


def read_cronworkflow(document: bytes) -> CronWorkflow:
    return _read_cronworkflow(document)


CRONWORKFLOW = CronKind(
    API_VERSION,
    "CronWorkflow",
    CRONWORKFLOWS,
    API_VERSION,
    "Workflow",
    WORKFLOWS,
    read_cronworkflow,
    read_workflow,
)
