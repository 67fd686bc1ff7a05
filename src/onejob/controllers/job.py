"""The Job controller: gathers what is known of a Job, plans, carries the plan out.

A sync starts at once when the controller is idle; whatever happens while one is under way is
taken together by the next. It never plans on caches that are older than its own writes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from onejob.client.ahead import Ahead, InStep
from onejob.client.base import Patch, Selection
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.job_claims import claim_pods
from onejob.controllers.job_effects import change_pods, remove_finalizers
from onejob.controllers.job_orphans import OrphanPods
from onejob.controllers.job_state import JobState, JobStates, is_accounted
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.loop import Retry, work
from onejob.informers.workqueue import WorkQueue
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.legacy import drop_annotation_patch
from onejob.planning.job.managing import is_ours, marks_of_pods, tracks_with_finalizers
from onejob.planning.job.plan import (
    Event,
    Metric,
    Note,
    Observed,
    Plan,
    RemovalOutcomes,
    StatusWrite,
)
from onejob.planning.job.planner import account, plan_job, settle
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.job.pod_template import PodStamp
from onejob.planning.job.pruning import failed_pods_limit
from onejob.planning.job.routing import has_ended, route_pod_change, was_started_by
from onejob.planning.job.settings import Settings
from onejob.planning.job.status import status_patch, with_status
from onejob.planning.names import BUILT_IN_MANAGER
from onejob.wire.errors import ApiError, NotFound

log = logging.getLogger(__name__)

#: How long to wait for the caches to show our own writes before giving the worker to others.
_CATCH_UP_SECONDS = 5.0
#: How long news that calls for nothing (a Pod was placed, or is ready) waits for other news.
_SOON_SECONDS = 0.1


class JobController:
    def __init__(
        self,
        context: ControllerContext,
        *,
        settings: Settings,
        workers: int = 5,
        ahead: Callable[[], Ahead] | None = None,
    ) -> None:
        """`ahead` starts the series of writes of one sync; by default each is waited for."""
        self._client = context.client
        self._ahead = ahead or (lambda: InStep(context.client))
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
        self._jobs.on_change(self._jobs_changed)
        self._pods.on_change(self._pods_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work(self._queue, self.sync, workers=self._workers, name="job"))
            group.create_task(self._orphans.run(self._workers))

    @property
    def idle(self) -> bool:
        return self._queue.idle and self._orphans.idle

    @property
    def queue_depths(self) -> Mapping[str, int]:
        return {"job": len(self._queue), "job_orphan_pod": len(self._orphans)}

    @property
    def remembered_jobs(self) -> int:
        """Of how many Jobs something is kept in mind; for tests and figures."""
        return len(self._states)

    # --- what wakes it --------------------------------------------------------------------

    def clock_jumped(self) -> None:
        """Deadlines and back-offs may be over, or further away."""
        self._queue.make_delayed_due()

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            old, new = delta.old, delta.new
            # A list after a gap may show a namesake where there was another Job.
            same = old is not None and new is not None and old.metadata.uid == new.metadata.uid
            if old is not None and not same:
                self._states.forget(old.metadata.uid)
                self._orphans.job_gone(old)
            if new is None:
                self._queue.drop(delta.key)
                continue
            if not same:
                self._job_appeared(new)
            elif not new.finished and self._is_own_write(new):
                continue
            elif old is not None and self._keeps_accounted(new) and not self._keeps_accounted(old):
                self._states.of(new.metadata.uid).needs_relist = True
            self._queue.add(delta.key)

    def _is_own_write(self, job: Job) -> bool:
        """Whether we know this version: all of our writes rest on the one before, so up to our
        last there is none that is neither ours nor was seen."""
        return job.metadata.revision <= self._states.of(job.metadata.uid).job_revision

    def _job_appeared(self, job: Job) -> None:
        self._states.job_appeared(job, keep_accounted=self._keeps_accounted(job))
        manager = job.spec.managed_by
        if manager not in (None, BUILT_IN_MANAGER) and not is_ours(job, self._settings):
            self._metrics.count("job_controller_jobs_by_external_controller_total", manager or "")

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        # Most changes are of Pods that belong to a few Jobs which go on: look those up once.
        busy: dict[str, _Busy | None] = {}
        at_once: set[Key] = set()
        soon: set[Key] = set()
        for delta in deltas:
            self._count_tracked(delta)
            old, new = delta.old, delta.new
            pod = new if new is not None else old
            if pod is not None and (owner := pod.metadata.controller_ref) is not None:
                if owner.uid not in busy:
                    busy[owner.uid] = self._busy(pod)
                job = busy[owner.uid]
                if job is not None and (old is None or old.metadata.controller_ref == owner):
                    if is_accounted(pod):
                        job.state.record_end(pod)
                        if not job.keeps_accounted:
                            job.state.drop(pod.metadata.uid)
                            soon.add(job.key)
                            continue
                    if new is not None:
                        if job.state.put(new):
                            # One that is active calls for nothing: only numbers are shown of it.
                            (soon if new.active else at_once).add(job.key)
                        continue
            self._any_pod_changed(delta)
        for key in at_once:
            self._queue.add(key)
        for key in soon - at_once:
            self._queue.add_after(key, _SOON_SECONDS)

    def _busy(self, pod: Pod) -> "_Busy | None":
        """The Job that controls a Pod, if whatever happens to the Pod calls for a sync of it."""
        job = self._job_of(pod)
        if job is None or _job_uid(pod) is None or job.finished or not is_ours(job, self._settings):
            return None
        return _Busy(job.key, self._states.of(job.metadata.uid), self._keeps_accounted(job))

    def _any_pod_changed(self, delta: Delta[Pod]) -> None:
        self._remember_pod(delta)
        pod, gone = delta.new, delta.new is None
        if pod is None:
            pod = delta.old
        if pod is None:
            return
        neighbours = self._jobs.cache.find("namespace", delta.key.namespace)
        route = route_pod_change(delta.old, pod, self._jobs.cache.get, neighbours, gone=gone)
        for job in route.jobs:
            self._queue.add(job)
        if route.orphan or (
            not gone and was_started_by(self._settings.manager, pod) and has_ended(pod)
        ):
            self._orphans.add(delta.key)

    def _remember_pod(self, delta: Delta[Pod]) -> None:
        before, after = _job_uid(delta.old), _job_uid(delta.new)
        if before is not None and before != after and delta.old is not None:
            job_known = self._job_of(delta.old) is not None
            self._states.pod_gone(before, delta.old, job_known=job_known)
        if after is None or delta.new is None:
            return
        job = self._job_of(delta.new)
        if job is None:
            # Whether what has ended matters is not known before the Job is.
            self._states.pod_changed(after, delta.new, keep_accounted=True)
        elif self._is_done_with(job, delta.new):
            self._states.pod_gone(after, delta.new, job_known=True)
        else:
            keep_accounted = self._keeps_accounted(job)
            self._states.pod_changed(after, delta.new, keep_accounted=keep_accounted)

    def _is_done_with(self, job: Job, pod: Pod) -> bool:
        if not is_ours(job, self._settings):
            return True
        return job.finished and (pod.metadata.deleting or not self._keeps_accounted(job))

    def _keeps_accounted(self, job: Job) -> bool:
        """Whether Pods that have ended and hold no finalizer may still be acted upon."""
        return failed_pods_limit(job, self._settings) is not None or not self._tracks(job)

    def _tracks(self, job: Job) -> bool:
        return tracks_with_finalizers(job, self._settings)

    def _job_of(self, pod: Pod) -> Job | None:
        owner = pod.metadata.controller_ref
        if owner is None:
            return None
        job = self._jobs.cache.get(Key(JOBS, pod.metadata.namespace, owner.name))
        return job if job is not None and job.metadata.uid == owner.uid else None

    def _count_tracked(self, delta: Delta[Pod]) -> None:
        had = delta.old is not None and delta.old.terminal and is_tracked(delta.old)
        has = delta.new is not None and delta.new.terminal and is_tracked(delta.new)
        if had != has:
            name = "job_controller_terminated_pods_tracking_finalizer_total"
            self._metrics.count(name, "add" if has else "delete")
            self._metrics.count("job_terminated_pod_tracking_finalizer", by=1 if has else -1)

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Bring one Job a step further. Returns the seconds until time alone may matter."""
        job = self._jobs.cache.get(key)
        if job is None:
            return None
        state = self._states.of(job.metadata.uid)
        try:
            return await self._sync(job, state)
        except OSError as lost:
            state.needs_relist = True
            raise Retry(f"the server could not be reached: {lost}") from lost

    async def _sync(self, job: Job, state: JobState) -> float | None:
        current = await self._catch_up(job, state)
        if current is None:
            return None
        started = self._clock.monotonic()
        plan: Plan | None = None
        result = "error"
        try:
            plan = await self._plan(current, state)
            await self._execute(plan, state)
            result = "success"
        finally:
            if plan is None or plan.skipped is None:
                action = "reconciling" if plan is None else plan.action
                seconds = self._clock.monotonic() - started
                self._measure((job.spec.completion_mode, result, action), seconds)
        if plan.skipped is not None:
            self._skip(plan.job, plan.skipped)
        return self._seconds_until_next(plan)

    async def _catch_up(self, job: Job, state: JobState) -> Job | None:
        """The Job as it is once the caches show all that we know to be written."""
        if state.needs_relist:
            await self._relist_pods(job, state)
        await self._wait_for_cache(self._jobs, state.job_revision, "batch", "jobs")
        await self._wait_for_cache(self._pods, state.pod_revision, "", "pods")
        current = self._jobs.cache.get(job.key)
        # What was remembered of a Job means nothing for a namesake that took its place.
        same = current is not None and current.metadata.uid == job.metadata.uid
        return current if same else None

    async def _wait_for_cache(
        self, informer: Informer[Any], revision: int, group: str, resource: str
    ) -> None:
        if informer.caught_up_to(revision):
            return
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await informer.reached(revision)
        except TimeoutError as late:
            self._metrics.count("job_controller_stale_sync_skips_total", group, resource)
            raise Retry(f"the cache of {resource} does not show our own writes yet") from late

    async def _relist_pods(self, job: Job, state: JobState) -> None:
        """Ask the server itself what there is, and plan only once the cache shows as much:
        otherwise a Pod could be created twice."""
        state.needs_relist = False
        try:
            listing = await self._client.list(Selection(PODS, job.metadata.namespace))
        except ApiError:
            state.needs_relist = True
            raise
        there: set[str] = set()
        for document in listing.documents:
            pod = read_pod(document)
            there.add(pod.metadata.uid)
            if _job_uid(pod) == job.metadata.uid:
                state.pod_revision = max(state.pod_revision, pod.metadata.revision)
                if is_accounted(pod):
                    state.record_end(pod)
                    if self._keeps_accounted(job):
                        state.put(pod)
        for pod in list(state.census):
            if pod.metadata.uid not in there and pod.metadata.revision <= listing.revision:
                state.drop_before_cache(pod.metadata.uid)

    async def _plan(self, job: Job, state: JobState) -> Plan:
        if is_ours(job, self._settings) and not job.finished:
            pods = self._pods.cache
            if await claim_pods(self._client, pods, job, state, self._settings):
                claimed = await self._catch_up(job, state)
                if claimed is None:
                    raise Retry(f"{job.key} went away while its Pods were claimed")
                job = claimed
        observed = Observed(
            backoff=state.recall_backoff(job),
            finish_pending=state.finish_pending,
            future_times=state.future_times,
        )
        plan = plan_job(job, state.census, observed, self._clock.now(), self._settings)
        state.future_times = plan.future_times
        if plan.deletions:
            # Which Pods go depends on how far they are, and they go only as they were judged.
            # Whatever else happens in these few turns is for the next sync: all writes of this
            # one name the versions that they rest on.
            await self._pods.flush_deferred()
            plan = plan_job(job, state.census, observed, self._clock.now(), self._settings)
        return plan

    def _skip(self, job: Job, why: Note) -> None:
        """There is nothing to do for a Job, now or until it changes."""
        match why.kind:
            case "managed-elsewhere":
                log.info("%s %s", job.key, why.text)
                self._states.forget(job.metadata.uid)
            case "finished" if job.finished:
                # Its Pods may still hold the finalizer: of a Job that somebody else finished,
                # or because we stopped before the last ones were freed.
                self._orphans.add_pods_of(job)
                self._states.forget(job.metadata.uid)

    async def _execute(self, plan: Plan, state: JobState) -> None:
        self._record_events(plan.job, plan.events)
        if plan.skipped is not None and not plan.prunings:
            return
        client = self._ahead()
        try:
            await self._write_all(plan, state, client)
        finally:
            try:
                await client.durable()
            except ApiError as lost:
                state.writes_lost()
                raise Retry(str(lost)) from lost

    async def _write_all(self, plan: Plan, state: JobState, client: Ahead) -> None:
        job = plan.job
        outcomes = await change_pods(
            client,
            plan,
            self._pod_stamp(job, state),
            state,
            lambda event: self._record_event(job, event),
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
        settlement = settle(accounting, removals)
        if settlement.write is not None:
            await self._write(job, settlement.write, state, client)
        if settlement.error is not None:
            raise Retry(settlement.error)

    async def _write(self, job: Job, write: StatusWrite, state: JobState, client: Ahead) -> Job:
        """Store a status, then say what may be said once it is stored. Returns the Job as it
        is now."""
        patch = Patch(job.key, status_patch(job, write.status), "merge", "status")
        try:
            written = await client.write(patch)
        except NotFound as gone:
            raise Retry(f"{job.key} is gone") from gone
        state.job_revision = max(state.job_revision, written.revision)
        if write.backoff is not None:
            state.backoff = write.backoff
        state.finish_pending = state.finish_pending or write.finishes
        self._record_events(job, write.events)
        self._count_all(write.metrics)
        return with_status(job, write.status, str(written.revision))

    async def _drop_annotation(self, job: Job, state: JobState, client: Ahead) -> Job:
        """The Job is counted by existence from now on, and for good."""
        written = await client.write(Patch(job.key, drop_annotation_patch(job), "merge"))
        state.job_revision = max(state.job_revision, written.revision)
        return with_status(job, job.status, str(written.revision))

    def _pod_stamp(self, job: Job, state: JobState) -> PodStamp:
        tracked = self._tracks(job)
        made_for = (job.metadata.generation, tracked)
        if state.pod_stamp is None or state.pod_stamp[0] != made_for:
            marks = marks_of_pods(job, self._settings)
            pod_stamp = PodStamp(job, self._settings, tracked=tracked, marks=marks)
            state.pod_stamp = (made_for, pod_stamp)
        return state.pod_stamp[1]

    def _seconds_until_next(self, plan: Plan) -> float | None:
        at = plan.look_again_at
        if at is None:
            return None
        return max(0.0, (at - self._clock.now()).total_seconds())

    # --- telling --------------------------------------------------------------------------

    def _record_event(self, job: Job, event: Event) -> None:
        subject = about("batch/v1", "Job", job.metadata)
        self._recorder.record(subject, event.type, event.reason, event.message)

    def _record_events(self, job: Job, events: Iterable[Event]) -> None:
        for event in events:
            self._record_event(job, event)

    def _count_all(self, metrics: Iterable[Metric]) -> None:
        for metric in metrics:
            self._metrics.count(
                metric.name, *(value for _, value in metric.labels), by=metric.amount
            )

    def _measure(self, labels: tuple[str, str, str], seconds: float) -> None:
        self._metrics.count("job_controller_job_syncs_total", *labels)
        self._metrics.observe("job_controller_job_sync_duration_seconds", seconds, *labels)


class _Busy(NamedTuple):
    """A Job that is ours and not finished, as far as changes of its Pods concern it."""

    key: Key
    state: JobState
    keeps_accounted: bool


def _job_uid(pod: Pod | None) -> str | None:
    """The UID of the Job that controls a Pod."""
    owner = pod.metadata.controller_ref if pod is not None else None
    if owner is None or owner.kind != "Job" or owner.api_version != "batch/v1":
        return None
    return owner.uid
