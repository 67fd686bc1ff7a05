"""Invariants of workflows, checked on every stored version in order."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.objects.workflow import TaskStatus, Workflow
from sim.checks.problems import Problems
from sim.history import Version
from tests.planning.workflow_oracle import Case, OracleTask, run

ONCE = "each task's Job is created at most once"
EDGES = "no task starts before its edges are satisfied"
OVER = "a finished workflow has no running Pods"
FAILED = "nothing starts after a failure"
SUSPENDED = "a suspended workflow starts nothing"
LIMIT = "parallelism is kept"
ENDS = "ends agree with the oracle"
STICKY = "an end is final"
OWN = "a task has a Job of its own workflow"

_ENDED = ("Complete", "Failed", "Skipped")


@dataclass
class _Seen:
    """What is known of one workflow."""

    newest: Workflow
    #: UIDs of Jobs by task.
    jobs: dict[str, set[str]] = field(default_factory=dict)
    #: Tasks whose Jobs were created since the last status.
    unchecked: set[str] = field(default_factory=set)
    #: Types of the conditions of finished Jobs, by UID.
    outcomes: dict[str, str] = field(default_factory=dict)
    parallelism_lowered: bool = False
    #: The controller has recorded the suspension that the spec requests now.
    suspended: bool = False


@dataclass
class WorkflowCheck:
    """Check of all workflows of a history."""

    problems: Problems
    _workflows: dict[str, _Seen] = field(default_factory=dict)
    #: Pods that have not ended, by the UID of their Job.
    _pods: dict[str, set[str]] = field(default_factory=dict)
    _job_of_pod: dict[str, str] = field(default_factory=dict)

    def check(self, versions: Iterable[Version]) -> None:
        for version in versions:
            match version.subject:
                case Workflow() as workflow:
                    self._see_workflow(workflow, gone=version.gone)
                case Job() as job:
                    self._see_job(job, gone=version.gone)
                case Pod() as pod:
                    self._see_pod(pod, gone=version.gone)
                case _:
                    pass

    # --- Pods and Jobs

    def _see_pod(self, pod: Pod, *, gone: bool) -> None:
        uid, owner = pod.metadata.uid, pod.metadata.controller_ref
        before = self._job_of_pod.pop(uid, "")
        self._pods.get(before, set()).discard(uid)
        if owner is not None and not gone and not pod.terminal:
            self._job_of_pod[uid] = owner.uid
            self._pods.setdefault(owner.uid, set()).add(uid)

    def _see_job(self, job: Job, *, gone: bool) -> None:
        owner = job.metadata.controller_ref
        seen = self._workflows.get(owner.uid) if owner is not None else None
        if seen is None:
            return
        if job.finished_condition is not None:
            seen.outcomes.setdefault(job.metadata.uid, job.finished_condition.type)
        name = job.metadata.name.removeprefix(f"{seen.newest.metadata.name}-")
        uids = seen.jobs.setdefault(name, set())
        if gone or job.metadata.uid in uids:
            return
        uids.add(job.metadata.uid)
        seen.unchecked.add(name)
        if len(uids) > 1:
            self.problems.add(ONCE, f"{_name(seen.newest)}: task {name} got a second Job")
        self._see_start(seen.newest, name, suspended=seen.suspended)

    def _see_start(self, workflow: Workflow, task: str, *, suspended: bool) -> None:
        ordinary = any(each.name == task for each in workflow.spec.tasks)
        text = f"{_name(workflow)}: task {task}"
        if ordinary and workflow.condition_is_true("FailureTarget"):
            self.problems.add(FAILED, f"{text} starts after the failure")
        if workflow.finished:
            self.problems.add(FAILED, f"{text} starts after the end")
        if suspended:
            self.problems.add(SUSPENDED, f"{text} starts while it is suspended")

    # --- workflows

    def _see_workflow(self, workflow: Workflow, *, gone: bool) -> None:
        uid = workflow.metadata.uid
        seen = self._workflows.get(uid)
        if seen is None:
            seen = self._workflows[uid] = _Seen(workflow)
        before, seen.newest = seen.newest, workflow
        limit, limit_before = workflow.spec.parallelism, before.spec.parallelism
        if limit is not None and (limit_before is None or limit < limit_before):
            seen.parallelism_lowered = True
        if not workflow.spec.suspend:
            seen.suspended = False
        if gone or workflow.status == before.status:
            return
        seen.suspended = workflow.spec.suspend and workflow.condition_is_true("Suspended")
        self._see_tasks(seen, before, workflow)
        if workflow.finished and not before.finished:
            self._see_end(seen, workflow)

    def _see_tasks(self, seen: _Seen, before: Workflow, workflow: Workflow) -> None:
        earlier = {task.name: task for task in before.status.tasks}
        tasks = {task.name: task for task in workflow.status.tasks}
        name = _name(workflow)
        for task in workflow.status.tasks:
            old = earlier.get(task.name)
            if old is not None and old.state in _ENDED and old != task:
                self.problems.add(STICKY, f"{name}: {old} became {task}")
            if task.job_uid and task.job_uid not in seen.jobs.get(task.name, ()):
                self.problems.add(OWN, f"{name}: {task} is not its own")
        self._see_edges(seen, workflow, tasks)
        running = sum(task.state == "Running" for task in workflow.status.tasks)
        limit = workflow.spec.parallelism
        if limit is not None and running > limit and not seen.parallelism_lowered:
            self.problems.add(LIMIT, f"{name}: {running} tasks run at once, of {limit}")

    def _see_edges(self, seen: _Seen, workflow: Workflow, tasks: dict[str, TaskStatus]) -> None:
        for task in workflow.spec.tasks:
            if task.name not in seen.unchecked:
                continue
            for edge in task.depends_on:
                end = tasks[edge.task]
                if not _satisfies(edge.condition, end):
                    text = f"{_name(workflow)}: {task.name} runs, but {edge} is {end.state}"
                    self.problems.add(EDGES, text)
        for last in workflow.spec.finally_:
            early = [task.name for task in workflow.spec.tasks
                     if tasks[task.name].state not in _ENDED]  # fmt: skip
            if last.name in seen.unchecked and early:
                self.problems.add(EDGES, f"{_name(workflow)}: {last.name} runs before {early}")
        seen.unchecked.clear()

    def _see_end(self, seen: _Seen, workflow: Workflow) -> None:
        name = _name(workflow)
        for task in workflow.status.tasks:
            if task.state not in _ENDED:
                self.problems.add(ENDS, f"{name} is finished, but {task.name} is {task.state}")
            for uid in seen.jobs.get(task.name, ()):
                if self._pods.get(uid):
                    self.problems.add(OVER, f"{name}: Pods of {task.name} still run")
            outcome = seen.outcomes.get(task.job_uid)
            if outcome is not None and outcome != task.state and task.reason != "JobDeleted":
                self.problems.add(ENDS, f"{name}: {task.name} is {task.state}, not {outcome}")
        self._compare(workflow)

    def _compare(self, workflow: Workflow) -> None:
        """Compare with the oracle. After an unhandled failure, ends depend on time, and only the
        outcome is compared."""
        ends = {task.name: task for task in workflow.status.tasks}
        condition = workflow.finished_condition
        assert condition is not None, "it is finished"
        case = Case(
            tasks=[
                OracleTask(task.name, [(edge.task, edge.condition) for edge in task.depends_on])
                for task in workflow.spec.tasks
            ],
            finals=[OracleTask(task.name) for task in workflow.spec.finally_],
            outcomes={name: end.state for name, end in ends.items() if end.state != "Skipped"},
            when_false={name for name, end in ends.items() if end.reason == "WhenFalse"},
        )
        wanted = run(case)
        in_time = condition.reason != "DeadlineExceeded"
        if in_time and wanted.succeeded != (condition.type == "Complete"):
            self.problems.add(ENDS, f"{_name(workflow)} is {condition.type}: {ends}")
        states = {name: end.state for name, end in ends.items()}
        if wanted.succeeded and in_time and wanted.ends != states:
            self.problems.add(ENDS, f"{_name(workflow)}: {states}, but {wanted.ends}")
        for task in workflow.spec.finally_:
            if ends[task.name].state == "Skipped" and ends[task.name].reason != "WhenFalse":
                self.problems.add(ENDS, f"{_name(workflow)}: {task.name} of finally is skipped")


def _satisfies(condition: str, end: TaskStatus) -> bool:
    if end.state == "Skipped":
        return end.reason == "WhenFalse" and condition != "Failed"
    return end.state in ("Complete", "Failed") and condition in ("Finished", end.state)


def _name(workflow: Workflow) -> str:
    return f"{workflow.metadata.name} ({workflow.metadata.uid[:8]})"
