"""Workflow planner: one sync of one workflow.

The end of a task is decided once, from its Job, and kept in the status. Everything else follows
from the ends: what starts, what is skipped, whether the workflow fails.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from msgspec.json import encode
from msgspec.structs import replace

from onejob.objects.job import Job
from onejob.objects.meta import Condition
from onejob.objects.workflow import Task, TaskStatus, Workflow, WorkflowStatus
from onejob.planning.history import RemovedJob
from onejob.planning.job.conditions import (
    COMPLETE as COMPLETE_CONDITION,
)
from onejob.planning.job.conditions import (
    FAILED as FAILED_CONDITION,
)
from onejob.planning.job.conditions import (
    FAILURE_TARGET,
    ensure_condition,
    find_true,
    new_condition,
)
from onejob.planning.job.conditions import (
    SUSPENDED as SUSPENDED_CONDITION,
)
from onejob.planning.job.plan import Event
from onejob.planning.metadata_values import whole_second
from onejob.planning.workflow.conditions import CompileError, WhenError, evaluate_when
from onejob.planning.workflow.documents import (
    SUSPENDED_ANNOTATION,
    job_document,
    job_name,
    resume_patch,
    stop_patch,
    suspend_patch,
    ttl_patch,
)
from onejob.planning.workflow.graph import Graph
from onejob.planning.workflow.plan import (
    CreationFailed,
    JobChange,
    JobCreation,
    Observed,
    Plan,
)
from onejob.planning.workflow.results import (
    MAX_WORKFLOW_BYTES,
    values_of,
)
from onejob.planning.workflow.states import (
    COMPLETE,
    DEADLINE_EXCEEDED,
    DEPENDENCIES,
    ENDED,
    FAILED,
    GIVEN,
    JOB_DELETED,
    JOB_NAME_TAKEN,
    NOT_FINAL,
    PARALLELISM,
    RESULT_MISSING,
    RUNNING,
    SKIPPED,
    SUSPENDED,
    UNREACHABLE,
    WAITING,
    WHEN_ERROR,
    WHEN_FALSE,
    WORKFLOW_FAILED,
    satisfies,
)

#: Value of `managedBy` that stands for this controller, like none.
MANAGER: Final = "onejob.dev/workflow-controller"

#: Characters of index ranges and of messages that the status repeats from a Job.
_MAX_TEXT: Final = 400
#: Names listed in a message.
_MAX_NAMES: Final = 3

#: Seconds after which to look again whether a taken Job name is free.
_BLOCKED_SECONDS: Final = 5.0

# Plans look at all tasks: a call in C for each.
_name_of: Final = attrgetter("name")
_state_of: Final = attrgetter("state")

_DEADLINE_TEXT: Final = "Workflow was active longer than specified deadline"


def is_ours(workflow: Workflow) -> bool:
    return workflow.spec.managed_by in (None, "", MANAGER)


def plan_workflow(workflow: Workflow, graph: Graph, observed: Observed, now: datetime) -> Plan:
    """Return the writes of one sync."""
    if not is_ours(workflow):
        return Plan(workflow, note=f"it is managed by {workflow.spec.managed_by}")
    if workflow.metadata.deleting:
        return Plan(workflow, note="it is being deleted")
    sync = _Sync(workflow, graph, observed, now)
    if workflow.finished:
        return Plan(workflow, changes=tuple(sync.ttl_changes()), note="it has finished")
    sync.read_ends()
    if sync.unread:
        return Plan(workflow, unread=tuple(sync.unread))
    return sync.plan()


def fail_invalid(workflow: Workflow, problem: str, now: datetime) -> Plan:
    """Return the plan for a spec that the API server should have rejected."""
    if workflow.finished or workflow.metadata.deleting or not is_ours(workflow):
        return Plan(workflow, note="it has finished")
    condition = new_condition(FAILED_CONDITION, "True", "InvalidWorkflow", problem, now)
    conditions, _ = ensure_condition(workflow.status.conditions, condition)
    event = Event("Warning", "InvalidWorkflow", problem)
    return Plan(workflow, replace(workflow.status, conditions=conditions), events=(event,))


def settle(
    plan: Plan, created: Mapping[str, str], failed: Sequence[CreationFailed], now: datetime
) -> WorkflowStatus | None:
    """Return the status to write, given the UIDs of created Jobs by task.

    A Job that was neither created nor refused for good is left to the next sync: its task waits.
    """
    if plan.status is None or not plan.creations:
        return plan.status
    refused = {failure.task: failure for failure in failed}
    attempted = {creation.task for creation in plan.creations}
    at = whole_second(now)
    tasks = list(plan.status.tasks)
    for position, task in enumerate(tasks):
        if task.name not in attempted:
            continue
        if task.name in created:
            tasks[position] = replace(task, job_uid=created[task.name])
        elif task.name in refused:
            failure = refused[task.name]
            tasks[position] = TaskStatus(
                name=task.name,
                state=FAILED,
                completion_time=at,
                reason=failure.reason,
                message=_shortened(failure.message),
            )
        else:
            tasks[position] = _new_status(task.name)
    return _with_counts(replace(plan.status, tasks=tuple(tasks)))


def workflow_deadline(workflow: Workflow, start_time: datetime | None) -> datetime | None:
    """Return when activeDeadlineSeconds expires; None without a deadline or while suspended."""
    seconds = workflow.spec.active_deadline_seconds
    if seconds is None or start_time is None or workflow.spec.suspend:
        return None
    try:
        return start_time + timedelta(seconds=seconds)
    except OverflowError:
        # The field is 64 bits wide: a deadline beyond the calendar never expires.
        return None


class _Sync:
    """One sync: the states of all tasks, first as recorded, then as they are now."""

    def __init__(self, workflow: Workflow, graph: Graph, observed: Observed, now: datetime) -> None:
        self.workflow = workflow
        self.graph = graph
        self.observed = observed
        self.now = now
        self.at = whole_second(now)
        self.unread: list[Job] = []
        self.events: list[Event] = []
        self.ends = False
        self.tasks = _recorded(workflow, graph)
        #: Tasks that have ended, as bits by position; those whose end is recorded; failed ones.
        self.ended = 0
        self.failed: list[int] = []
        for position, task in enumerate(self.tasks):
            if task.state in ENDED:
                self.ended |= 1 << position
                if task.state == FAILED:
                    self.failed.append(position)
        self.recorded = self.ended
        #: Jobs of tasks that have not ended, by position; None of a deleted Job.
        self.running: dict[int, Job | None] = {}
        #: Whether a task waits for the deletion of another Job of its Job's name.
        self.blocked = False
        self.deadline: datetime | None = None
        self.fate: Condition | None = find_true(workflow.status.conditions, FAILURE_TARGET)

    # --- ends -----------------------------------------------------------------------------

    def read_ends(self) -> None:
        """Update the states of tasks that have been started from their Jobs."""
        jobs, created = self.observed.jobs, self.observed.created
        required = self.graph.required
        # Dependencies first: neither their ends nor this task's start may be recorded yet.
        for position in self.graph.full_order:
            task = self.tasks[position]
            if task.state in ENDED:
                continue
            if required[position] & ~self.ended and not task.job_name and task.name not in created:
                # No Job is created before the dependencies have ended.
                continue
            name = task.job_name or job_name(self.workflow, self.graph.tasks[position])
            job = jobs.get(name)
            uid = task.job_uid or created.get(task.name, "")
            if job is not None and not self._is_own(job, uid):
                job = None
            removed = self.observed.removed.get(name) if job is None else None
            if removed is not None and uid in ("", removed.uid):
                self._read_removed(position, removed)
            elif job is not None or uid:
                self._read_end(position, job, uid)

    def _is_own(self, job: Job, uid: str) -> bool:
        if uid:
            return job.metadata.uid == uid
        owner = job.metadata.controller_ref
        return owner is not None and owner.uid == self.workflow.metadata.uid

    def _read_end(self, position: int, job: Job | None, uid: str) -> None:
        task = self.tasks[position]
        if job is None:
            # The status may lack it: without a UID, the Job would count as never created.
            name = task.job_name or job_name(self.workflow, self.graph.tasks[position])
            task = self.tasks[position] = replace(task, job_name=name, job_uid=uid)
            if uid in self.observed.with_pods:
                text = "its Job was deleted, and Pods of it may still run"
                self._set(position, replace(task, state=RUNNING, message=text))
                self.running[position] = None
            else:
                text = "its Job was deleted before it had finished"
                self._end(position, FAILED, JOB_DELETED, text)
            return
        condition = job.finished_condition
        if condition is None:
            started = task.start_time or job.metadata.creation_timestamp or self.at
            running = TaskStatus(
                name=task.name,
                state=RUNNING,
                job_name=job.metadata.name,
                job_uid=job.metadata.uid,
                start_time=started,
            )
            if running != task:
                self._set(position, running)
            self.running[position] = job
            return
        read = None
        if condition.type == COMPLETE_CONDITION and self.graph.tasks[position].results:
            read = self.observed.results.get(job.metadata.uid)
            if read is None:
                self.unread.append(job)
                return
        self._end_with_job(position, job, condition)

    def _read_removed(self, position: int, removed: RemovedJob) -> None:
        """Update the state of a task from the record of its Job."""
        end = removed.end
        if end is None:
            self._read_end(position, None, removed.uid)
            return
        name = job_name(self.workflow, self.graph.tasks[position])
        completes = end.condition == COMPLETE_CONDITION
        lost = completes and self.graph.tasks[position].results
        ended = replace(
            self.tasks[position],
            state=COMPLETE if completes else FAILED,
            job_name=name,
            job_uid=removed.uid,
            completion_time=end.at or self.at,
            reason="" if completes else end.reason,
            message="its Job was deleted before its results were read" if lost else "",
        )
        self._record_end(position, ended)

    def _end_with_job(self, position: int, job: Job, condition: Condition) -> None:
        task = self.tasks[position]
        completes = condition.type == COMPLETE_CONDITION
        read = self.observed.results.get(job.metadata.uid) if completes else None
        results = read.values if read is not None else {}
        problem = read.problem if read is not None else ""
        if results and self._result_bytes() + _size(results) > MAX_WORKFLOW_BYTES:
            results = {}
            problem = f"the workflow keeps at most {MAX_WORKFLOW_BYTES} bytes of results"
        ended = TaskStatus(
            name=task.name,
            state=COMPLETE if completes else FAILED,
            job_name=job.metadata.name,
            job_uid=job.metadata.uid,
            start_time=task.start_time or job.metadata.creation_timestamp,
            completion_time=condition.last_transition_time or self.at,
            reason="" if completes else condition.reason,
            message=problem if completes else _shortened(condition.message),
            completed_indexes=_ranges(job.status.completed_indexes) if job.indexed else "",
            failed_indexes=_ranges(job.status.failed_indexes or "") if job.indexed else "",
            results=results,
        )
        self._record_end(position, ended)

    def _end(self, position: int, state: str, reason: str, message: str) -> None:
        ended = replace(
            self.tasks[position],
            state=state,
            reason=reason,
            message=_shortened(message),
            completion_time=self.at,
        )
        self._record_end(position, ended)

    def _record_end(self, position: int, ended: TaskStatus) -> None:
        self._set(position, ended)
        self.ends = True
        self.ended |= 1 << position
        if ended.state == FAILED:
            self.failed.append(position)
            text = f'Task "{ended.name}" failed: {ended.reason}: {ended.message}'
            self.events.append(Event("Warning", "TaskFailed", text))

    def _set(self, position: int, status: TaskStatus) -> None:
        self.tasks[position] = status

    def _result_bytes(self) -> int:
        return sum(_size(task.results) for task in self.tasks if task.results)

    # --- the plan -------------------------------------------------------------------------

    def plan(self) -> Plan:
        start_time, conditions = self._started()
        self.deadline = workflow_deadline(self.workflow, start_time)
        self._decide_fate()
        starts = sorted((*self._decide_waiting(), *self._decide_finally()))
        creations = tuple(self._creation(position) for position in starts)
        conditions = self._with_fate(conditions)
        status = _with_counts(
            replace(
                self.workflow.status,
                conditions=conditions,
                start_time=start_time,
                tasks=tuple(self.tasks),
            )
        )
        if find_true(conditions, COMPLETE_CONDITION) is not None:
            # Not before its start, even if the clock was set back.
            status = replace(
                status, completion_time=max(self.at, start_time) if start_time else self.at
            )
        changed = status != self.workflow.status
        return Plan(
            self.workflow,
            status=status if changed else None,
            creations=creations,
            changes=tuple(self._changes()),
            deletions=tuple(self._deletions()),
            ends=self.ends,
            events=tuple(self.events),
            requeue_seconds=self._requeue_seconds(),
            note=self._note(creations),
        )

    def _started(self) -> tuple[datetime | None, tuple[Condition, ...]]:
        """Return startTime and the conditions, with Suspended as the spec has it.

        As of a Job, a resumed workflow starts anew.
        """
        status, conditions = self.workflow.status, self.workflow.status.conditions
        was_suspended = find_true(conditions, SUSPENDED_CONDITION) is not None
        if self.workflow.spec.suspend:
            wanted = new_condition(
                SUSPENDED_CONDITION, "True", "WorkflowSuspended", "Workflow suspended", self.now
            )
            if not was_suspended:
                conditions, _ = ensure_condition(conditions, wanted)
                self.events.append(Event("Normal", "Suspended", "Workflow suspended"))
            return status.start_time, conditions
        if was_suspended:
            wanted = new_condition(
                SUSPENDED_CONDITION, "False", "WorkflowResumed", "Workflow resumed", self.now
            )
            conditions, _ = ensure_condition(conditions, wanted)
            self.events.append(Event("Normal", "Resumed", "Workflow resumed"))
            return self.at, conditions
        return status.start_time or self.at, conditions

    def _decide_fate(self) -> None:
        """Decide whether the workflow fails. The first reason found stands."""
        if self.fate is not None:
            return
        for position in sorted(self.failed):
            if self._fails_workflow(position):
                self._fail(position)
                return
        if self._unfinished() and self.deadline is not None and self.now >= self.deadline:
            self.fate = self._fate(DEADLINE_EXCEEDED, _DEADLINE_TEXT)

    def _unfinished(self) -> bool:
        """Return whether ordinary tasks have yet to end."""
        return self.graph.ordinary_bits & ~self.ended != 0

    def _fails_workflow(self, position: int) -> bool:
        """Return whether an ordinary task failed and no other one awaits its failure."""
        return (
            position < self.graph.ordinary
            and self.tasks[position].state == FAILED
            and not self.graph.handled[position]
        )

    def _fail(self, position: int) -> None:
        task = self.tasks[position]
        text = f'Task "{task.name}" failed: {task.reason}: {task.message}'
        self.fate = self._fate("TaskFailed", text)

    def _fate(self, reason: str, message: str) -> Condition:
        return new_condition(FAILURE_TARGET, "True", reason, message, self.now)

    def _decide_waiting(self) -> list[int]:
        """Skip, fail or start the ordinary tasks that wait; return the positions to start."""
        failing = self.fate is not None
        starts = self._pass()
        if failing or self.fate is None:
            return starts
        # A task failed without a Job: no other one starts.
        return self._pass()

    def _pass(self) -> list[int]:
        ready: list[int] = []
        # A failure found below takes effect when all is decided that needs no Job.
        fate = self.fate
        required = self.graph.required
        for position in self.graph.order:
            task = self.tasks[position]
            if task.state in ENDED or position in self.running:
                continue
            awaited = required[position]
            if (
                fate is None
                and task.reason == DEPENDENCIES
                and awaited & ~self.ended
                and not awaited & self.ended & ~self.recorded
            ):
                # It waits for the same tasks as recorded.
                continue
            pending = ""
            dead: tuple[TaskStatus, str] | None = None
            for dependency, condition in self.graph.edges[position]:
                end = self.tasks[dependency]
                if end.state not in ENDED:
                    pending = pending or end.name
                elif not satisfies(condition, end):
                    dead = (end, condition)
                    break
            if dead is not None:
                self._end(position, SKIPPED, UNREACHABLE, _unmet(*dead))
            elif fate is not None:
                self._skip_failing(position, fate)
            elif pending:
                self._wait(position, DEPENDENCIES, self._awaited(position))
            elif self._may_start(position):
                ready.append(position)
        return self._within_limit(ready)

    def _within_limit(self, ready: list[int]) -> list[int]:
        """Return the tasks that start now, in the order of the spec; the others wait."""
        limit = self.workflow.spec.parallelism
        if limit is None:
            return ready
        ready.sort()
        free = max(limit - len(self.running), 0)
        for position in ready[free:]:
            self._wait(position, PARALLELISM, f"{limit} tasks run already")
        return ready[:free]

    def _awaited(self, position: int) -> str:
        names = [
            self.tasks[dependency].name
            for dependency, _ in self.graph.edges[position]
            if self.tasks[dependency].state not in ENDED
        ]
        return f"waits for {_listed(names)}"

    def _skip_failing(self, position: int, fate: Condition) -> None:
        reason = DEADLINE_EXCEEDED if fate.reason == DEADLINE_EXCEEDED else WORKFLOW_FAILED
        self._end(position, SKIPPED, reason, f"not started: {fate.message}")

    def _decide_finally(self) -> list[int]:
        ready: list[int] = []
        unfinished = self._unfinished()
        for position in range(self.graph.ordinary, len(self.tasks)):
            if self.tasks[position].state in ENDED or position in self.running:
                continue
            if unfinished:
                self._wait(position, NOT_FINAL, "waits for the end of all tasks")
            elif self._may_start(position):
                ready.append(position)
        return self._within_limit(ready)

    def _may_start(self, position: int) -> bool:
        """Return whether a task whose edges are satisfied may start; otherwise set why not."""
        task, spec = self.graph.tasks[position], self.workflow.spec
        if spec.suspend:
            self._wait(position, SUSPENDED, "the workflow is suspended")
            return False
        if task.when and not self._evaluate(position):
            return False
        taken = self.observed.jobs.get(job_name(self.workflow, task))
        if taken is not None:
            # A Job of its own would be running.
            self._refuse_name(position, taken)
            return False
        for earlier, result in self.graph.reads(position):
            if result not in self._results_of(earlier):
                text = f'it reads a result, but task "{earlier}" wrote no result "{result}"'
                self._fail_without_job(position, RESULT_MISSING, text)
                return False
        return True

    def _refuse_name(self, position: int, taken: Job) -> None:
        """Fail a task whose Job name is taken; wait if that Job is about to be deleted."""
        owner = taken.metadata.controller_ref
        name = taken.metadata.name
        previous = owner is not None and (owner.kind, owner.name) == (
            "Workflow",
            self.workflow.metadata.name,
        )
        if previous or taken.metadata.deleting:
            self._wait(position, JOB_NAME_TAKEN, f'waits for the deletion of another Job "{name}"')
            self.blocked = True
            return
        whose = f"controlled by {owner.kind} {owner.name}" if owner else "without an owner"
        self._fail_without_job(position, JOB_NAME_TAKEN, f'Job "{name}" exists already, {whose}')

    def _evaluate(self, position: int) -> bool:
        """Return whether `when` is true; if not, or without a value, end the task."""
        task = self.graph.tasks[position]
        try:
            holds = evaluate_when(self.graph.when(position), self._earlier(position))
        except (WhenError, CompileError) as error:
            self._fail_without_job(position, WHEN_ERROR, f"when: {error}")
            return False
        if not holds:
            self._end(position, SKIPPED, WHEN_FALSE, f"when is false: {task.when}")
        return holds

    def _fail_without_job(self, position: int, reason: str, message: str) -> None:
        self._end(position, FAILED, reason, message)
        if self.fate is None and self._fails_workflow(position):
            self._fail(position)

    def _earlier(self, position: int) -> dict[str, dict[str, Any]]:
        """Return state and results of the tasks before one, for `when`."""
        ancestors = self.graph.ancestors[position]
        found = {}
        for earlier in range(self.graph.ordinary):
            if ancestors >> earlier & 1:
                task, end = self.graph.tasks[earlier], self.tasks[earlier]
                found[task.name] = {"state": end.state, "results": values_of(task, end)}
        return found

    def _creation(self, position: int) -> JobCreation:
        task = self.graph.tasks[position]
        name = job_name(self.workflow, task)
        self._set(
            position,
            TaskStatus(name=task.name, state=RUNNING, job_name=name, start_time=self.at),
        )
        results = {earlier: self._results_of(earlier) for earlier, _ in self.graph.reads(position)}
        document = job_document(
            self.workflow, task, results, with_finalizer=self.observed.with_finalizer
        )
        return JobCreation(task.name, name, document)

    def _results_of(self, name: str) -> Mapping[str, str]:
        """Return the results of an earlier task; none of an unknown one."""
        position = self.graph.positions.get(name)
        if position is None:
            return {}
        return values_of(self.graph.tasks[position], self.tasks[position])

    def _wait(self, position: int, reason: str, message: str) -> None:
        task = self.tasks[position]
        if (task.reason, task.message) != (reason, message):
            self._set(position, replace(task, reason=reason, message=message))

    # --- conditions -----------------------------------------------------------------------

    def _with_fate(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Return the conditions with the outcome: an interim one while tasks have yet to end."""
        ended = self.ended == (1 << len(self.tasks)) - 1
        fate = self.fate
        if fate is None and ended:
            failed = [position for position in self.failed if position >= self.graph.ordinary]
            if failed:
                self._fail(min(failed))
                fate = self.fate
        if not ended:
            return ensure_condition(conditions, fate)[0] if fate is not None else conditions
        if fate is None:
            text = f"All {len(self.tasks)} tasks have ended"
            terminal = new_condition(COMPLETE_CONDITION, "True", "TasksEnded", text, self.now)
            self.events.append(Event("Normal", "Completed", "Workflow completed"))
        else:
            terminal = new_condition(FAILED_CONDITION, "True", fate.reason, fate.message, self.now)
            self.events.append(Event("Warning", fate.reason, fate.message))
        return ensure_condition(conditions, terminal)[0]

    # --- changes of Jobs ------------------------------------------------------------------

    def _changes(self) -> list[JobChange]:
        changes = []
        stopping = self._stops_jobs()
        for position, job in self.running.items():
            if job is None or job.metadata.deleting:
                continue
            held = SUSPENDED_ANNOTATION in job.metadata.annotations
            if stopping and position < self.graph.ordinary:
                if not job.spec.suspend and job.spec.active_deadline_seconds != 0:
                    changes.append(JobChange(job, stop_patch(job)))
            elif self.workflow.spec.suspend and not job.spec.suspend:
                changes.append(JobChange(job, suspend_patch(job)))
            elif held and not self.workflow.spec.suspend:
                changes.append(JobChange(job, resume_patch(job)))
        return [*changes, *self.ttl_changes()]

    def ttl_changes(self) -> list[JobChange]:
        """Return the patches that give Jobs their TTLs, now that their ends are on disk."""
        if not self.graph.with_ttl:
            return []
        changes = []
        recorded = {task.name: task for task in self.workflow.status.tasks if task.state in ENDED}
        for task in self.graph.with_ttl:
            end = recorded.get(task.name)
            job = self.observed.jobs.get(end.job_name) if end is not None else None
            if job is None or end is None or job.metadata.uid != end.job_uid:
                continue
            body = ttl_patch(task, job)
            if body is not None:
                changes.append(JobChange(job, body))
        return changes

    def _deletions(self) -> list[Job]:
        """Return the Jobs to delete at the deadline: suspended ones, whose own never expires."""
        if not self._stops_jobs():
            return []
        return [
            job
            for position, job in self.running.items()
            if position < self.graph.ordinary
            and job is not None
            and job.spec.suspend
            and not job.metadata.deleting
        ]

    def _stops_jobs(self) -> bool:
        return self.deadline is not None and self.now >= self.deadline

    def _requeue_seconds(self) -> float | None:
        seconds = _BLOCKED_SECONDS if self.blocked else None
        if self.deadline is None or not self._unfinished() or self._stops_jobs():
            return seconds
        left = max((self.deadline - self.now).total_seconds(), 0.0)
        return left if seconds is None else min(left, seconds)

    def _note(self, creations: Sequence[JobCreation]) -> str:
        if creations:
            return ""
        if self.fate is not None:
            return f"it is failing: {self.fate.message}"
        if self.workflow.spec.suspend:
            return "it is suspended"
        return "it waits for running tasks" if self.running else ""


