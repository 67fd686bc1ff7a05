"""Job controller: one sync of one Job reads the caches, plans and executes the plan.

A sync starts at once when the controller is idle; all changes that arrive during a sync are handled
by the next one. A sync never plans on caches that are older than the controller's own writes. The
triggers of a sync are in `onejob.controllers.job_events`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from onejob import metrics
from onejob.client.base import Patch, Selection
from onejob.client.events import about
from onejob.client.write_series import DurableWrites, WriteSeries
from onejob.controllers.context import ControllerContext
from onejob.controllers.job_claims import claim_pods
from onejob.controllers.job_effects import change_pods, remove_finalizers
from onejob.controllers.job_events import JobEvents
from onejob.controllers.job_orphans import OrphanPods
from onejob.controllers.job_state import JobState, JobStates, is_accounted
from onejob.controllers.start_gates import StartGate
from onejob.informers.informer import Informer
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.objects.job import Job, read_job
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import read_pod
from onejob.planning.job.legacy import drop_annotation_patch
from onejob.planning.job.operator_settings import (
    Settings,
    is_ours,
    marks_of_pods,
    tracks_with_finalizers,
)
from onejob.planning.job.plan import (
    Event,
    Increment,
    Note,
    Observed,
    Plan,
    RemovalOutcomes,
    StatusWrite,
)
from onejob.planning.job.planner import account, plan_job, settle
from onejob.planning.job.pod_facts import controlling_job_uid
from onejob.planning.job.pod_template import PodFactory
from onejob.planning.job.pruning import keeps_accounted_pods
from onejob.planning.job.reporting import completion_mode, finalizer_removal_failed
from onejob.planning.job.status import status_patch, with_status
from onejob.wire.errors import ApiError, NotFound

if TYPE_CHECKING:
    from onejob.controllers.job_workloads import JobWorkloads
    from onejob.controllers.node_maintenance import NodeMaintenance

log = logging.getLogger(__name__)

#: Seconds to wait for the caches to include our own writes before requeueing the Job.
_CATCH_UP_SECONDS = 5.0


class JobController:
    """Controller of Jobs: creates and deletes their Pods, and writes their status.

    Guarantees: a Job is synced by one worker at a time, on caches that include the controller's own
    writes. A failed sync is retried with back-off.

    `run` works until cancelled; the informers of the context must be running as well.
    """

    def __init__(
        self,
        context: ControllerContext,
        *,
        settings: Settings,
        workers: int = 5,
        new_series: Callable[[], WriteSeries] | None = None,
        gate: StartGate | None = None,
        maintenance: "NodeMaintenance | None" = None,
        workloads: "JobWorkloads | None" = None,
    ) -> None:
        """`new_series` starts the write series of one sync; by default each write is awaited.

        Jobs held by the `gate` are not synced until it releases them. Without `maintenance` no node
        is considered under maintenance, and without `workloads` no Job gets a PodGroup.
        """
        self._client = context.client
        self._new_series = new_series or (lambda: DurableWrites(context.client))
        self._jobs = context.informers.jobs
        self._pods = context.informers.pods
        self._recorder = context.recorder
        self._clock = context.clock
        self._metrics = context.metrics
        self._settings = settings
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        self._states = JobStates()
        self._orphans = OrphanPods(context.client, context.informers, settings)
        self._events = JobEvents(
            context,
            settings=settings,
            states=self._states,
            queue=self._queue,
            orphans=self._orphans,
        )
        self._gate = gate
        if gate is not None:
            gate.on_admitted(self._queue.add)
        self._workloads = workloads
        self._maintenance = maintenance
        if maintenance is not None:
            maintenance.on_change(self._queue.add)

    async def run(self) -> None:
        """Process the queues until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                work(
                    self._queue,
                    self.sync,
                    workers=self._workers,
                    name="job",
                    uid_of=self._uid_of,
                )
            )
            group.create_task(self._orphans.run(self._workers))

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being processed."""
        return self._queue.idle and self._orphans.idle

    @property
    def queues(self) -> Mapping[metrics.QueueName, WorkQueue[Key]]:
        return {"job": self._queue, "job_orphan_pod": self._orphans.queue}

    @property
    def remembered_jobs(self) -> int:
        """Number of Jobs with state between syncs; for tests."""
        return len(self._states)

    def clock_jumped(self) -> None:
        """Sync all delayed Jobs after a clock jump.

        Their deadlines and back-offs may have passed, or be further away.
        """
        self._queue.make_delayed_due()

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Sync one Job. Return the seconds after which to sync again without a change, or None."""
        job = self._jobs.cache.get(key)
        if job is None or self._is_held(job):
            return None
        state = self._states.of(job.metadata.uid)
        try:
            return await self._sync(job, state)
        except OSError as lost:
            state.needs_relist = True
            raise Retry(f"cannot reach the server: {lost}") from lost

    async def _sync(self, job: Job, state: JobState) -> float | None:
        """Sync a Job once its state is up to date; return the seconds until the next sync, or
        None."""
        current = await self._catch_up(job, state)
        if current is None:
            return None
        started = self._clock.monotonic()
        plan: Plan | None = None
        result: Literal["success", "error"] = "error"
        try:
            plan = await self._plan(current, state)
            await self._execute(plan, state)
            result = "success"
        finally:
            if plan is None or plan.skipped is None:
                action = "reconciling" if plan is None else plan.action
                seconds = self._clock.monotonic() - started
                mode = completion_mode(job)
                self._metrics.job_syncs.inc(completion_mode=mode, result=result, action=action)
                self._metrics.job_sync_duration.observe(
                    seconds, completion_mode=mode, result=result, action=action
                )
        if plan.skipped is not None:
            self._skip(plan.job, plan.skipped)
        return self._seconds_until_next(plan)

    async def _catch_up(self, job: Job, state: JobState) -> Job | None:
        """Wait until the caches include all our writes; return the current Job.

        None if the Job is not to be synced: it was deleted, replaced, or is held by the gate.
        """
        if state.needs_relist:
            await self._relist_pods(job, state)
        await self._wait_for_cache(self._jobs, state.job_revision, "batch", "jobs")
        await self._wait_for_cache(self._pods, state.pod_revision, "", "pods")
        current = self._jobs.cache.get(job.key)
        # The state of a Job is not valid for a later Job of the same name.
        if current is None or current.metadata.uid != job.metadata.uid:
            return None
        # The Job may have been resumed during the wait.
        return None if self._is_held(current) else current

    def _is_held(self, job: Job) -> bool:
        """Return whether the start gate holds the Job."""
        return self._gate is not None and self._gate.holds(job)

    async def _wait_for_cache(
        self, informer: Informer[Any], revision: int, group: str, resource: str
    ) -> None:
        """Wait until an informer includes a revision. Raises Retry if it does not for too long."""
        if informer.caught_up_to(revision):
            return
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await informer.reached(revision)
        except TimeoutError as late:
            self._metrics.stale_sync_skips.inc(group=group, resource=resource)
            raise Retry(f"the cache of {resource} does not include our own writes yet") from late

    async def _relist_pods(self, job: Job, state: JobState) -> None:
        """List the Job's Pods from the server, because the census may lack some.

        The next plan waits until the cache includes them too: otherwise a Pod could be created
        twice. The same goes for the Job: once the Pods' finalizers are removed, only the Job's
        status records that an index has failed.
        """
        state.needs_relist = False
        try:
            listing = await self._client.list(Selection(PODS, job.metadata.namespace))
            newest = read_job(await self._client.get(job.key))
        except NotFound:
            return
        except ApiError:
            state.needs_relist = True
            raise
        if newest.metadata.uid == job.metadata.uid:
            state.job_revision = max(state.job_revision, newest.metadata.revision)
        there: set[str] = set()
        for document in listing.documents:
            pod = read_pod(document)
            there.add(pod.metadata.uid)
            if controlling_job_uid(pod) == job.metadata.uid:
                state.pod_revision = max(state.pod_revision, pod.metadata.revision)
                if is_accounted(pod):
                    state.record_end(pod)
                    if keeps_accounted_pods(job, self._settings):
                        state.put(pod)
        for pod in list(state.census):
            if pod.metadata.uid not in there and pod.metadata.revision <= listing.revision:
                state.drop_before_cache(pod.metadata.uid)

    async def _plan(self, job: Job, state: JobState) -> Plan:
        """Return the plan for a Job, after claiming its Pods. Raises Retry."""
        if is_ours(job, self._settings) and not job.finished:
            pods = self._pods.cache
            if await claim_pods(self._client, pods, job, state, self._settings):
                claimed = await self._catch_up(job, state)
                if claimed is None:
                    raise Retry(f"{job.key} was deleted while its Pods were claimed")
                job = claimed
        observed = Observed(
            backoff=state.recall_backoff(job),
            finish_pending=state.finish_pending,
            future_times=state.future_times,
            nodes_in_maintenance=(
                frozenset() if self._maintenance is None else self._maintenance.nodes
            ),
        )
        while True:
            plan = plan_job(job, state.census, observed, self._clock.now(), self._settings)
            state.future_times = plan.future_times
            if not plan.deletions or not self._pods.has_deferred:
                return plan
            # Which Pods are deleted depends on their progress, and each is deleted only at the
            # version that was evaluated: apply the deferred changes and plan again. Flushing before
            # every plan was rejected, because it would undo the saving for all other syncs. Other
            # changes in between are left to the next sync: every write of this one names the
            # version that it is based on.
            await self._pods.flush_deferred()

    def _uid_of(self, key: Key) -> str:
        """Return the UID of the Job; its key if it is not cached."""
        job = self._jobs.cache.get(key)
        return str(key) if job is None else job.metadata.uid

    def _skip(self, job: Job, why: Note) -> None:
        """Drop the state of a Job that needs no action until it changes."""
        match why.kind:
            case "managed-elsewhere":
                self._states.forget(job.metadata.uid)
            case "finished" if job.finished:
                # Its Pods may still have the finalizer: another client finished the Job, or this
                # process stopped before it had removed the last ones.
                self._orphans.add_pods_of(job)
                self._states.forget(job.metadata.uid)

    async def _execute(self, plan: Plan, state: JobState) -> None:
        """Execute a plan: Pod changes first, then the status. Raises Retry, ApiError."""
        self._record_events(plan.job, plan.events)
        if plan.skipped is not None and not plan.prunings:
            return
        client = self._new_series()
        try:
            await self._write_all(plan, state, client)
        finally:
            try:
                await client.durable()
            except ApiError as lost:
                state.writes_lost()
                raise Retry(str(lost)) from lost

    async def _write_all(self, plan: Plan, state: JobState, client: WriteSeries) -> None:
        """Change the Pods and write the status that follows. Raises Retry, ApiError."""
        job = plan.job
        outcomes = await change_pods(
            client,
            plan,
            await self._pod_factory(plan, state),
            state,
            partial(self._record_events, job),
        )
        if plan.skipped is not None:
            if outcomes.error is not None:
                raise Retry(outcomes.error)
            return
        if plan.drop_annotation:
            job = await self._drop_annotation(job, state, client)
        accounting = account(plan, outcomes)
        self._count_all(accounting.metrics)
        if accounting.write is not None:
            job = await self._write(job, accounting.write, state, client)
        removals = RemovalOutcomes()
        if accounting.removals:
            removals = await remove_finalizers(
                client, job.metadata.namespace, accounting.removals, state
            )
            if removals.error is not None:
                self._record_events(job, [finalizer_removal_failed(removals.error)])
        settlement = settle(accounting, removals)
        if settlement.write is not None:
            await self._write(job, settlement.write, state, client)
        if settlement.error is not None:
            raise Retry(settlement.error)

    async def _write(
        self, job: Job, write: StatusWrite, state: JobState, client: WriteSeries
    ) -> Job:
        """Write a status, then record its Events and metrics. Return the updated Job."""
        patch = Patch(job.key, status_patch(job, write.status), "merge", "status")
        try:
            written = await client.write(patch)
        except NotFound as gone:
            raise Retry(f"{job.key} was deleted") from gone
        state.job_revision = max(state.job_revision, written.revision)
        if write.backoff is not None:
            state.backoff = write.backoff
        state.finish_pending = state.finish_pending or write.finishes
        self._record_events(job, write.events)
        self._count_all(write.metrics)
        job = with_status(job, write.status, str(written.revision))
        if write.finishes:
            self._measure_duration(job)
            _log_failed_job(job)
        return job

    async def _drop_annotation(self, job: Job, state: JobState, client: WriteSeries) -> Job:
        """Remove the tracking annotation of a legacy Job.

        The Job is counted by its existing Pods from now on, permanently.
        """
        written = await client.write(Patch(job.key, drop_annotation_patch(job), "merge"))
        state.job_revision = max(state.job_revision, written.revision)
        return with_status(job, job.status, str(written.revision))

    async def _pod_factory(self, plan: Plan, state: JobState) -> PodFactory:
        """Return the factory of the Job's Pods, kept in `state` per generation."""
        job = plan.job
        tracked = tracks_with_finalizers(job, self._settings)
        made_for = (job.metadata.generation, tracked)
        if state.pod_factory is None or state.pod_factory[0] != made_for:
            marks = marks_of_pods(job, self._settings)
            group = ""
            if self._workloads is not None and plan.skipped is None:
                group = await self._workloads.ensure(job, has_pods=any(True for _ in state.census))
            pod_factory = PodFactory(
                job, self._settings, tracked=tracked, marks=marks, pod_group=group
            )
            state.pod_factory = (made_for, pod_factory)
        return state.pod_factory[1]

    def _seconds_until_next(self, plan: Plan) -> float | None:
        """Return the seconds until the plan has to be reconsidered; None if it need not be."""
        at = plan.look_again_at
        if at is None:
            return None
        return max(0.0, (at - self._clock.now()).total_seconds())

    # --- Events and metrics ---------------------------------------------------------------

    def _record_events(self, job: Job, events: Sequence[Event]) -> None:
        subject = about("batch/v1", "Job", job.metadata)
        for (type_, reason), alike in groupby(events, attrgetter("type", "reason")):
            self._recorder.record(subject, type_, reason, *(event.message for event in alike))

    def _count_all(self, increments: Iterable[Increment]) -> None:
        """Add the increments to their metrics."""
        counters = self._metrics
        for increment in increments:
            match increment.labels:
                case metrics.JobFinished() as labels:
                    counters.jobs_finished.count(labels, increment.amount)
                case metrics.PodsFinished() as labels:
                    counters.pods_finished.count(labels, increment.amount)
                case metrics.IndexesFinished() as labels:
                    counters.indexes_finished.count(labels, increment.amount)
                case metrics.FailurePolicyMatch() as labels:
                    counters.failure_policy_matches.count(labels, increment.amount)
                case metrics.PodCreation() as labels:
                    counters.pod_creations.count(labels, increment.amount)

    def _measure_duration(self, job: Job) -> None:
        """Record the duration of a finished Job.

        Label cardinality is bounded: no names, no namespaces.
        """
        condition, start = job.finished_condition, job.status.start_time
        if condition is None or condition.last_transition_time is None or start is None:
            return
        owner = job.metadata.controller_ref
        seconds = max((condition.last_transition_time - start).total_seconds(), 0.0)
        self._metrics.job_duration.observe(
            seconds,
            result="succeeded" if condition.type == "Complete" else "failed",
            owner="none" if owner is None else "CronJob" if owner.kind == "CronJob" else "other",
        )


def _log_failed_job(job: Job) -> None:
    condition = job.finished_condition
    if condition is not None and condition.type == "Failed":
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        message = " ".join(condition.message.split())
        log.warning("job %s failed: %s: %s", name, condition.reason, message)
