"""The Job controller: gathers what is known of a Job, plans, carries the plan out.

A sync starts at once when the controller is idle; whatever happens while one is under way is
taken together by the next. It never plans on caches that are older than its own writes.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import msgspec

from onejob.api.errors import Invalid, NotFound
from onejob.client.base import Client, Patch, Selection
from onejob.client.events import EventRecorder, about
from onejob.clock import Clock
from onejob.controllers.job_effects import change_pods, remove_finalizers
from onejob.controllers.job_memory import Memories, Memory
from onejob.controllers.job_orphans import OrphanPods
from onejob.informers.cache import Delta
from onejob.informers.loop import Retry, work
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import WorkQueue
from onejob.metrics import Metrics
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.claiming import (
    adoption_patch,
    as_adopted,
    job_matcher,
    may_adopt,
    plan_claims,
    release_patch,
)
from onejob.planning.job import account, plan_job, settle
from onejob.planning.managing import is_ours, tracks_with_finalizers
from onejob.planning.names import TRACKING_NAMES
from onejob.planning.plan import Event, Metric, Note, Observed, Plan, RemovalOutcomes, StatusWrite
from onejob.planning.pod_facts import is_tracked
from onejob.planning.pod_template import PodStamp
from onejob.planning.pruning import failed_pods_limit
from onejob.planning.routing import route_pod_change
from onejob.planning.settings import Settings
from onejob.planning.status import status_patch

log = logging.getLogger(__name__)

#: How long to wait for the caches to show our own writes before giving the worker to others.
_CATCH_UP_SECONDS = 5.0

_DROP_ANNOTATION_PATCH = msgspec.json.encode(
    {"metadata": {"annotations": dict.fromkeys(TRACKING_NAMES)}}
)


class JobController:
    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        recorder: EventRecorder,
        *,
        clock: Clock,
        metrics: Metrics,
        settings: Settings,
        workers: int = 5,
    ) -> None:
        self._client = client
        self._jobs = informers.jobs
        self._pods = informers.pods
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        self._memories = Memories()
        #: One per Job, replaced with its generation.
        self._stamps: dict[str, tuple[int, PodStamp]] = {}
        self._orphans = OrphanPods(client, informers, settings)
        self._jobs.on_change(self._jobs_changed)
        self._pods.on_change(self._pods_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work(self._queue, self.sync, workers=self._workers, name="job"))
            group.create_task(self._orphans.run(self._workers))

    @property
    def idle(self) -> bool:
        return self._queue.idle and self._orphans.idle

    def notes(self, job: Job) -> tuple[Note, ...]:
        """What the last plan said about the Job's state, for `onejob why`."""
        memory = self._memories.known(job.metadata.uid)
        return memory.notes if memory is not None else ()

    # --- what wakes it --------------------------------------------------------------------

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            if delta.new is None:
                if delta.old is not None:
                    self._job_gone(delta.old)
                continue
            if delta.old is None:
                self._count_external(delta.new)
            if delta.new.finished:
                # Its Pods may still hold the finalizer: of a Job that somebody else finished,
                # or because we stopped before the last ones were freed.
                self._orphans.add_pods_of(delta.new)
                self._stamps.pop(delta.new.metadata.uid, None)
            self._queue.add(delta.key)

    def _job_gone(self, job: Job) -> None:
        uid = job.metadata.uid
        self._memories.forget(uid)
        self._stamps.pop(uid, None)
        self._orphans.add_pods_of(job)
        self._queue.add(job.key)

    def _count_external(self, job: Job) -> None:
        if self._settings.respect_managed_by and not is_ours(job, self._settings):
            name = job.spec.managed_by or ""
            self._metrics.count("job_controller_jobs_by_external_controller_total", name)

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        find_job = self._jobs.cache.get
        for delta in deltas:
            self._count_tracked(delta)
            self._remember_pod(delta)
            pod, gone = delta.new, delta.new is None
            if pod is None:
                pod = delta.old
            if pod is None:
                continue
            neighbours = self._jobs.cache.find("namespace", delta.key.namespace)
            route = route_pod_change(delta.old, pod, find_job, neighbours, gone=gone)
            for job in route.jobs:
                self._queue.add(job)
            if route.orphan:
                self._orphans.add(delta.key)

    def _remember_pod(self, delta: Delta[Pod]) -> None:
        before, after = _job_uid(delta.old), _job_uid(delta.new)
        if before is not None and before != after and delta.old is not None:
            self._memories.pod_gone(before, delta.old)
        if after is None or delta.new is None:
            return
        job = self._job_of(delta.new)
        if job is not None and job.finished and not self._keeps_spent(job):
            self._memories.pod_gone(after, delta.new)
        else:
            keep_spent = job is not None and self._keeps_spent(job)
            self._memories.pod_changed(after, delta.new, keep_spent=keep_spent)

    def _keeps_spent(self, job: Job) -> bool:
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
        memory = self._memories.of(job.metadata.uid)
        if memory.uncertain:
            await self._find_out(job, memory)
        await self._catch_up(memory)
        job = self._jobs.cache.get(key)
        if job is None:
            return None
        started = self._clock.monotonic()
        plan: Plan | None = None
        result = "error"
        try:
            if is_ours(job, self._settings) and not job.finished:
                await self._claim(job, memory)
            observed = Observed(backoff=memory.backoff, finish_pending=memory.finish_pending)
            plan = plan_job(job, memory.census, observed, self._clock.now(), self._settings)
            memory.notes = plan.notes
            await self._carry_out(plan, memory)
            result = "success"
        except OSError as lost:
            memory.uncertain = True
            raise Retry(f"the server could not be reached: {lost}") from lost
        finally:
            if plan is not None and plan.skipped is None:
                self._measure(plan, result, self._clock.monotonic() - started)
        if plan.skipped is not None and plan.skipped.kind == "finished" and job.finished:
            self._memories.forget(job.metadata.uid)
        return self._seconds_until_next(plan)

    async def _catch_up(self, memory: Memory) -> None:
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._jobs.reached(memory.job_revision)
                await self._pods.reached(memory.pod_revision)
        except TimeoutError as late:
            self._metrics.count("job_controller_stale_sync_skips_total", "batch", "jobs")
            raise Retry("the caches do not show our own writes yet") from late

    async def _find_out(self, job: Job, memory: Memory) -> None:
        """The answer to a write was lost. Ask the server itself what there is, and plan only
        once the cache shows as much: otherwise a Pod could be created twice."""
        listing = await self._client.list(Selection(PODS, job.metadata.namespace))
        for document in listing.documents:
            pod = read_pod(document)
            if _job_uid(pod) == job.metadata.uid:
                memory.pod_revision = max(memory.pod_revision, pod.metadata.revision)
        memory.uncertain = False

    async def _claim(self, job: Job, memory: Memory) -> None:
        """Adopt Pods that match and nobody controls; let go of those that no longer match."""
        strangers = self._pods.cache.find("uncontrolled", job.metadata.namespace)
        claims = plan_claims(job, [*_mismatched(job, memory), *strangers])
        for pod in claims.releases:
            try:
                written = await self._client.write(Patch(pod.key, release_patch(job, pod)))
                memory.pod_revision = max(memory.pod_revision, written.revision)
            except (NotFound, Invalid) as gone:
                log.info("%s need not be released: %s", pod.key, gone)
            memory.census.remove(pod.metadata.uid)
        if not claims.adoptions:
            return
        tracked = self._tracks(job)
        live = await self._live(job)
        if not may_adopt(job, live):
            raise Retry(f"{job.key} was deleted or replaced: it adopts nothing")
        for pod in claims.adoptions:
            try:
                written = await self._client.write(
                    Patch(pod.key, adoption_patch(job, pod, self._settings, tracked=tracked))
                )
            except NotFound:
                continue
            memory.pod_revision = max(memory.pod_revision, written.revision)
            memory.census.put(as_adopted(job, pod, self._settings, tracked=tracked))

    async def _live(self, job: Job) -> Job | None:
        try:
            return read_job(await self._client.get(job.key))
        except NotFound:
            return None

    async def _carry_out(self, plan: Plan, memory: Memory) -> None:
        self._tell_all(plan.job, plan.events)
        if plan.skipped is not None and not plan.prunings:
            return
        job = plan.job
        outcomes = await change_pods(
            self._client, plan, self._stamp(job), memory, lambda event: self._tell(job, event)
        )
        if plan.skipped is not None:
            return
        if plan.drop_annotation:
            job = await self._drop_annotation(job, memory)
        accounting = account(plan, outcomes)
        self._count_all(accounting.metrics)
        if accounting.write is not None:
            job = await self._write(job, accounting.write, memory)
        removals = RemovalOutcomes()
        if accounting.removals:
            removals = await remove_finalizers(
                self._client, job.metadata.namespace, accounting.removals, memory
            )
        settlement = settle(accounting, removals)
        if settlement.write is not None:
            await self._write(job, settlement.write, memory)
        if settlement.error is not None:
            raise Retry(settlement.error)

    async def _write(self, job: Job, write: StatusWrite, memory: Memory) -> Job:
        """Store a status, then say what may be said once it is stored. Returns the Job as it
        is now."""
        patch = Patch(job.key, status_patch(job, write.status), "merge", "status")
        try:
            written = await self._client.write(patch)
        except NotFound as gone:
            raise Retry(f"{job.key} is gone") from gone
        memory.job_revision = max(memory.job_revision, written.revision)
        if write.backoff is not None:
            memory.backoff = write.backoff
        memory.finish_pending = memory.finish_pending or write.finishes
        self._tell_all(job, write.events)
        self._count_all(write.metrics)
        return msgspec.structs.replace(_at_revision(job, written.revision), status=write.status)

    async def _drop_annotation(self, job: Job, memory: Memory) -> Job:
        """The Job is counted by existence from now on, and for good."""
        written = await self._client.write(Patch(job.key, _DROP_ANNOTATION_PATCH, "merge"))
        memory.job_revision = max(memory.job_revision, written.revision)
        return _at_revision(job, written.revision)

    def _stamp(self, job: Job) -> PodStamp:
        uid, generation = job.metadata.uid, job.metadata.generation
        kept = self._stamps.get(uid)
        if kept is None or kept[0] != generation:
            kept = self._stamps[uid] = (
                generation,
                PodStamp(job, self._settings, tracked=self._tracks(job)),
            )
        return kept[1]

    def _seconds_until_next(self, plan: Plan) -> float | None:
        at = plan.look_again_at
        if at is None:
            return None
        return max(0.0, (at - self._clock.now()).total_seconds())

    # --- telling --------------------------------------------------------------------------

    def _tell(self, job: Job, event: Event) -> None:
        subject = about("batch/v1", "Job", job.metadata)
        self._recorder.record(subject, event.type, event.reason, event.message)

    def _tell_all(self, job: Job, events: Iterable[Event]) -> None:
        for event in events:
            self._tell(job, event)

    def _count_all(self, metrics: Iterable[Metric]) -> None:
        for metric in metrics:
            self._metrics.count(
                metric.name, *(value for _, value in metric.labels), by=metric.amount
            )

    def _measure(self, plan: Plan, result: str, seconds: float) -> None:
        labels = (plan.job.spec.completion_mode, result, plan.action)
        self._metrics.count("job_controller_job_syncs_total", *labels)
        self._metrics.observe("job_controller_job_sync_duration_seconds", seconds, *labels)


def _at_revision(job: Job, revision: int) -> Job:
    metadata = msgspec.structs.replace(job.metadata, resource_version=str(revision))
    return msgspec.structs.replace(job, metadata=metadata)


def _job_uid(pod: Pod | None) -> str | None:
    """The UID of the Job that controls a Pod."""
    owner = pod.metadata.controller_ref if pod is not None else None
    return owner.uid if owner is not None and owner.kind == "Job" else None


def _mismatched(job: Job, memory: Memory) -> list[Pod]:
    """Our Pods whose labels the selector no longer matches."""
    matcher = job_matcher(job)
    if matcher is None:
        return []
    return [pod for pod in memory.census if not matcher.matches(pod.metadata.labels)]
