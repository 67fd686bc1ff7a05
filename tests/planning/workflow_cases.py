"""Workflows in the terms of the oracle, run by the planner: all small graphs, and random ones."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import product
from random import Random

import msgspec
from msgspec.structs import replace

from onejob.objects.cronjob import JobTemplate
from onejob.objects.job import Job
from onejob.objects.meta import Meta
from onejob.objects.workflow import (
    Dependency,
    ResultDeclaration,
    Task,
    TaskStatus,
    Workflow,
    WorkflowSpec,
)
from onejob.planning.workflow.graph import Graph, build_graph
from onejob.planning.workflow.plan import Observed, Plan
from onejob.planning.workflow.planner import plan_workflow, settle
from onejob.planning.workflow.results import ResultsRead
from tests.planning.workflow_oracle import Case, OracleTask, Result, run
from tests.planning.workflow_support import NOON, UID, task_job

#: `when` of a task that is skipped by it.
_FALSE = "false"
_DEADLINE_SECONDS = 1000


def view_of(case: Case) -> Workflow:
    return Workflow(
        Meta(name="wf", namespace="default", uid=UID),
        WorkflowSpec(
            tasks=tuple(_task(task, case) for task in case.tasks),
            finally_=tuple(_task(task, case) for task in case.finals),
            parallelism=case.parallelism if case.parallelism < 10**9 else None,
            active_deadline_seconds=_DEADLINE_SECONDS if case.deadline_after is not None else None,
        ),
    )


def _task(task: OracleTask, case: Case) -> Task:
    words = [f"$(tasks.{name}.results.r)" for name in task.reads]
    spec = {"template": {"spec": {"containers": [{"name": "c", "args": words}]}}} if words else {}
    read = any(task.name in other.reads for other in (*case.tasks, *case.finals))
    default = "d" if task.name in case.with_default else None
    return Task(
        name=task.name,
        template=JobTemplate(spec=msgspec.Raw(msgspec.json.encode(spec))),
        depends_on=tuple(Dependency(task=name, condition=kind) for name, kind in task.edges),
        when=_FALSE if task.name in case.when_false else "",
        results=(ResultDeclaration(name="r", default=default),) if read else (),
    )


_ENDED_JOBS: dict[tuple[str, str], Job] = {}


def _job(task: str, end: str = "") -> Job:
    job = _ENDED_JOBS.get((task, end))
    if job is None:
        job = _ENDED_JOBS[task, end] = task_job(task, end)
    return job


def planned(case: Case, workflow: Workflow, graph: Graph, *, in_full: bool = False) -> Result:
    """Run a case by the planner. Asserts that no Job is created twice or too early.

    If `in_full`, also that each plan is that of a status that lacks the reasons of waiting tasks:
    the planner looks at each of these again.
    """
    jobs: dict[str, Job] = {}
    results = {
        f"uid-{name}": ResultsRead({} if name in case.silent else {"r": "v"})
        for name in graph.positions
    }
    observed = Observed(jobs=jobs, results=results)
    running: list[str] = []
    started: list[str] = []
    now, ended = NOON, 0
    while True:
        plan = plan_workflow(workflow, graph, observed, now)
        if in_full:
            full = plan_workflow(_without_reasons(workflow), graph, observed, now)
            assert plan.creations == full.creations
            assert _tasks_of(plan) == _tasks_of(full)
        uids = {}
        for creation in plan.creations:
            assert creation.name not in jobs, f"{creation.name} is created twice"
            jobs[creation.name] = _job(creation.task)
            uids[creation.task] = f"uid-{creation.task}"
            running.append(creation.task)
            started.append(creation.task)
        status = settle(plan, uids, (), now)
        if status is not None:
            workflow = Workflow(workflow.metadata, workflow.spec, status)
        if workflow.finished:
            break
        assert running, "nothing runs, and the workflow has not ended"
        stopped = [change.job.metadata.name.removeprefix("wf-") for change in plan.changes]
        if stopped:
            for name in stopped:
                jobs[f"wf-{name}"] = _job(name, "Failed")
                running.remove(name)
            continue
        if ended == case.deadline_after and now == NOON:
            ordinary = running[0] in {task.name for task in case.tasks}
            now += timedelta(seconds=_DEADLINE_SECONDS)
            if ordinary:
                continue
        name = min(running, key=lambda each: case.rank.get(each, 0))
        running.remove(name)
        jobs[f"wf-{name}"] = _job(name, case.outcomes.get(name, "Complete"))
        ended += 1
    ends = {task.name: task.state for task in workflow.status.tasks}
    return Result(ends, workflow.condition_is_true("Complete"), started)


def _without_reasons(workflow: Workflow) -> Workflow:
    tasks = tuple(
        TaskStatus(name=task.name, state=task.state) if task.state == "Waiting" else task
        for task in workflow.status.tasks
    )
    status = replace(workflow.status, tasks=tasks)
    return Workflow(workflow.metadata, workflow.spec, status)


def _tasks_of(plan: Plan) -> tuple[TaskStatus, ...]:
    return (plan.status or plan.workflow.status).tasks


def disagreement(case: Case, *, in_full: bool = False) -> str:
    """Return how planner and oracle differ on a case; "" if they agree."""
    workflow = view_of(case)
    found = planned(case, workflow, build_graph(workflow.spec), in_full=in_full)
    wanted = run(case)
    return "" if found == wanted else f"{case}\nplanner {found}\noracle  {wanted}"


# --- all graphs of five tasks -----------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e")
_PAIRS = tuple((i, j) for i in range(5) for j in range(5) if i != j)
_OUTCOMES = tuple(product(("Complete", "Failed", "when"), repeat=5))


def all_graphs() -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the dependencies of each task, for each of the 29,281 labelled acyclic graphs."""
    choices = [
        tuple(d for d in range(5) if d != task and bits >> d & 1)
        for task in range(5)
        for bits in range(32)
        if not bits >> task & 1
    ]
    per_task = [choices[task * 16 : task * 16 + 16] for task in range(5)]
    for edges in product(*per_task):
        if _is_acyclic(edges):
            yield edges


