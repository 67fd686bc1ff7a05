"""Deployment sync: which ReplicaSets to create, scale and delete.

The arithmetic is upstream's (deployment/rolling.go, recreate.go and sync.go), with one difference:
see `Observed.replaces_first`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from onejob.objects.deployment import Deployment, DeploymentStatus, ReplicaSet
from onejob.planning.deployment.documents import (
    REVISION,
    replica_set_annotations,
    replica_set_document,
    revision_of,
    size_annotations,
    template_of,
)
from onejob.planning.deployment.limits import RECREATE, limits
from onejob.planning.deployment.rollout_status import is_complete, rollout_status


class Observed(Struct, frozen=True):
    """What a sync knows besides the Deployment and its ReplicaSets."""

    #: UIDs of ReplicaSets with Pods that have not ended.
    with_pods: frozenset[str] = frozenset()
    #: Whether old Pods must end before new ones start, whatever the strategy: they listen at the
    #: same ports, because all Pods share the network of the machine.
    replaces_first: bool = False
    #: Why containers of the newest Pods cannot start, `reason: message`; "" if they can.
    stuck: str = ""


class Scale(Struct, frozen=True):
    replica_set: ReplicaSet
    replicas: int
    annotations: Mapping[str, str]

    @property
    def message(self) -> str:
        """Message of the Event."""
        before, name = self.replica_set.spec.replicas, self.replica_set.metadata.name
        direction = "up" if self.replicas > before else "down"
        return f"Scaled {direction} replica set {name} from {before} to {self.replicas}"


class RolloutPlan(Struct, frozen=True):
    status: DeploymentStatus
    #: The ReplicaSet to create, and its number of Pods.
    creation: bytes = b""
    created_replicas: int = 0
    #: New annotations of the current ReplicaSet; None for no change.
    annotated: ReplicaSet | None = None
    annotations: Mapping[str, str] = {}
    scales: tuple[Scale, ...] = ()
    deletions: tuple[ReplicaSet, ...] = ()
    #: New revision of the Deployment; "" for no change.
    revision: str = ""
    #: Seconds until the progress deadline; None without one.
    wait_seconds: float | None = None


def plan_rollout(
    deployment: Deployment, replica_sets: Sequence[ReplicaSet], observed: Observed, now: datetime
) -> RolloutPlan:
    """Return the next step of a Deployment; its ReplicaSets' changes lead to the following one."""
    spec = deployment.spec
    ordered = sorted(replica_sets, key=_age)
    current = current_replica_set(deployment, ordered)
    old = [each for each in ordered if each is not current]
    status, wait = rollout_status(deployment, ordered, current, observed.stuck, now)
    if deployment.metadata.deleting:
        return RolloutPlan(status)
    surge, unavailable = limits(deployment)
    if spec.paused:
        scales = _scale_active(deployment, ordered, current, spec.replicas + surge)
        return RolloutPlan(status, scales=scales)
    recreates = spec.strategy.type == RECREATE or observed.replaces_first
    most = spec.replicas + (0 if recreates else surge)
    waits = recreates and any(
        each.spec.replicas or each.metadata.uid in observed.with_pods for each in old
    )
    newest_old = max((revision_of(each.metadata.annotations) for each in old), default=0)
    if current is None:
        if waits:
            return RolloutPlan(status, scales=_to_zero(deployment, old, most), wait_seconds=wait)
        revision = newest_old + 1
        replicas = _wanted_replicas(0, old, spec.replicas, most)
        annotations = replica_set_annotations(deployment, {}, revision, most)
        return RolloutPlan(
            status,
            creation=replica_set_document(deployment, replicas, annotations),
            created_replicas=replicas,
            revision=_changed_revision(deployment, revision),
            wait_seconds=wait,
        )
    present = current.metadata.annotations
    revision = max(newest_old + 1, revision_of(present))
    annotations = replica_set_annotations(deployment, present, revision, most)
    scales = _step(deployment, current, old, most, unavailable, recreates=recreates, waits=waits)
    complete = is_complete(deployment, status) and not scales
    return RolloutPlan(
        status,
        annotated=current if annotations != present else None,
        annotations=annotations,
        scales=scales,
        deletions=_history_to_delete(old, spec.revision_history_limit) if complete else (),
        revision=_changed_revision(deployment, revision),
        wait_seconds=wait,
    )


