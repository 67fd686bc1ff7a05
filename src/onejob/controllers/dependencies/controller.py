"""Dependency controller: suspend Jobs with `onejob.dev/after`, and release or fail them.

Changes of Jobs update the observed state of each waiting Job in memory at once, so that a
dependency that ends and is deleted within one batch of changes is not missed. A sync writes that
state to the waiting Job together with what follows from it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from onejob.client.base import Patch
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, Key
from onejob.planning.dependencies.annotation import Dependency, InvalidAfter, parse_after
from onejob.planning.dependencies.cycles import cycle_text, find_cycle
from onejob.planning.dependencies.decision import (
    CYCLE_REASON,
    INVALID_REASON,
    Decision,
    Fail,
    Release,
    decide,
)
from onejob.planning.dependencies.state import State, observe, record_end, state_of
from onejob.planning.history import JobEnd
from onejob.planning.job.conditions import FAILURE_TARGET, ensure_condition, new_condition
from onejob.planning.job.status import status_patch
from onejob.planning.names import (
    AFTER_ANNOTATION,
    AFTER_HELD_ANNOTATION,
    AFTER_STATE_ANNOTATION,
)
from onejob.planning.queue.membership import hold_patch, is_held, release_patch
from onejob.wire.errors import NotFound

log = logging.getLogger(__name__)

_WORKERS = 5


class _Waiting(msgspec.Struct):
    """A Job that waits, with what was observed of its dependencies so far."""

    uid: str
    after: tuple[Dependency, ...]
    state: State
    #: Why the annotation is invalid; "" if it is valid.
    problem: str = ""
    #: Whether the Job was checked for a cycle. Edges are fixed when a Job is created, so that the
    #: Job that closes a cycle is the last one of it to be created.
    checked: bool = False
    #: Revision of the last write to the Job; older cached versions are not acted on.
    written: int = 0
    reported: str = ""


class DependencyController:
    """Controller of waiting Jobs.

    Guarantees: a waiting Job starts only after each dependency was seen to reach its condition, or
    is recorded to have. A suspension by a user, or by the queue, is left alone.
    """

    def __init__(
        self,
        context: ControllerContext,
        waits: Callable[[Job], bool],
        admit: Callable[[Key], None],
        recorded_end: Callable[[str, str], JobEnd | None],
    ) -> None:
        """`waits` returns whether a Job waits, `admit` is called with each that no longer does."""
        self._client = context.client
        self._recorder = context.recorder
        self._clock = context.clock
        self._jobs = context.informers.jobs
        self._waits = waits
        self._admit = admit
        self._recorded_end = recorded_end
        self._waiting: dict[Key, _Waiting] = {}
        #: Waiting Jobs by namespace and name of a dependency.
        self._dependents: dict[tuple[str, str], set[Key]] = {}
        self._queue: WorkQueue[Key] = WorkQueue(first_delay=0.05, longest_delay=30.0)
        for job in list(self._jobs.cache):
            self._take(job)

    async def run(self) -> None:
        await work(self._queue, self.sync, workers=_WORKERS, name="dependencies")

    def awaits(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether some Job waits for the end of this one, as far as is recorded."""
        for key in self._dependents.get((namespace, name), ()):
            pin = self._waiting[key].state.jobs.get(name)
            if pin is None or pin.uid == uid:
                # The pin's end may not be on disk yet.
                return True
        return False

    # --- changes --------------------------------------------------------------------------

    def jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        for delta in deltas:
            key, new = delta.key, delta.new
            if new is None:
                self._drop(key)
            else:
                self._take(new)
            dependents = self._dependents.get((key.namespace, key.name))
            if dependents:
                for waiting_key in dependents:
                    self._observe(waiting_key, key.name, delta.old)
                    self._observe(waiting_key, key.name, new)
                    self._queue.add(waiting_key)

    def _take(self, job: Job) -> None:
        """Update the entry of a Job that may wait."""
        key = job.key
        if not self._waits(job):
            if key in self._waiting:
                self._drop(key)
            self._admit(key)
            if is_held(job, AFTER_HELD_ANNOTATION) and not job.metadata.deleting:
                # The annotation was removed, or the release is incomplete.
                self._queue.add(key)
            return
        known = self._waiting.get(key)
        if known is None or known.uid != job.metadata.uid:
            self._drop(key)
            self._waiting[key] = waiting = _entry(job)
            for dependency in waiting.after:
                name = dependency.name
                self._dependents.setdefault((key.namespace, name), set()).add(key)
                self._observe(key, name, self._jobs.cache.get(Key(JOBS, key.namespace, name)))
        self._queue.add(key)

    def _observe(self, key: Key, name: str, job: Job | None) -> None:
        waiting = self._waiting[key]
        waiting.state = observe(waiting.state, name, job)

    def _drop(self, key: Key) -> None:
        """Forget a Job."""
        waiting = self._waiting.pop(key, None)
        for dependency in () if waiting is None else waiting.after:
            place = (key.namespace, dependency.name)
            dependents = self._dependents.get(place, set())
            dependents.discard(key)
            if not dependents:
                self._dependents.pop(place, None)

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> None:
        """Bring one Job in line with its dependencies, by at most one write."""
        job = self._jobs.cache.get(key)
        waiting = self._waiting.get(key)
        if job is None or (waiting is not None and waiting.uid != job.metadata.uid):
            return
        if waiting is None:
            if is_held(job, AFTER_HELD_ANNOTATION) and not self._waits(job):
                await self._write(Patch(key, release_patch(job, AFTER_HELD_ANNOTATION), "merge"))
            return
        if job.metadata.revision < waiting.written:
            # The change that brings our write up will queue the Job again.
            return
        decision = self._decide(key, waiting)
        patch: bytes | None
        # The state may change while the write is in progress: write and compare the same one.
        state = waiting.state
        match decision:
            case Fail(reason, message):
                await self._fail(job, reason, message)
                return
            case Release():
                patch = self._release(job, state)
                message = "all dependencies are met"
                self._report(waiting, job, "DependenciesMet", message)
            case _:
                patch = self._hold(job, state)
                self._report(waiting, job, "WaitingForJobs", decision.text)
        if patch is not None:
            waiting.written = await self._write(Patch(key, patch, "merge"))

    def _decide(self, key: Key, waiting: _Waiting) -> Decision:
        """Return what to do with a waiting Job now."""
        if waiting.problem:
            return Fail(INVALID_REASON, f"annotation {AFTER_ANNOTATION} {waiting.problem}")
        if not waiting.checked:
            names = find_cycle(key.name, lambda name: self._edges(key.namespace, name))
            if names:
                return Fail(CYCLE_REASON, f"dependencies form a cycle: {cycle_text(names)}")
            waiting.checked = True
        for name, pin in waiting.state.jobs.items():
            if pin.ended:
                continue
            current = self._current(key.namespace, name)
            if current is None or current.metadata.uid != pin.uid:
                end = self._recorded_end(key.namespace, pin.uid)
                if end is not None:
                    waiting.state = record_end(waiting.state, name, end)
        return decide(waiting.after, waiting.state, lambda name: self._current(key.namespace, name))

    def _current(self, namespace: str, name: str) -> Job | None:
        return self._jobs.cache.get(Key(JOBS, namespace, name))

    def _edges(self, namespace: str, name: str) -> Sequence[str]:
        waiting = self._waiting.get(Key(JOBS, namespace, name))
        return () if waiting is None else [dependency.name for dependency in waiting.after]

    def _release(self, job: Job, state: State) -> bytes:
        released = msgspec.structs.replace(state, released=True)
        others = {AFTER_STATE_ANNOTATION: released.encode()}
        if is_held(job, AFTER_HELD_ANNOTATION):
            return release_patch(job, AFTER_HELD_ANNOTATION, others)
        # Not suspended yet, or by a user: only the record changes.
        return _annotate(job, others)

    def _hold(self, job: Job, state: State) -> bytes | None:
        others: dict[str, str | None] = {}
        if state != state_of(job):
            others[AFTER_STATE_ANNOTATION] = state.encode()
        if not job.spec.suspend:
            return hold_patch(job, AFTER_HELD_ANNOTATION, "true", others)
        return _annotate(job, others) if others else None

    async def _fail(self, job: Job, reason: str, message: str) -> None:
        """Record the failure as an outcome, from which the Job controller finishes the Job."""
        condition = new_condition(FAILURE_TARGET, "True", reason, message, self._clock.now())
        conditions, _ = ensure_condition(job.status.conditions, condition)
        status = msgspec.structs.replace(job.status, conditions=conditions)
        await self._write(Patch(job.key, status_patch(job, status), "merge", "status"))
        subject = about("batch/v1", "Job", job.metadata)
        self._recorder.record(subject, "Warning", reason, message)

    async def _write(self, patch: Patch) -> int:
        """Return the revision of the write; 0 if the Job no longer exists."""
        try:
            return (await self._client.write(patch)).revision
        except NotFound:
            # The cache will reflect the deletion.
            return 0

    def _report(self, waiting: _Waiting, job: Job, reason: str, message: str) -> None:
        if waiting.reported != message:
            waiting.reported = message
            subject = about("batch/v1", "Job", job.metadata)
            self._recorder.record(subject, "Normal", reason, message)


def _entry(job: Job) -> _Waiting:
    """Return the entry of a Job with dependencies."""
    uid, text = job.metadata.uid, job.metadata.annotations[AFTER_ANNOTATION]
    try:
        after = parse_after(text, job.metadata.name)
    except InvalidAfter as error:
        return _Waiting(uid, (), state_of(job), problem=str(error))
    state = state_of(job)
    return _Waiting(uid, after, state)


def _annotate(job: Job, annotations: Mapping[str, str | None]) -> bytes:
    metadata = {"uid": job.metadata.uid, "annotations": annotations}
    return msgspec.json.encode({"metadata": metadata})
