"""Workflow controller: one sync of one workflow reads the caches, plans and executes the plan.

As in the Job controller, the queue holds only keys, and a sync never plans on caches that are older
than the controller's own writes. In the server's process, the Jobs that a sync creates and the
status that records them are in one commit; the status of a large workflow may follow later, if it
can be derived from the Jobs again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct, field
from msgspec.structs import replace

from onejob.client.events import about
from onejob.client.write_series import DurableWrites, WriteSeries
from onejob.controllers.context import ControllerContext
from onejob.controllers.on_demand import OneQueue
from onejob.controllers.workflow_effects import (
    Creations,
    change_jobs,
    create_jobs,
    find_results,
    has_running_pods,
    require_unchanged,
    write_status,
)
from onejob.controllers.workflow_starts import HeldJobs
from onejob.informers.cache import Cache, Delta
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.metrics import Result, TaskEnded, TaskState
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, WORKFLOWS, Key, OwnerReference
from onejob.objects.pod import Pod
from onejob.objects.workflow import API_VERSION, Workflow, WorkflowStatus, all_tasks
from onejob.planning.history import RemovedJob
from onejob.planning.job.conditions import COMPLETE
from onejob.planning.job.plan import Event
from onejob.planning.workflow.checks import check_workflow
from onejob.planning.workflow.deferral import is_derivable
from onejob.planning.workflow.documents import has_ttl
from onejob.planning.workflow.graph import Graph, build_graph
from onejob.planning.workflow.plan import Observed, Plan
from onejob.planning.workflow.planner import fail_invalid, plan_workflow, settle
from onejob.planning.workflow.results import ResultsRead, holds_results, read_results
from onejob.planning.workflow.states import ENDED
from onejob.wire.errors import ApiError, NotFound

#: Seconds to wait for the caches to include our own writes before requeueing the workflow.
_CATCH_UP_SECONDS = 5.0
#: Seconds after the deletion of a running Job in which its controller, which may learn of it later,
#: may still create Pods.
_SETTLE_SECONDS = 2.0
_SHORTEST_DELAY = 0.01
#: Errors of an invalid workflow that its condition shows.
_SHOWN_ERRORS = 3
#: Delay of recording what can be derived again, in workflows of this many tasks and more. Each
#: status is written as a whole.
BATCH_SECONDS = 0.2
MANY_TASKS = 50
#: Jobs that are certainly created in the same turn of the event loop, and so in one commit with the
#: status.
_JOBS_IN_ONE_COMMIT = 16


class _Unwritten(Struct, frozen=True):
    """Status that is not on disk yet."""

    status: WorkflowStatus
    #: The status on disk, and the newest revision of the workflow that was seen with it.
    stored: WorkflowStatus
    revision: int
    #: When (monotonic) it was first held back.
    since: float


class _State(Struct):
    """State of a workflow between syncs."""

    uid: str
    #: Newest revisions written for it and for its Jobs: do not plan on older caches.
    workflow_revision: int = 0
    job_revision: int = 0
    graph: Graph | None = None
    #: The generation that `graph` was made from.
    generation: int = -1
    #: Whether the number of running tasks is limited: then the end of each may start another.
    limited: bool = False
    #: UIDs of created Jobs by task, until a status with them is on disk.
    created: dict[str, str] = field(default_factory=dict)
    #: Results by UID of a Job, until its end is recorded.
    results: dict[str, ResultsRead] = field(default_factory=dict)
    #: None if all is on disk.
    unwritten: _Unwritten | None = None
    #: Records of removed Jobs by name that the status on disk may lack; None until looked up.
    removed: Mapping[str, RemovedJob] | None = None
    #: Names of created Jobs that the cache has yet to show: no reason for a sync.
    starting: set[str] = field(default_factory=set)
    #: Last versions of finished Jobs by name that were deleted before their end was recorded.
    final: dict[str, Job] = field(default_factory=dict)
    #: When (monotonic) each deleted Job with an end that is not recorded was first missed, by UID.
    gone_since: dict[str, float] = field(default_factory=dict)
    #: Whether the Jobs of all running tasks are followed, not only those that changed.
    follows: bool = False
    note: str = ""


class _Jobs:
    """Jobs of a namespace by name."""

    def __init__(self, cache: Cache[Job], namespace: str, final: Mapping[str, Job]) -> None:
        self._cache = cache
        self._namespace = namespace
        self._final = final

    def get(self, name: str, /) -> Job | None:
        final = self._final.get(name) if self._final else None
        return final or self._cache.get(Key(JOBS, self._namespace, name))


class WorkflowController(OneQueue):
    """Controller of workflows: creates the Jobs of their tasks, and writes their status.

    Guarantees: a workflow is synced by one worker at a time, on caches that include the
    controller's own writes. A failed sync is retried with back-off.

    `run` works until cancelled; the informers of the context must be running as well.
    """

    queue_name = "workflow"

    def __init__(
        self,
        context: ControllerContext,
        *,
        workers: int = 5,
        new_series: Callable[[], WriteSeries] | None = None,
        removed_job: Callable[[str, str, str], RemovedJob | None] = lambda *_: None,
    ) -> None:
        """`new_series` starts the write series of one sync; by default each write is awaited.

        `removed_job` returns the record of a removed Job by namespace, UID of the workflow and
        name. Writes that share a commit require it, and `lacks_jobs` to decide what is recorded.
        """
        self._client = context.client
        self._new_series = new_series or (lambda: DurableWrites(context.client))
        self._removed_job = removed_job
        self._held = HeldJobs(context.client)
        self._workflows = context.informers.workflows
        self._jobs = context.informers.jobs
        self._pods = context.informers.pods
        self._recorder = context.recorder
        self._clock = context.clock
        self._metrics = context.metrics
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        self._states: dict[Key, _State] = {}
        #: Workflow and task by UID of each running Job with results.
        self._with_results: dict[str, tuple[Key, str]] = {}
        #: Workflows by UID of a deleted Job whose Pods have not all ended.
        self._remnants: dict[str, Key] = {}
        self._workflows.on_change(self.workflows_changed)
        self._jobs.on_change(self._jobs_changed)
        self._pods.on_change(self._pods_changed)

    async def run(self) -> None:
        for workflow in self._workflows.cache:
            self._queue.add(workflow.key)
        for job in self._jobs.cache:
            self._held.see(Delta(job.key, None, job))
        for key in self._held:
            self._queue.add(key)
        await work(self._queue, self.sync, workers=self._workers, name="workflow")

    def note(self, key: Key) -> str:
        """Return why the last sync started no Job, for `onejob why`; "" if it started one."""
        state = self._states.get(key)
        return state.note if state is not None else ""

    def lacks_jobs(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether the status on disk of a workflow may lack Jobs, or their ends."""
        workflow = self._workflows.cache.get(Key(WORKFLOWS, namespace, name))
        return workflow is not None and workflow.metadata.uid == uid and not workflow.finished

    # --- changes --------------------------------------------------------------------------

    def workflows_changed(self, deltas: Sequence[Delta[Workflow]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self._forget(delta.key)
                continue
            state = self._states.get(delta.key)
            own = state is not None and delta.new.metadata.revision == state.workflow_revision
            # Its own status write tells a sync nothing.
            if not own:
                self._queue.add(delta.key)

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            self._held.see(delta)
            owners = dict.fromkeys((_owner_of(delta.old), _owner_of(delta.new)))
            for owner in owners:
                if owner is not None:
                    self._job_changed(owner, delta)

    def _job_changed(self, owner: Key, delta: Delta[Job]) -> None:
        old, new = delta.old, delta.new
        state = self._states.get(owner)
        if state is not None and new is None and old is not None and old.finished:
            controller = old.metadata.controller_ref
            # Not one of a previous workflow of this name.
            if controller is not None and controller.uid == state.uid:
                state.final[old.metadata.name] = old
        if state is not None and old is None and new is not None and not new.finished:
            starting = new.metadata.name in state.starting
            state.starting.discard(new.metadata.name)
            if starting:
                return
        if _observed_state(old) == _observed_state(new):
            return
        if new is not None and new.finished and state is not None and self._may_wait(new, state):
            self._queue.add_after(owner, BATCH_SECONDS)
        else:
            self._queue.add(owner)

    def _may_wait(self, job: Job, state: _State) -> bool:
        """Return whether nothing starts after a task, so that its end may be recorded with others.

        Each status is written as a whole: with hundreds of tasks side by side, one for each end
        would take most of the time.
        """
        graph = state.graph
        if graph is None or len(graph.tasks) < MANY_TASKS or state.limited:
            return False
        owner = job.metadata.controller_ref
        task = job.metadata.name.removeprefix(f"{owner.name}-") if owner is not None else ""
        position = graph.positions.get(task)
        return position is not None and position not in graph.awaited

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        if not self._with_results and not self._remnants:
            return
        for delta in deltas:
            # Of an orphaned Pod, only the old version names the owner.
            owner = _controller_of(delta.new) or _controller_of(delta.old)
            if owner is None:
                continue
            if (key := self._remnants.get(owner.uid)) is not None:
                self._queue.add(key)
            found = self._with_results.get(owner.uid)
            if found is not None and delta.new is not None and holds_results(delta.new):
                self._keep_results(*found, owner.uid, delta.new)

    def _keep_results(self, key: Key, task: str, uid: str, pod: Pod) -> None:
        state = self._states.get(key)
        if state is not None and state.graph is not None:
            declared = state.graph.tasks[state.graph.positions[task]].results
            state.results[uid] = read_results(pod, declared)

    def _forget(self, key: Key) -> None:
        state = self._states.pop(key, None)
        self._queue.drop(key)
        if state is None:
            return
        for uid in [uid for uid, (owner, _) in self._with_results.items() if owner == key]:
            del self._with_results[uid]
        for uid in [uid for uid, owner in self._remnants.items() if owner == key]:
            del self._remnants[uid]

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Sync one workflow. Return the seconds after which to sync again, or None."""
        workflow = await self._current(key)
        await self._held.release(key, workflow)
        if workflow is None or (workflow.finished and not any(map(has_ttl, all_tasks(workflow)))):
            self._forget(key)
            return None
        state = self._state_of(workflow)
        problem = self._problem_of(workflow, state)
        graph = state.graph
        series = self._new_series()
        if graph is None:
            plan = fail_invalid(workflow, problem, self._clock.now())
            return await self._execute(plan, workflow, series, state)
        current = self._with_unwritten(workflow, state)
        while True:
            observed = await self._observed(current, state, series)
            plan = plan_workflow(current, graph, observed, self._clock.now())
            if not plan.unread:
                break
            for job in plan.unread:
                await self._read_results(job, workflow, graph, state)
        state.note = plan.note
        return await self._execute(plan, workflow, series, state)

    def _with_unwritten(self, workflow: Workflow, state: _State) -> Workflow:
        """Return the workflow with the status that is not on disk yet."""
        unwritten = state.unwritten
        if unwritten is None:
            return workflow
        revision = workflow.metadata.revision
        if revision != unwritten.revision:
            if workflow.status != unwritten.stored:
                # Another status was written. What was held back is derived again.
                state.unwritten = state.removed = None
                return workflow
            state.unwritten = replace(unwritten, revision=revision)
        return replace(workflow, status=unwritten.status)

    async def _current(self, key: Key) -> Workflow | None:
        """Wait until the caches include all our writes; return the workflow, if it exists."""
        state = self._states.get(key)
        if state is not None:
            try:
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await self._workflows.reached(state.workflow_revision)
                    await self._jobs.reached(state.job_revision)
            except TimeoutError as late:
                raise Retry("the caches do not include our own writes yet") from late
        return self._workflows.cache.get(key)

    def _state_of(self, workflow: Workflow) -> _State:
        key, uid = workflow.key, workflow.metadata.uid
        state = self._states.get(key)
        if state is None or state.uid != uid:
            # The state of a workflow is not valid for a later one of the same name.
            self._forget(key)
            state = self._states[key] = _State(uid)
        return state

    def _problem_of(self, workflow: Workflow, state: _State) -> str:
        """Set the graph of a workflow; return why it has none, or "".

        Our API server has validated it; that of another cluster knows only the schema.
        """
        generation = workflow.metadata.generation
        state.limited = workflow.spec.parallelism is not None
        if state.graph is not None and state.generation == generation:
            return ""
        state.generation = generation
        state.graph = None
        errors = check_workflow(workflow.spec, "spec")
        if errors:
            return "; ".join(str(error) for error in errors[:_SHOWN_ERRORS])
        graph = build_graph(workflow.spec)
        for task in workflow.status.tasks:
            if task.job_uid and task.name not in graph.positions:
                return f'spec.tasks: task "{task.name}" was removed after it had started'
        state.graph = graph
        return ""

    async def _observed(self, workflow: Workflow, state: _State, series: WriteSeries) -> Observed:
        namespace = workflow.metadata.namespace
        if state.removed is None:
            state.removed = self._removed_jobs(workflow)
        return Observed(
            jobs=_Jobs(self._jobs.cache, namespace, state.final),
            results=state.results,
            created=state.created,
            with_pods=await self._with_pods(workflow, state),
            removed=state.removed,
            with_finalizer=not series.shares_commit,
        )

    def _removed_jobs(self, workflow: Workflow) -> Mapping[str, RemovedJob]:
        namespace, name, uid = (
            workflow.metadata.namespace, workflow.metadata.name, workflow.metadata.uid,
        )  # fmt: skip
        jobs = (f"{name}-{task.name}" for task in all_tasks(workflow))
        found = ((job, self._removed_job(namespace, uid, job)) for job in jobs)
        return {job: record for job, record in found if record is not None}

    async def _with_pods(self, workflow: Workflow, state: _State) -> frozenset[str]:
        """Return the UIDs of deleted Jobs whose Pods have not all ended; their ends are awaited.

        Raises Retry if the cache only lacks a Job.
        """
        found = set()
        cache, namespace = self._jobs.cache, workflow.metadata.namespace
        started = {
            task.name: (task.job_name, task.job_uid)
            for task in workflow.status.tasks
            if task.job_uid and task.state not in ENDED
        }
        for task, uid in state.created.items():
            started.setdefault(task, (f"{workflow.metadata.name}-{task}", uid))
        if state.removed:
            recorded = {task.job_uid for task in workflow.status.tasks}
            for name, record in state.removed.items():
                if record.end is None and record.uid not in recorded:
                    started[name] = (name, record.uid)
        for name, uid in started.values():
            job = cache.get(Key(JOBS, namespace, name))
            if (job is not None and job.metadata.uid == uid) or name in state.final:
                continue
            await self._require_gone(Key(JOBS, namespace, name), uid, state)
            # Set before the list, so that no change after it is missed.
            self._remnants[uid] = workflow.key
            gone_for = self._clock.monotonic() - state.gone_since.setdefault(
                uid, self._clock.monotonic()
            )
            if gone_for < _SETTLE_SECONDS:
                self._queue.add_after(workflow.key, settle_delay(gone_for))
                found.add(uid)
            elif await self._has_pods(namespace, uid):
                found.add(uid)
            else:
                self._remnants.pop(uid, None)
        return frozenset(found)

    async def _require_gone(self, key: Key, uid: str, state: _State) -> None:
        """Raise Retry if a Job exists that the cache lacks.

        The cached workflow may be newer than the cached Jobs: its status may be from a sync whose
        response was lost, so that nothing is known of its writes.
        """
        try:
            job = read_job(await self._client.get(key))
        except NotFound:
            return
        if job.metadata.uid == uid:
            state.job_revision = max(state.job_revision, job.metadata.revision)
            raise Retry(f"the cache lacks {key}")

    async def _has_pods(self, namespace: str, job_uid: str) -> bool:
        """Return whether Pods of a deleted Job have yet to end.

        The cache may lack Pods that were created just before the Job was deleted, so the server is
        asked as well.
        """
        if any(not pod.terminal for pod in self._pods.cache.find("controller", job_uid)):
            return True
        return await has_running_pods(self._client, namespace, job_uid)

    async def _read_results(
        self, job: Job, workflow: Workflow, graph: Graph, state: _State
    ) -> None:
        task = next(
            task
            for task in graph.tasks
            if f"{workflow.metadata.name}-{task.name}" == job.metadata.name
        )
        state.results[job.metadata.uid] = await find_results(self._client, job, task)

    # --- effects --------------------------------------------------------------------------

    async def _execute(
        self, plan: Plan, workflow: Workflow, series: WriteSeries, state: _State
    ) -> float | None:
        """Execute the plan for a workflow as stored. Return when to sync again."""
        due = self._seconds_left(state)
        if plan.status is None and not plan.changes and not plan.deletions and due != 0.0:
            return _sooner(plan.requeue_seconds, due)
        created_before = dict(state.created)
        outcome = Creations()
        status: WorkflowStatus | None = None
        try:
            await change_jobs(series, plan, outcome)
            if self._may_create(plan, series):
                if series.shares_commit:
                    workflow = await self._record_decisions(plan, workflow, series, state)
                await create_jobs(self._client, series, plan, outcome)
                state.created |= outcome.created
                state.starting.update(
                    creation.name for creation in plan.creations if creation.task in outcome.created
                )
            state.job_revision = max(state.job_revision, outcome.job_revision)
            status = settle(plan, outcome.created, outcome.failed, self._clock.now())
            newest = status or plan.workflow.status
            later = due != 0.0 and self._may_follow_later(plan, newest, workflow, series, state)
            if newest != workflow.status and not later:
                await self._write(series, workflow, newest, state)
        finally:
            await self._commit(series, state, created_before)
        self._hold_back(newest if later else None, workflow, state)
        self._written(plan, status, outcome, state)
        if status is not None and not series.shares_commit:
            await self._release_started(workflow, status, outcome)
        if outcome.error is not None:
            raise Retry(outcome.error)
        again = bool(outcome.failed) or (plan.creations and not self._may_create(plan, series))
        if again or (plan.ends and self._has_ttl(state)):
            return 0.0
        return _sooner(plan.requeue_seconds, self._seconds_left(state))

    async def _record_decisions(
        self, plan: Plan, workflow: Workflow, series: WriteSeries, state: _State
    ) -> Workflow:
        """Stage what the Jobs to create follow from, so that none is created if it is refused.

        Return the workflow as staged.
        """
        ends = settle(plan, {}, (), self._clock.now()) if plan.ends else None
        if ends is None or is_derivable(workflow.status, ends):
            await require_unchanged(series, workflow)
            return workflow
        await self._write(series, workflow, ends, state)
        metadata = replace(workflow.metadata, resource_version=str(state.workflow_revision))
        return replace(workflow, metadata=metadata, status=ends)

    def _seconds_left(self, state: _State) -> float | None:
        """Return the seconds until a status that was held back is written; None without one."""
        if state.unwritten is None:
            return None
        left = state.unwritten.since + BATCH_SECONDS - self._clock.monotonic()
        # Never a mere remainder of rounding.
        return left if left > _SHORTEST_DELAY else 0.0

    def _may_follow_later(
        self,
        plan: Plan,
        status: WorkflowStatus,
        workflow: Workflow,
        series: WriteSeries,
        state: _State,
    ) -> bool:
        """Return whether a status may be written some time after the Jobs that it records."""
        graph = state.graph
        return (
            series.shares_commit
            and graph is not None
            and len(graph.tasks) >= MANY_TASKS
            # The TTL of a Job is set after its end is on disk.
            and not graph.with_ttl
            and not plan.changes
            and not plan.deletions
            and not plan.events
            and is_derivable(workflow.status, status)
        )

    def _hold_back(self, status: WorkflowStatus | None, workflow: Workflow, state: _State) -> None:
        """Keep a status to write later; None if the newest one is on disk."""
        if status is None:
            state.unwritten = None
            return
        before = state.unwritten
        since = self._clock.monotonic() if before is None else before.since
        revision = workflow.metadata.revision
        state.unwritten = _Unwritten(status, workflow.status, revision, since)

    async def _release_started(
        self, workflow: Workflow, status: WorkflowStatus, outcome: Creations
    ) -> None:
        namespace, name = workflow.metadata.namespace, workflow.metadata.name
        self._held.add(
            workflow.key,
            {Key(JOBS, namespace, f"{name}-{task}"): uid for task, uid in outcome.created.items()},
        )
        await self._held.release(workflow.key, replace(workflow, status=status))

    def _may_create(self, plan: Plan, series: WriteSeries) -> bool:
        """Return whether Jobs may be created now, rather than after the next status.

        The end of a task must be recorded before a Job that depends on it is created: afterwards
        the ended Job may be deleted.
        """
        if not plan.creations:
            return False
        return not plan.ends or (
            series.shares_commit and len(plan.creations) <= _JOBS_IN_ONE_COMMIT
        )

    async def _write(
        self, series: WriteSeries, workflow: Workflow, status: WorkflowStatus, state: _State
    ) -> None:
        try:
            revision = await write_status(series, workflow, status)
        except NotFound as gone:
            raise Retry(f"{workflow.key} was deleted") from gone
        state.workflow_revision = max(state.workflow_revision, revision)

    async def _commit(
        self, series: WriteSeries, state: _State, created_before: dict[str, str]
    ) -> None:
        """Wait until the writes of a sync are on disk. Raises Retry if they were rolled back."""
        try:
            await series.durable()
        except ApiError as lost:
            state.workflow_revision = state.job_revision = 0
            # Those that are on disk after all will be found by their owner.
            state.created = created_before
            state.removed = None
            state.starting.clear()
            raise Retry(str(lost)) from lost

    def _written(
        self, plan: Plan, status: WorkflowStatus | None, outcome: Creations, state: _State
    ) -> None:
        """Update the state after a status is on disk; record Events and metrics."""
        workflow = plan.workflow
        if status is None:
            return
        events = list(plan.events)
        for task in outcome.created:
            text = f'Created job {workflow.metadata.name}-{task} for task "{task}"'
            events.append(Event("Normal", "SuccessfulCreate", text))
        for failure in outcome.failed:
            text = f'Task "{failure.task}" failed: {failure.reason}: {failure.message}'
            events.append(Event("Warning", "TaskFailed", text))
        for event in events:
            self._recorder.record(
                about(API_VERSION, "Workflow", workflow.metadata),
                event.type,
                event.reason,
                event.message,
            )
        self._keep_track(workflow, status, state)
        self._count(workflow.status, status)

    def _keep_track(self, workflow: Workflow, status: WorkflowStatus, state: _State) -> None:
        """Forget Jobs whose ends are recorded, and follow the Pods of new ones with results."""
        key = workflow.key
        state.created.clear()
        if state.graph is None:
            return
        # The first time, those of an earlier process as well.
        before = workflow.status.tasks if state.follows else ()
        state.follows = True
        for task, known in zip_longest(status.tasks, before):
            if task is known or task is None or not task.job_uid:
                continue
            if task.state in ENDED:
                state.results.pop(task.job_uid, None)
                state.final.pop(task.job_name, None)
                self._with_results.pop(task.job_uid, None)
                self._remnants.pop(task.job_uid, None)
                state.gone_since.pop(task.job_uid, None)
            elif state.graph.tasks[state.graph.positions[task.name]].results:
                self._with_results[task.job_uid] = (key, task.name)

    def _has_ttl(self, state: _State) -> bool:
        return state.graph is not None and bool(state.graph.with_ttl)

    def _count(self, before: WorkflowStatus, after: WorkflowStatus) -> None:
        ended: tuple[tuple[TaskState, int], ...] = (
            ("Complete", after.complete - before.complete),
            ("Failed", after.failed - before.failed),
            ("Skipped", after.skipped - before.skipped),
        )
        for state, amount in ended:
            if amount > 0:
                self._metrics.workflow_tasks_ended.count(TaskEnded(state=state), amount)
        for condition in after.conditions:
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                result: Result = "succeeded" if condition.type == COMPLETE else "failed"
                self._metrics.workflows_finished.inc(result=result, reason=condition.reason)


def _sooner(first: float | None, second: float | None) -> float | None:
    return min((seconds for seconds in (first, second) if seconds is not None), default=None)


def settle_delay(gone_for: float) -> float:
    """Return the seconds after which to look again at a Job that was deleted so long ago.

    Never a mere remainder of rounding: a timer may be due without any time having passed.
    """
    return max(_SETTLE_SECONDS - gone_for, _SHORTEST_DELAY)


def _controller_of(pod: Pod | None) -> OwnerReference | None:
    return None if pod is None else pod.metadata.controller_ref


def _owner_of(job: Job | None) -> Key | None:
    owner = job.metadata.controller_ref if job is not None else None
    if job is None or owner is None or owner.kind != "Workflow":
        return None
    return Key(WORKFLOWS, job.metadata.namespace, owner.name)


def _observed_state(job: Job | None) -> object:
    """Return the part of a Job that a sync depends on."""
    if job is None:
        return None
    condition = job.finished_condition
    return (
        job.metadata.uid,
        job.metadata.deleting,
        job.metadata.controller_ref,
        job.spec.suspend,
        job.spec.active_deadline_seconds,
        condition and condition.type,
    )