def _is_acyclic(edges: Sequence[Sequence[int]]) -> bool:
    left = set(range(5))
    while left:
        free = {task for task in left if left.isdisjoint(edges[task])}
        if not free:
            return False
        left -= free
    return True


def small_case(edges: Sequence[Sequence[int]], outcome: Sequence[str]) -> Case:
    return Case(
        tasks=tuple(
            OracleTask(NAMES[task], tuple((NAMES[d], "Complete") for d in edges[task]))
            for task in range(5)
        ),
        outcomes={NAMES[task]: end for task, end in enumerate(outcome) if end != "when"},
        when_false=frozenset(NAMES[task] for task, end in enumerate(outcome) if end == "when"),
    )


def check_graph(edges: Sequence[Sequence[int]]) -> int:
    """Compare planner and oracle on all 243 outcomes of a graph. Return their number.

    The planner sees the outcome of a task only when its Job ends. Cases with the same `when` are
    therefore planned once up to the end in which they differ.
    """
    compared = 0
    graphs: dict[Collection[str], _Prefixes] = {}
    for outcome in _OUTCOMES:
        case = small_case(edges, outcome)
        prefixes = graphs.get(case.when_false)
        if prefixes is None:
            prefixes = graphs[case.when_false] = _Prefixes(case)
        found, wanted = prefixes.run(case), run(case)
        assert found == wanted, f"{case}\nplanner {found}\noracle  {wanted}"
        compared += 1
    return compared


