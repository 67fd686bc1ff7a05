"""Workflows, their Jobs, and whole runs of the planner, for planner tests."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from onejob.objects.job import Job, JobStatus
from onejob.objects.meta import Condition, Meta, OwnerReference
from onejob.objects.workflow import Workflow, WorkflowStatus, read_workflow
from onejob.planning.workflow.graph import Graph, build_graph
from onejob.planning.workflow.plan import Observed, Plan
from onejob.planning.workflow.planner import plan_workflow, settle
from onejob.planning.workflow.results import ResultsRead
from tests.build import a_workflow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
UID = "wf-uid"
OWNER = (OwnerReference(kind="Workflow", name="wf", uid=UID, controller=True),)

#: Chooses the next task to end from the running ones, and its Job's condition.
EndNext = Callable[[Sequence[str]], str]


def view(*tasks: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> Workflow:
    document = a_workflow("wf", *tasks, **spec)
    document["metadata"] |= {"namespace": "default", "uid": UID, "resourceVersion": "1"}
    document["metadata"] |= metadata or {}
    return read_workflow(msgspec.json.encode(document))


def task_job(task: str, end: str = "", **fields: Any) -> Job:
    """Return the Job of a task; `end` is Complete, Failed or empty."""
    conditions = (
        (Condition(type=end, status="True", reason=f"{end}Reason", last_transition_time=NOON),)
        if end
        else ()
    )
    name = f"wf-{task}"
    metadata = Meta(name=name, namespace="default", uid=f"uid-{task}", owner_references=OWNER)
    return Job(metadata, status=JobStatus(conditions=conditions), **fields)


class Run:
    """A workflow whose Jobs end as told, driven by the planner."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self.workflow = workflow
        self.graph = graph or build_graph(workflow.spec)
        self.jobs: dict[str, Job] = {}
        self.results: dict[str, ResultsRead] = {}
        self.created: list[str] = []
        self.now = NOON
        self.plan = Plan(workflow)

    def sync(self) -> Plan:
        """Plan and apply, once."""
        observed = Observed(jobs=self.jobs, results=self.results)
        plan = self.plan = plan_workflow(self.workflow, self.graph, observed, self.now)
        uids = {}
        for creation in plan.creations:
            assert creation.name not in self.jobs, f"{creation.name} is created twice"
            self.jobs[creation.name] = task_job(creation.task)
            self.created.append(creation.task)
            uids[creation.task] = f"uid-{creation.task}"
        for job in plan.deletions:
            del self.jobs[job.metadata.name]
        status = settle(plan, uids, (), self.now)
        if status is not None:
            self.workflow = Workflow(self.workflow.metadata, self.workflow.spec, status)
        return plan

    def end(self, task: str, end: str, results: Mapping[str, str] | None = None) -> None:
        self.jobs[f"wf-{task}"] = task_job(task, end)
        if results is not None:
            self.results[f"uid-{task}"] = ResultsRead(dict(results))

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def suspend(self, suspend: bool) -> None:
        spec = replace(self.workflow.spec, suspend=suspend)
        self.workflow = Workflow(self.workflow.metadata, spec, self.workflow.status)

    @property
    def status(self) -> WorkflowStatus:
        return self.workflow.status

    @property
    def running(self) -> list[str]:
        return [task.name for task in self.status.tasks if task.state == "Running"]

    @property
    def states(self) -> dict[str, str]:
        return {task.name: task.state for task in self.status.tasks}

    @property
    def outcome(self) -> str:
        """Complete, Failed, or empty while it runs."""
        condition = self.workflow.finished_condition
        return "" if condition is None else condition.type

    def reason(self, task: str) -> str:
        return next(each.reason for each in self.status.tasks if each.name == task)

    def message(self, task: str) -> str:
        return next(each.message for each in self.status.tasks if each.name == task)