def current_replica_set(
    deployment: Deployment, replica_sets: Sequence[ReplicaSet]
) -> ReplicaSet | None:
    """Return the ReplicaSet with the Deployment's template, the oldest if there are several."""
    template = template_of(deployment.spec.template)
    for each in sorted(replica_sets, key=_age):
        if template_of(each.spec.template) == template:
            return each
    return None


def _age(replica_set: ReplicaSet) -> tuple[float, str]:
    created = replica_set.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, replica_set.metadata.name)


def _changed_revision(deployment: Deployment, revision: int) -> str:
    text = str(revision)
    return "" if deployment.metadata.annotations.get(REVISION) == text else text


def _wanted_replicas(present: int, old: Sequence[ReplicaSet], desired: int, most: int) -> int:
    """Return the Pods of the current ReplicaSet, within the limit of all Pods."""
    if present >= desired:
        return desired
    room = most - present - sum(each.spec.replicas for each in old)
    return present + max(0, min(room, desired - present))


def _step(
    deployment: Deployment,
    current: ReplicaSet,
    old: Sequence[ReplicaSet],
    most: int,
    unavailable: int,
    *,
    recreates: bool,
    waits: bool,
) -> tuple[Scale, ...]:
    """Return the next changes of a roll-out."""
    desired = deployment.spec.replicas
    if waits:
        down = _to_zero(deployment, old, most)
        # Pods beyond the desired number need not wait.
        return (*down, *_scaled(deployment, current, min(current.spec.replicas, desired), most))
    wanted = _wanted_replicas(current.spec.replicas, old, desired, most)
    if scaled := _scaled(deployment, current, wanted, most):
        return scaled
    if recreates:
        return ()
    sizes = {each.metadata.uid: each.spec.replicas for each in old if each.spec.replicas}
    if not sizes:
        return ()
    least_available = desired - unavailable
    everyone = [*old, current]
    missing = current.spec.replicas - current.status.available_replicas
    spare = sum(each.spec.replicas for each in everyone) - least_available - missing
    if spare <= 0:
        return ()
    # Pods that are not available first: their end costs nothing.
    for each in old:
        unhealthy = max(0, each.spec.replicas - each.status.available_replicas)
        stopped = min(spare, unhealthy)
        sizes[each.metadata.uid] = each.spec.replicas - stopped
        spare -= stopped
    spare = sum(each.status.available_replicas for each in everyone) - least_available
    for each in old:
        stopped = max(0, min(spare, sizes[each.metadata.uid]))
        sizes[each.metadata.uid] -= stopped
        spare -= stopped
    return tuple(
        scale
        for each in old
        for scale in _scaled(deployment, each, sizes.get(each.metadata.uid, 0), most)
    )


def _scaled(
    deployment: Deployment, replica_set: ReplicaSet, replicas: int, most: int
) -> tuple[Scale, ...]:
    if replica_set.spec.replicas == replicas:
        return ()
    return (Scale(replica_set, replicas, size_annotations(deployment, most)),)


def _to_zero(
    deployment: Deployment, replica_sets: Sequence[ReplicaSet], most: int
) -> tuple[Scale, ...]:
    return tuple(scale for each in replica_sets for scale in _scaled(deployment, each, 0, most))


def _scale_active(
    deployment: Deployment,
    replica_sets: Sequence[ReplicaSet],
    current: ReplicaSet | None,
    most: int,
) -> tuple[Scale, ...]:
    """Return the scaling of a paused Deployment: of its only active ReplicaSet."""
    active = [each for each in replica_sets if each.spec.replicas]
    if not active and current is not None:
        active = [current]
    if len(active) != 1:
        return ()
    return _scaled(deployment, active[0], deployment.spec.replicas, most)


def _history_to_delete(old: Sequence[ReplicaSet], limit: int) -> tuple[ReplicaSet, ...]:
    """Return the old ReplicaSets beyond the history limit, oldest revisions first."""
    ended = [
        each
        for each in old
        if not each.spec.replicas
        and not each.status.replicas
        and each.status.observed_generation >= each.metadata.generation
        and not each.metadata.deleting
    ]
    ended.sort(key=lambda each: revision_of(each.metadata.annotations))
    return tuple(ended[: max(0, len(ended) - limit)])
