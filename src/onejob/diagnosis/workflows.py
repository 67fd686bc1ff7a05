"""Explanation of a Workflow: the planner's note, the reasons of its tasks, failed Jobs. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from onejob.diagnosis.durations import short_seconds
from onejob.diagnosis.ended import Ended
from onejob.diagnosis.explanation import RUN_IS_OVER, Document, Explanation
from onejob.objects.job import Job, read_job
from onejob.objects.workflow import TaskStatus, Workflow, read_workflow
from onejob.planning.counts import counted
from onejob.planning.workflow.graph import InvalidGraph, build_graph
from onejob.planning.workflow.plan import Observed
from onejob.planning.workflow.planner import plan_workflow
from onejob.planning.workflow.states import FAILED, RUNNING, SKIPPED, WAITING

#: Tasks listed by state; more are counted.
_SHOWN: Final = 5
#: Jobs of failed or running tasks whose own explanation is included.
MAX_EXPLAINED: Final = 3


def tasks_to_explain(document: Document) -> list[str]:
    """Return the names of the Jobs whose explanations tell most: of failed, then running tasks."""
    tasks = document.get("status", {}).get("tasks", ())
    return [
        task["jobName"]
        for state in (FAILED, RUNNING)
        for task in tasks
        if task.get("state") == state and task.get("jobName")
    ][:MAX_EXPLAINED]


def explain_workflow(
    document: Document,
    jobs: Sequence[Document],
    explained: Mapping[str, Explanation],
    now: datetime,
    *,
    ended: Ended | None = None,
) -> Explanation:
    """Explain a workflow.

    `jobs` are its Jobs; `explained` has the explanations of some, by name; `ended` is the end of
    the run whose stored state this is.
    """
    workflow = read_workflow(msgspec.json.encode(document))
    title = f"workflow/{workflow.metadata.name}"
    cut_short = ended is not None and not workflow.finished
    note = "" if cut_short else _note(workflow, jobs, now)
    evidence = [_counts(workflow)]
    shown_failure = None
    for task in workflow.status.tasks:
        answer = explained.get(task.job_name)
        if answer is None or task.state not in (FAILED, RUNNING):
            continue
        evidence.append(f"task {task.name}: {answer.state}")
        evidence += answer.evidence[1:]
        if shown_failure is None and (task.state == FAILED or cut_short):
            shown_failure = answer.shown_failure
    if cut_short and ended is not None:
        ago = short_seconds((now - ended.at).total_seconds())
        state = f"{title} was cut short {ago} ago: it did not finish."
        coming = [f"{ended.resume} runs what did not complete"]
        causes = [ended.cause]
    else:
        state = f"{title} {_state(workflow)}"
        coming = _next(workflow, explained, ended)
        causes = [note] if note else []
    return Explanation(
        state=state,
        cause=(*causes, *_task_causes(workflow)),
        evidence=tuple(evidence),
        next=tuple(coming),
        shown_failure=shown_failure,
    )


def _note(workflow: Workflow, jobs: Sequence[Document], now: datetime) -> str:
    """Return why the planner starts nothing, as it would decide now."""
    if workflow.finished:
        return ""
    read: dict[str, Job] = {}
    for document in jobs:
        job = read_job(msgspec.json.encode(document))
        read[job.metadata.name] = job
    try:
        plan = plan_workflow(workflow, build_graph(workflow.spec), Observed(jobs=read), now)
    except InvalidGraph as error:
        return str(error)
    return plan.note


def _state(workflow: Workflow) -> str:
    condition = workflow.finished_condition
    if condition is not None:
        if condition.type == "Complete":
            return "is Complete."
        return f"has failed ({condition.reason}): {condition.message}"
    if workflow.metadata.deleting:
        return "is being deleted."
    if workflow.spec.suspend:
        return "is suspended."
    fate = workflow.condition("FailureTarget")
    if fate is not None and fate.status == "True":
        return f"is failing ({fate.reason}): {fate.message}"
    if workflow.status.start_time is None:
        return "has not been started by its controller."
    status = workflow.status
    return f"is running: {status.running} of {counted(len(status.tasks), 'task')} now."


def _counts(workflow: Workflow) -> str:
    status = workflow.status
    counts = (
        (status.complete, "complete"),
        (status.failed, "failed"),
        (status.skipped, "skipped"),
        (status.running, "running"),
        (status.waiting, "waiting"),
    )
    listed = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"tasks: {listed or 'none started'}"


def _task_causes(workflow: Workflow) -> list[str]:
    """Return why tasks failed, wait or were skipped, those that matter most first."""
    texts: dict[str, Callable[[TaskStatus], str]] = {
        FAILED: lambda task: f"task {task.name} failed ({task.reason}): {task.message}",
        WAITING: lambda task: f"task {task.name}: {task.message or 'waits for its turn'}",
        SKIPPED: lambda task: f"task {task.name} was skipped ({task.reason}): {task.message}",
    }
    causes = []
    for state, text in texts.items():
        tasks = [task for task in workflow.status.tasks if task.state == state]
        causes += [text(task) for task in tasks[:_SHOWN]]
        if len(tasks) > _SHOWN:
            causes.append(f"{counted(len(tasks) - _SHOWN, f'more {state.lower()} task')}")
    return causes


def _next(
    workflow: Workflow, explained: Mapping[str, Explanation], ended: Ended | None
) -> list[str]:
    name = workflow.metadata.name
    condition = workflow.finished_condition
    if condition is not None and condition.type == "Complete":
        return [RUN_IS_OVER] if ended is not None else ["nothing: it has finished"]
    if condition is not None:
        if ended is not None:
            return [f"{ended.resume} runs what did not complete"]
        return [f"onejob rerun workflow/{name} --failed-only runs what did not complete"]
    if workflow.spec.suspend:
        return [f"onejob resume workflow/{name}"]
    coming = []
    for task in workflow.status.tasks:
        answer = explained.get(task.job_name)
        if answer is not None and task.state == RUNNING:
            coming += [f"task {task.name}: {text}" for text in answer.next]
    return coming or ["the controller starts each task when its dependencies have ended"]
