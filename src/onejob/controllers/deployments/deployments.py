"""Deployment controller: creates, scales and deletes ReplicaSets, and writes the status."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from onejob.client.base import Client, Create, Delete, Op, Patch, Written
from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.deployments.ownership import catch_up, claim
from onejob.controllers.on_demand import OneQueue
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.workqueue import Retry, WorkQueue, work
from onejob.objects.deployment import (
    API_VERSION,
    DEPLOYMENTS,
    REPLICA_SETS,
    Deployment,
    DeploymentStatus,
    ReplicaSet,
    read_replica_set,
)
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.planning.deployment.documents import (
    REVISION,
    declares_ports,
    status_patch,
    template_of,
)
from onejob.planning.deployment.rollout import (
    Observed,
    RolloutPlan,
    current_replica_set,
    plan_rollout,
)
from onejob.wire.errors import AlreadyExists, ApiError, NotFound
from onejob.wire.selectors import matcher_of

_SHORTEST_DELAY = 0.01


class _State(Struct):
    """State of a Deployment between syncs."""

    uid: str
    own_revision: int = 0
    set_revision: int = 0


class _Waiting(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Status(msgspec.Struct, rename="camel"):
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _StatusOnly(msgspec.Struct):
    """The part of a Pod that shows why a container waits, which the caches do not keep."""

    status: _Status = msgspec.field(default_factory=_Status)


_read_status = msgspec.json.Decoder(_StatusOnly).decode

#: Waiting reasons that pass only if the user changes something.
_STUCK = frozenset(
    {
        *("CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull"),
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName"),
    }
)


class DeploymentController(OneQueue):
    """Controller of Deployments.

    Guarantees: a Deployment is synced by one worker at a time, on caches that include the
    controller's own writes.
    """

    queue_name = "deployment"

    def __init__(
        self,
        context: ControllerContext,
        deployments: Informer[Deployment],
        replica_sets: Informer[ReplicaSet],
        *,
        shares_network: bool,
        workers: int = 2,
    ) -> None:
        """`shares_network` states whether Pods listen at the ports of the machine itself."""
        self._client: Client = context.client
        self._recorder = context.recorder
        self._clock = context.clock
        self._deployments = deployments
        self._replica_sets = replica_sets
        self._pods = context.informers.pods
        self._shares_network = shares_network
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        self._states: dict[Key, _State] = {}
        deployments.on_change(self._changed)
        replica_sets.on_change(self._sets_changed)
        self._pods.on_change(self._pods_changed)

    async def run(self) -> None:
        for deployment in self._deployments.cache:
            self._queue.add(deployment.key)
        await work(self._queue, self.sync, workers=self._workers, name="deployment")

    # --- changes --------------------------------------------------------------------------

    def _changed(self, deltas: Sequence[Delta[Deployment]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self._states.pop(delta.key, None)
                self._queue.drop(delta.key)
                continue
            state = self._states.get(delta.key)
            if state is None or delta.new.metadata.revision != state.own_revision:
                self._queue.add(delta.key)

    def _sets_changed(self, deltas: Sequence[Delta[ReplicaSet]]) -> None:
        for delta in deltas:
            for replica_set in (delta.old, delta.new):
                if (key := _owner_of(replica_set)) is not None:
                    self._queue.add(key)
            new = delta.new
            if new is not None and new.metadata.controller_ref is None:
                for deployment in self._deployments.cache:
                    if deployment.metadata.namespace == new.metadata.namespace and matcher_of(
                        deployment.spec.selector
                    ).matches(new.metadata.labels):
                        self._queue.add(deployment.key)

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Queue the Deployments of Pods that ended, or that do not become ready."""
        for delta in deltas:
            pod = delta.new or delta.old
            owner = pod.metadata.controller_ref if pod is not None else None
            if pod is None or owner is None or owner.kind != "ReplicaSet" or pod.ready:
                continue
            key = Key(REPLICA_SETS, pod.metadata.namespace, owner.name)
            if (above := _owner_of(self._replica_sets.cache.get(key))) is not None:
                self._queue.add(above)

    # --- the sync -------------------------------------------------------------------------

    async def sync(self, key: Key) -> float | None:
        """Sync one Deployment. Return the seconds after which to sync again, or None."""
        state = self._states.get(key)
        if state is not None:
            await catch_up(
                (self._deployments, state.own_revision), (self._replica_sets, state.set_revision)
            )
        deployment = self._deployments.cache.get(key)
        if deployment is None:
            self._states.pop(key, None)
            return None
        if state is None or state.uid != deployment.metadata.uid:
            state = self._states[key] = _State(deployment.metadata.uid)
        metadata = deployment.metadata
        candidates = self._replica_sets.cache.find("namespace", metadata.namespace)
        owned, revision = await claim(
            self._client, "Deployment", key, metadata, deployment.spec.selector, candidates
        )
        if revision:
            state.set_revision = max(state.set_revision, revision)
            return _SHORTEST_DELAY
        observed = await self._observed(deployment, owned)
        plan = plan_rollout(deployment, owned, observed, self._clock.now())
        status = await self._execute(deployment, plan, state)
        await self._write(deployment, plan, status, state)
        return plan.wait_seconds

    async def _observed(
        self, deployment: Deployment, replica_sets: Sequence[ReplicaSet]
    ) -> Observed:
        with_pods = frozenset(
            each.metadata.uid
            for each in replica_sets
            if any(
                not pod.terminal for pod in self._pods.cache.find("controller", each.metadata.uid)
            )
        )
        current = current_replica_set(deployment, replica_sets)
        ports = self._shares_network and declares_ports(deployment.spec.template)
        stuck = "" if current is None else await self._why_stuck(current)
        return Observed(with_pods, replaces_first=ports, stuck=stuck)

    async def _why_stuck(self, replica_set: ReplicaSet) -> str:
        """Return why a container of a ReplicaSet cannot start, or ""."""
        for pod in self._pods.cache.find("controller", replica_set.metadata.uid):
            if pod.active and not pod.ready and pod.spec.node_name:
                try:
                    status = _read_status(await self._client.get(pod.key)).status
                except NotFound:
                    continue
                for container in (*status.init_container_statuses, *status.container_statuses):
                    waiting = container.state.waiting
                    if waiting is not None and waiting.reason in _STUCK:
                        return f"{waiting.reason}: {waiting.message}"
        return ""

    # --- effects --------------------------------------------------------------------------

    async def _execute(
        self, deployment: Deployment, plan: RolloutPlan, state: _State
    ) -> DeploymentStatus:
        """Change the ReplicaSets. Return the status to write. Raises Retry."""
        status = plan.status
        if plan.creation:
            status = await self._create(deployment, plan, state)
        ops: list[Op] = []
        if plan.annotated is not None:
            ops.append(_patch(plan.annotated, {"metadata": {"annotations": plan.annotations}}))
        for scale in plan.scales:
            body = {
                "metadata": {"annotations": scale.annotations},
                "spec": {"replicas": scale.replicas},
            }
            ops.append(_patch(scale.replica_set, body))
        ops += [Delete(each.key, "Background", uid=each.metadata.uid) for each in plan.deletions]
        if not ops:
            return status
        error: ApiError | None = None
        for result in await self._client.write_many(ops):
            if isinstance(result, Written):
                state.set_revision = max(state.set_revision, result.revision)
            elif not isinstance(result, NotFound):
                error = error or result
        if error is not None:
            raise error
        for scale in plan.scales:
            self._record(deployment, "Normal", "ScalingReplicaSet", scale.message)
        return status

    async def _create(
        self, deployment: Deployment, plan: RolloutPlan, state: _State
    ) -> DeploymentStatus:
        namespace = deployment.metadata.namespace
        try:
            written = await self._client.write(Create(REPLICA_SETS, namespace, plan.creation))
        except AlreadyExists:
            return await self._taken_name(deployment, plan, state)
        except ApiError as error:
            text = f"Failed to create new replica set: {error}"
            self._record(deployment, "Warning", "ReplicaSetCreateError", text)
            raise
        state.set_revision = max(state.set_revision, written.revision)
        text = f"Scaled up replica set {written.name} from 0 to {plan.created_replicas}"
        self._record(deployment, "Normal", "ScalingReplicaSet", text)
        return plan.status

    async def _taken_name(
        self, deployment: Deployment, plan: RolloutPlan, state: _State
    ) -> DeploymentStatus:
        """Return the status that leads to another name, unless the ReplicaSet is our own."""
        name = msgspec.json.decode(plan.creation)["metadata"]["name"]
        key = Key(REPLICA_SETS, deployment.metadata.namespace, name)
        try:
            existing = read_replica_set(await self._client.get(key))
        except NotFound as gone:
            raise Retry(f"{key} was deleted meanwhile") from gone
        owner = existing.metadata.controller_ref
        state.set_revision = max(state.set_revision, existing.metadata.revision)
        same = template_of(existing.spec.template) == template_of(deployment.spec.template)
        if owner is not None and owner.uid == deployment.metadata.uid and same:
            raise Retry(f"the cache lacks {key}")
        collisions = (deployment.status.collision_count or 0) + 1
        return msgspec.structs.replace(plan.status, collision_count=collisions)

    async def _write(
        self, deployment: Deployment, plan: RolloutPlan, status: DeploymentStatus, state: _State
    ) -> None:
        """Write status and revision. Their Conflict causes a retry."""
        metadata = deployment.metadata
        if status != deployment.status:
            patch = status_patch(metadata, deployment.status, status)
            written = await self._client.write(Patch(deployment.key, patch, "merge", "status"))
            state.own_revision = written.revision
        if plan.revision:
            version = state.own_revision if status != deployment.status else metadata.revision
            changed = {
                "annotations": {REVISION: plan.revision},
                # Conflict if the Deployment has changed: its version would be taken for our own.
                "resourceVersion": str(version),
            }
            patch = msgspec.json.encode({"metadata": changed})
            written = await self._client.write(Patch(deployment.key, patch, "merge"))
            state.own_revision = written.revision
        if status.collision_count != deployment.status.collision_count:
            raise Retry("the name of the new replica set is taken")

    def _record(self, deployment: Deployment, kind: str, reason: str, text: str) -> None:
        what = about(API_VERSION, "Deployment", deployment.metadata)
        self._recorder.record(what, kind, reason, text)


def _patch(replica_set: ReplicaSet, body: dict[str, object]) -> Patch:
    metadata = {**body["metadata"], "uid": replica_set.metadata.uid}  # type: ignore[dict-item]
    return Patch(replica_set.key, msgspec.json.encode({**body, "metadata": metadata}), "merge")


def _owner_of(replica_set: ReplicaSet | None) -> Key | None:
    owner = replica_set.metadata.controller_ref if replica_set is not None else None
    if replica_set is None or owner is None or owner.kind != "Deployment":
        return None
    return Key(DEPLOYMENTS, replica_set.metadata.namespace, owner.name)
