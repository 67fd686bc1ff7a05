"""Queue controller: suspend Jobs while the concurrency limits are exhausted, resume them in order.

A new Job is either admitted or suspended before the Job controller acts on it (`holds`), so none of
its Pods starts too early. Waiting Jobs are suspended by an ordinary write, so that all clients can
see it, and a restart restores the queue: its order is in annotations.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from onejob.client.base import Patch, Selection, Written
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.queueing.config import CONFIG_MAPS, LIMITS, fetch_limits
from onejob.controllers.start_gates import HeldJobs
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.shared import AnyObject
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.planning.queue.limits import (
    BadLimits,
    Limits,
    scope_text,
)
from onejob.planning.queue.membership import (
    PRIORITY_CLASSES,
    Priorities,
    PriorityClass,
    QueueState,
    entered_at,
    is_queued,
    queue_patch,
    queue_state,
    read_priority_class,
    start_patch,
)
from onejob.planning.queue.order import JobQueue, rank
from onejob.wire.errors import ApiError, NotFound

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
#: Writes per batch, with a yield to the event loop in between.
_BATCH = 100


class QueueController:
    """Start gate of Jobs (`StartGate`) that enforces the concurrency limits of the ConfigMap.

    Guarantees: a new Job that is subject to a limit is held until it is admitted or suspended; Jobs
    without a limit are never held, except while changed limits are being read. Waiting Jobs are
    resumed by priority, then by the time they entered. Invalid limits are logged and the previous
    ones stay in force. Running Jobs are not suspended when limits shrink.
    """

    def __init__(self, context: ControllerContext, *, is_ours: Callable[[Job], bool]) -> None:
        """Jobs for which `is_ours` returns False run elsewhere, and do not count."""
        self._client = context.client
        self._recorder = context.recorder
        self._is_ours = is_ours
        self._jobs = context.informers.jobs
        self._pods = context.informers.pods
        self._classes: Informer[PriorityClass] = Informer(
            context.client,
            Selection(PRIORITY_CLASSES),
            read_priority_class,
            lambda one: Key(PRIORITY_CLASSES, "", one.metadata.name),
        )
        self._limits = Limits()
        #: Whether the ConfigMap has changed since it was read.
        self._limits_changed = False
        self._line = JobQueue(self._limits)
        self._priorities = Priorities.of(())
        self._keys: dict[str, Key] = {}
        #: UIDs of waiting Jobs that are not suspended yet.
        self._to_suspend: set[str] = set()
        #: UIDs of Jobs being written: their cached versions are out of date.
        self._in_flight: set[str] = set()
        #: Revision of the last write to a Job, by UID; older versions of it are ignored.
        self._written: dict[str, int] = {}
        #: Jobs that `holds` has withheld from the Job controller.
        self._held = HeldJobs()
        self._wake = asyncio.Event()
        context.informers.metadata(CONFIG_MAPS).on_change(self._config_maps_changed)
        self._jobs.on_change(self._jobs_changed)
        self._classes.on_change(self._classes_changed)

    # --- for the Job controller -----------------------------------------------------------

    def on_admitted(self, call: Callable[[Key], None]) -> None:
        """Call `call` with the key of each Job that was held and no longer is."""
        self._held.on_admitted(call)

    def holds(self, job: Job) -> bool:
        """Return whether the Job must not be acted on yet, because its admission is undecided."""
        held = self._is_undecided(job)
        if held:
            self._held.add(job.key)
        return held

    def _is_undecided(self, job: Job) -> bool:
        """Return whether the Job may be subject to a limit and is neither admitted nor
        suspended."""
        if not (self._limits or self._limits_changed) or job.spec.suspend:
            return False
        uid = job.metadata.uid
        if not self._is_ours(job) or self._line.runs(uid):
            return False
        if self._line.waits(uid):
            return True
        if not self._limits_changed and not self._limits.scopes_of(job):
            return False
        return queue_state(job, has_pods=self._has_pods) == "waiting"

    # --- changes --------------------------------------------------------------------------

    def _config_maps_changed(self, deltas: Sequence[Delta[AnyObject]]) -> None:
        if any(delta.key == LIMITS for delta in deltas):
            self._limits_changed = True
            self._wake.set()

    def _classes_changed(self, deltas: Sequence[Delta[PriorityClass]]) -> None:
        cache = self._classes.cache
        self._priorities = Priorities.of(filter(None, map(cache.get, cache.keys())))
        self._consider_all()

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            if delta.old is not None and (
                delta.new is None or delta.new.metadata.uid != delta.old.metadata.uid
            ):
                self._forget(delta.old.metadata.uid)
            if delta.new is not None:
                suspended = delta.old is not None and delta.old.spec.suspend
                self._consider(delta.new, resumed=suspended and not delta.new.spec.suspend)

    def _consider_all(self) -> None:
        cache = self._jobs.cache
        for job in filter(None, map(cache.get, list(cache.keys()))):
            self._consider(job)

    def _consider(self, job: Job, *, resumed: bool = False) -> None:
        """Classify a Job by its newest version: absent, waiting or running.

        A `resumed` Job starts anew, though its status may not yet show that it was suspended.
        """
        uid = job.metadata.uid
        if not self._limits and uid not in self._keys and not is_queued(job):
            return
        if uid in self._in_flight or job.metadata.revision < self._written.get(uid, 0):
            return
        scopes = self._limits.scopes_of(job)
        where = queue_state(job, has_pods=self._has_pods) if self._is_ours(job) else "absent"
        if where != "absent" and not job.spec.suspend:
            where = self._unsuspended_state(job, where, resumed)
        match where:
            case "absent":
                if uid in self._keys:
                    self._forget(uid)
                return
            case "running":
                self._to_suspend.discard(uid)
                self._line.put_running(uid, scopes)
            case "waiting":
                entered = entered_at(job)
                if self._line.waits(uid):
                    entered = min(entered, self._line.rank_of(uid).entered)
                self._line.put_waiting(uid, rank(self._priorities.of_job(job), entered), scopes)
                if not job.spec.suspend:
                    self._to_suspend.add(uid)
                self._wake.set()
        self._keys[uid] = job.key

    def _unsuspended_state(self, job: Job, where: QueueState, resumed: bool) -> QueueState:
        """Return the queue state of a Job that is not suspended.

        It runs if it was admitted, even if it has yet to start; a waiting one waits until then.
        """
        uid = job.metadata.uid
        if self._line.runs(uid):
            return "running"
        if self._line.waits(uid):
            return "waiting"
        if not self._limits.scopes_of(job):
            return "absent"
        return "waiting" if resumed else where

    def _forget(self, uid: str) -> None:
        """Remove a Job from the queue and free its place."""
        if self._keys.pop(uid, None) is not None:
            self._line.drop(uid)
            self._to_suspend.discard(uid)
            self._wake.set()
        self._written.pop(uid, None)

    def _has_pods(self, job: Job) -> bool:
        """Return whether the Job has a Pod that is neither terminal nor being deleted."""
        return any(
            not pod.metadata.deleting and not pod.terminal
            for pod in self._pods.cache.find("controller", job.metadata.uid)
        )

    # --- the work -------------------------------------------------------------------------

    async def run(self) -> None:
        """Admit and suspend Jobs until cancelled. Failed writes are logged and retried."""
        async with asyncio.TaskGroup() as group:
            following = False
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not following:
                    # Servers without limits avoid this watch.
                    following = True
                    group.create_task(self._classes.run(), name="informer-priorityclasses")
                    await self._classes.synced()
                try:
                    await self._release_and_suspend()
                except (ApiError, OSError) as error:
                    log.warning("queue: %s", error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    self._wake.set()

    async def _release_and_suspend(self) -> None:
        """Admit Jobs up to the limits, write their resumption and the suspension of the others, and
        announce held Jobs that are decided."""
        if self._limits_changed:
            await self._read_limits()
        released = self._line.start()
        self._to_suspend.difference_update(released)
        writes = [self._release(uid) for uid in released]
        writes += [self._suspend(uid) for uid in sorted(self._to_suspend, key=self._line.rank_of)]
        await self._write([write for write in writes if write is not None])
        for key in self._held:
            job = self._jobs.cache.get(key)
            if job is None or not self._is_undecided(job):
                self._held.admit(key)

    async def _read_limits(self) -> None:
        """Load changed limits, and classify all Jobs anew.

        Invalid limits are logged, and the previous ones stay in force. Raises ApiError, OSError.
        """
        self._limits_changed = False
        try:
            limits = await fetch_limits(self._client)
        except BadLimits as error:
            log.warning("configmap %s/%s: %s", LIMITS.namespace, LIMITS.name, error)
            return
        except (ApiError, OSError):
            self._limits_changed = True
            raise
        if limits != self._limits:
            before, self._limits = self._line, limits
            self._line = JobQueue(limits)
            for uid, key in self._keys.items():
                job = self._jobs.cache.get(key)
                if job is not None and before.runs(uid):
                    self._line.put_running(uid, limits.scopes_of(job))
            self._consider_all()

    def _release(self, uid: str) -> tuple[str, Patch] | None:
        """Return the write that resumes an admitted Job; None if it is not suspended."""
        job = self._cached_job(uid)
        if job is None or not job.spec.suspend:
            return None
        return uid, Patch(job.key, start_patch(job), "merge")

    def _suspend(self, uid: str) -> tuple[str, Patch] | None:
        """Return the write that suspends a waiting Job; None if it is suspended already."""
        job = self._cached_job(uid)
        if job is None or job.spec.suspend:
            return None
        entered = self._line.rank_of(uid).entered
        return uid, Patch(job.key, queue_patch(job, entered), "merge")

    def _cached_job(self, uid: str) -> Job | None:
        """Return the Job from the cache; None if it is gone or replaced by a namesake."""
        job = self._jobs.cache.get(self._keys[uid])
        return job if job is not None and job.metadata.uid == uid else None

    async def _write(self, writes: Sequence[tuple[str, Patch]]) -> None:
        """Execute the writes in batches, then classify their Jobs by the cache.

        Raises the last ApiError after all batches.
        """
        self._in_flight.update(uid for uid, _ in writes)
        failed: ApiError | None = None
        try:
            for first in range(0, len(writes), _BATCH):
                failed = await self._write_batch(writes[first : first + _BATCH]) or failed
        finally:
            self._in_flight.clear()
            self._reconsider(uid for uid, _ in writes)
        if failed is not None:
            raise failed

    async def _write_batch(self, writes: Sequence[tuple[str, Patch]]) -> ApiError | None:
        """Execute one batch of writes and record its results; return the last error or None."""
        failed: ApiError | None = None
        results = await self._client.write_many([patch for _, patch in writes])
        for (uid, _), result in zip(writes, results, strict=True):
            if isinstance(result, Written):
                self._written[uid] = result.revision
                if uid in self._to_suspend:
                    self._to_suspend.discard(uid)
                    self._report(uid)
            elif isinstance(result, NotFound):
                # The cache will reflect the deletion; processing its contents until then would only
                # repeat this.
                self._forget(uid)
            else:
                # Admission is decided anew, together with the other Jobs.
                self._line.drop(uid)
                failed = result
        return failed

    def _reconsider(self, uids: Iterable[str]) -> None:
        """Classify these Jobs by their cached versions."""
        for uid in uids:
            job = self._cached_job(uid) if uid in self._keys else None
            if job is not None:
                self._consider(job)

    def _report(self, uid: str) -> None:
        """Record the Event Queued for a waiting Job, with the limit that is reached."""
        job = self._cached_job(uid)
        scope = self._line.full_scope(uid) if self._line.waits(uid) else ""
        if job is not None and scope:
            text = f"queued: {scope_text(scope)} may run {self._limits.by_scope[scope]} at once"
            self._recorder.record(about("batch/v1", "Job", job.metadata), "Normal", "Queued", text)