def _recorded(workflow: Workflow, graph: Graph) -> list[TaskStatus]:
    """Return the states of all tasks as recorded."""
    tasks = workflow.status.tasks
    if tuple(map(_name_of, tasks)) == graph.names:
        return list(tasks)
    known = {task.name: task for task in tasks}
    given = {end.task: end for end in workflow.spec.given}
    return [known.get(task.name) or _first_status(task, given) for task in graph.tasks]


def _new_status(name: str) -> TaskStatus:
    return TaskStatus(name=name, state=WAITING)


def _first_status(task: Task, given: Mapping[str, Any]) -> TaskStatus:
    end = given.get(task.name)
    if end is None:
        return _new_status(task.name)
    text = "taken over from an earlier run"
    return TaskStatus(
        name=task.name, state=end.state, reason=GIVEN, message=text, results=end.results
    )


def _unmet(end: TaskStatus, condition: str) -> str:
    wanted = {"Complete": "complete", "Failed": "fail"}.get(condition, "run")
    return f'task "{end.name}" was to {wanted}, but is {end.state}'


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _ranges(text: str) -> str:
    """Return index ranges for the status; the Job has them all."""
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT].rpartition(',')[0]},..."


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _size(results: Mapping[str, str]) -> int:
    return len(encode(results))


def _with_counts(status: WorkflowStatus) -> WorkflowStatus:
    states = list(map(_state_of, status.tasks))
    running, complete = states.count(RUNNING), states.count(COMPLETE)
    failed, skipped = states.count(FAILED), states.count(SKIPPED)
    return replace(
        status,
        waiting=len(states) - running - complete - failed - skipped,
        running=running,
        complete=complete,
        failed=failed,
        skipped=skipped,
    )
