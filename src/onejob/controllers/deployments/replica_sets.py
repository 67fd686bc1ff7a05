"""ReplicaSet controller: creates and deletes Pods, and writes the status."""

from collections.abc import Sequence

from msgspec import Struct

from onejob.client.base import Create, Delete, Op, Patch, Written
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.deployments.ownership import catch_up, claim
from onejob.controllers.on_demand import OneQueue
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.objects.deployment import (
    API_VERSION,
    REPLICA_SETS,
    ReplicaSet,
    ReplicaSetStatus,
)
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod
from onejob.planning.deployment.documents import pod_document, status_patch
from onejob.planning.deployment.replicas import ReplicaPlan, observed_status, plan_replicas
from onejob.wire.errors import NotFound
from onejob.wire.selectors import matcher_of

_SHORTEST_DELAY = 0.01


class _State(Struct):
    """State of a ReplicaSet between syncs."""

    uid: str
    own_revision: int = 0
    pod_revision: int = 0
    #: Pods that have failed since one was available, and when (monotonic) the last one did.
    failures: int = 0
    failed_at: float = 0.0


class ReplicaSetController(OneQueue):
    """Controller of ReplicaSets.

    Guarantees: a ReplicaSet is synced by one worker at a time, on caches that include the
    controller's own writes, so no Pod is created twice.
    """

    queue_name = "replicaset"

    def __init__(
        self, context: ControllerContext, replica_sets: Informer[ReplicaSet], *, workers: int = 2
    ) -> None:
        self._client = context.client
        self._recorder = context.recorder
        self._clock = context.clock
        self._replica_sets = replica_sets
        self._pods = context.informers.pods
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        self._states: dict[Key, _State] = {}
        self._replica_sets.on_change(self._changed)
        self._pods.on_change(self._pods_changed)

    async def run(self) -> None:
        for replica_set in self._replica_sets.cache:
            self._queue.add(replica_set.key)
        await work(self._queue, self.sync, workers=self._workers, name="replicaset")

    # --- changes --------------------------------------------------------------------------

    def _changed(self, deltas: Sequence[Delta[ReplicaSet]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self._forget(delta.key)
                continue
            state = self._states.get(delta.key)
            if state is None or delta.new.metadata.revision != state.own_revision:
                self._queue.add(delta.key)

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            for key in {_owner_of(delta.old), _owner_of(delta.new)} - {None}:
                assert key is not None
                self._note_failure(key, delta)
                if _relevant(delta.old) != _relevant(delta.new):
                    self._queue.add(key)
            if delta.new is not None and delta.new.metadata.controller_ref is None:
                self._queue_adopters(delta.new)

    def _note_failure(self, key: Key, delta: Delta[Pod]) -> None:
        state, new = self._states.get(key), delta.new
        if state is None or new is None:
            return
        if new.phase == "Failed" and delta.old is not None and not delta.old.metadata.deleting:
            state.failures += 1
            state.failed_at = self._clock.monotonic()
        elif new.ready:
            state.failures = 0

    def _queue_adopters(self, pod: Pod) -> None:
        for replica_set in self._replica_sets.cache.find("namespace", pod.metadata.namespace):
            if matcher_of(replica_set.spec.selector).matches(pod.metadata.labels):
                self._queue.add(replica_set.key)

    def _forget(self, key: Key) -> None:
        self._states.pop(key, None)
        self._queue.drop(key)

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Sync one ReplicaSet. Return the seconds after which to sync again, or None."""
        replica_set = await self._current(key)
        if replica_set is None:
            self._forget(key)
            return None
        state = self._state_of(replica_set)
        pods, revision = await self._claimed(replica_set)
        if revision:
            state.pod_revision = max(state.pod_revision, revision)
            return _SHORTEST_DELAY
        since = self._clock.monotonic() - state.failed_at
        plan = plan_replicas(replica_set, pods, state.failures, since)
        problem = await self._execute(replica_set, plan, state)
        found = observed_status(replica_set, pods, problem, self._clock.now())
        if found.status != replica_set.status:
            await self._write_status(replica_set, found.status, state)
        if problem:
            raise Retry(problem)
        waits = [wait for wait in (plan.wait_seconds, found.wait_seconds) if wait is not None]
        return max(min(waits), _SHORTEST_DELAY) if waits else None

    async def _current(self, key: Key) -> ReplicaSet | None:
        """Wait until the caches include our writes; return the ReplicaSet, if it exists."""
        state = self._states.get(key)
        if state is not None:
            await catch_up(
                (self._replica_sets, state.own_revision), (self._pods, state.pod_revision)
            )
        return self._replica_sets.cache.get(key)

    def _state_of(self, replica_set: ReplicaSet) -> _State:
        key, uid = replica_set.key, replica_set.metadata.uid
        state = self._states.get(key)
        if state is None or state.uid != uid:
            state = self._states[key] = _State(uid)
        return state

    async def _claimed(self, replica_set: ReplicaSet) -> tuple[list[Pod], int]:
        metadata, cache = replica_set.metadata, self._pods.cache
        owned = cache.find("controller", metadata.uid)
        free = [pod for pod in cache.find("uncontrolled", metadata.namespace) if not pod.terminal]
        return await claim(
            self._client,
            "ReplicaSet",
            replica_set.key,
            metadata,
            replica_set.spec.selector,
            [*owned, *free],
        )

    async def _execute(self, replica_set: ReplicaSet, plan: ReplicaPlan, state: _State) -> str:
        """Create and delete Pods. Return why that failed, `reason: message`, or ""."""
        ops: list[Op] = []
        if plan.creations:
            document = pod_document(replica_set)
            create = Create(PODS, replica_set.metadata.namespace, document)
            ops = [create] * plan.creations
        ops += [Delete(pod.key, "Background", uid=pod.metadata.uid) for pod in plan.deletions]
        if not ops:
            return ""
        problem = ""
        what = about(API_VERSION, "ReplicaSet", replica_set.metadata)
        for op, result in zip(ops, await self._client.write_many(ops), strict=True):
            creates = isinstance(op, Create)
            if isinstance(result, Written):
                state.pod_revision = max(state.pod_revision, result.revision)
                name = result.name if creates else op.key.name  # type: ignore[union-attr]
                reason = "SuccessfulCreate" if creates else "SuccessfulDelete"
                text = f"{'Created' if creates else 'Deleted'} pod: {name}"
                self._recorder.record(what, "Normal", reason, text)
            elif creates or not isinstance(result, NotFound):
                reason = "FailedCreate" if creates else "FailedDelete"
                problem = problem or f"{reason}: {result}"
        if problem:
            reason, _, text = problem.partition(": ")
            doing = "creating" if reason == "FailedCreate" else "deleting"
            self._recorder.record(what, "Warning", reason, f"Error {doing}: {text}")
        return problem

    async def _write_status(
        self, replica_set: ReplicaSet, status: ReplicaSetStatus, state: _State
    ) -> None:
        patch = status_patch(replica_set.metadata, replica_set.status, status)
        written = await self._client.write(Patch(replica_set.key, patch, "merge", "status"))
        state.own_revision = written.revision


def _owner_of(pod: Pod | None) -> Key | None:
    owner = pod.metadata.controller_ref if pod is not None else None
    if pod is None or owner is None or owner.kind != "ReplicaSet":
        return None
    return Key(REPLICA_SETS, pod.metadata.namespace, owner.name)


def _relevant(pod: Pod | None) -> object:
    """Return the parts of a Pod that affect its ReplicaSet."""
    if pod is None:
        return None
    metadata = pod.metadata
    return (
        metadata.uid,
        pod.terminal,
        metadata.deleting,
        pod.ready,
        metadata.labels,
        metadata.controller_ref,
    )