class _Prefixes:
    """Runs of one workflow by the planner, by the ends of Jobs so far."""

    def __init__(self, case: Case) -> None:
        self._workflow = view_of(case)
        self._graph = build_graph(self._workflow.spec)
        self._known: dict[tuple[str, ...], _Moment] = {}

    def run(self, case: Case) -> Result:
        ends: tuple[str, ...] = ()
        moment = self._known.get(ends)
        if moment is None:
            moment = self._known[ends] = self._planned(self._workflow, {}, (), ())
        while not moment.workflow.finished:
            assert moment.running, "nothing runs, and the workflow has not ended"
            name = moment.running[0]
            ends += (case.outcomes[name],)
            following = self._known.get(ends)
            if following is None:
                jobs = {**moment.jobs, f"wf-{name}": _job(name, case.outcomes[name])}
                following = self._known[ends] = self._planned(
                    moment.workflow, jobs, moment.running[1:], moment.started
                )
            moment = following
        return moment.result

    def _planned(
        self,
        workflow: Workflow,
        jobs: dict[str, Job],
        running: tuple[str, ...],
        started: tuple[str, ...],
    ) -> "_Moment":
        """Return the state after plans until nothing changes."""
        while True:
            plan = plan_workflow(workflow, self._graph, Observed(jobs=jobs), NOON)
            new = tuple(creation.task for creation in plan.creations)
            for creation in plan.creations:
                assert creation.name not in jobs, f"{creation.name} is created twice"
                jobs[creation.name] = _job(creation.task)
            running, started = running + new, started + new
            status = settle(plan, {task: f"uid-{task}" for task in new}, (), NOON)
            if status is None:
                break
            workflow = Workflow(workflow.metadata, workflow.spec, status)
            if running or workflow.finished:
                break
        return _Moment(workflow, jobs, running, started)


@dataclass
class _Moment:
    workflow: Workflow
    jobs: dict[str, Job]
    running: tuple[str, ...]
    started: tuple[str, ...]

    @cached_property
    def result(self) -> Result:
        ends = {task.name: task.state for task in self.workflow.status.tasks}
        return Result(ends, self.workflow.condition_is_true("Complete"), list(self.started))


def random_outcome(rng: Random) -> tuple[str, ...]:
    return rng.choice(_OUTCOMES)


# --- random graphs ----------------------------------------------------------------------------


def random_case(rng: Random) -> Case:
    """Return a graph of up to nine tasks with everything that a workflow may have."""
    count = rng.randint(1, 9)
    names = [f"t{number}" for number in range(count)]
    density = rng.choice((0.1, 0.3, 0.6))
    conditions = rng.choice((("Complete",), ("Complete", "Failed", "Finished")))
    before: dict[str, set[str]] = {}
    tasks = []
    for number, name in enumerate(names):
        edges = tuple(
            (other, rng.choice(conditions)) for other in names[:number] if rng.random() < density
        )
        before[name] = {other for other, _ in edges}.union(*(before[each] for each, _ in edges))
        reads = tuple(other for other in sorted(before[name]) if rng.random() < 0.15)
        tasks.append(OracleTask(name, edges, reads))
    rng.shuffle(tasks)
    finals = tuple(
        OracleTask(f"f{number}", (), tuple(name for name in names if rng.random() < 0.1))
        for number in range(rng.choice((0, 0, 1, 3)))
    )
    everything = [*names, *(task.name for task in finals)]
    order = list(range(len(everything)))
    rng.shuffle(order)
    return Case(
        tasks=tuple(tasks),
        finals=finals,
        outcomes={name: "Failed" if rng.random() < 0.25 else "Complete" for name in everything},
        when_false=frozenset(name for name in everything if rng.random() < 0.15),
        silent=frozenset(name for name in names if rng.random() < 0.2),
        with_default=frozenset(name for name in names if rng.random() < 0.4),
        rank=dict(zip(everything, order, strict=True)),
        parallelism=rng.choice((10**9, 1, 2, 3)),
        deadline_after=rng.choice((None, None, 0, 1, 2, 4)),
    )
