"""ReplicaSet sync: the Pods to create and to delete, and the status."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.deployment import ReplicaSet, ReplicaSetStatus
from onejob.objects.meta import LabelSelector, find_condition
from onejob.objects.pod import Pod
from onejob.planning.deployment.conditions import REPLICA_FAILURE, make, put, without
from onejob.wire.selectors import matcher_of

_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
#: Pods created or deleted by one sync, as upstream.
BURST: Final = 500
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
#: Delay before a Pod that has failed is replaced; doubled with each failure in a row.
_FIRST_DELAY_SECONDS: Final = 10.0
_LONGEST_DELAY_SECONDS: Final = 300.0


class ReplicaPlan(Struct, frozen=True):
    creations: int = 0
    deletions: tuple[Pod, ...] = ()
    #: Seconds until the creation of Pods that is due later; None for none.
    wait_seconds: float | None = None


def plan_replicas(
    replica_set: ReplicaSet, pods: Sequence[Pod], failures: int, since_failure: float
) -> ReplicaPlan:
    """Return the Pods to create or delete.

    `pods` are those that the ReplicaSet controls. `failures` counts Pods that have failed since one
    was available last, the newest `since_failure` seconds ago: a Pod of a ReplicaSet restarts its
    containers, so it fails only if the node rejects it or it was evicted.
    """
    if replica_set.metadata.deleting:
        return ReplicaPlan()
    active = [pod for pod in pods if pod.active]
    missing = replica_set.spec.replicas - len(active)
    if missing < 0:
        ranked = sorted(active, key=_keep_rank)
        return ReplicaPlan(deletions=tuple(ranked[: min(-missing, BURST)]))
    if missing and failures:
        delay = min(_FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 10), _LONGEST_DELAY_SECONDS)
        if since_failure < delay:
            return ReplicaPlan(wait_seconds=delay - since_failure)
    return ReplicaPlan(creations=min(missing, BURST))


def _keep_rank(pod: Pod) -> tuple[object, ...]:
    """Return a sort key: the Pods to delete first come first, as upstream's ActivePods."""
    metadata, status = pod.metadata, pod.status
    ready = find_condition(status.conditions, "Ready")
    ready_since = ready.last_transition_time if ready is not None and pod.ready else None
    restarts = max((each.restart_count for each in status.container_statuses), default=0)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.phase, 0),
        pod.ready,
        _deletion_cost(metadata.annotations),
        -(ready_since.timestamp() if ready_since else 0.0),
        -restarts,
        -(metadata.creation_timestamp.timestamp() if metadata.creation_timestamp else 0.0),
    )


def _deletion_cost(annotations: dict[str, str]) -> int:
    text = annotations.get(_DELETION_COST, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else 0


class Availability(Struct, frozen=True):
    status: ReplicaSetStatus
    #: Seconds until a ready Pod becomes available; None if none is awaited.
    wait_seconds: float | None = None


def observed_status(
    replica_set: ReplicaSet, pods: Sequence[Pod], problem: str, now: datetime
) -> Availability:
    """Return the status by the Pods that the ReplicaSet controls.

    `problem` is why Pods could not be created or deleted (`FailedCreate: …`), or "".
    """
    active = [pod for pod in pods if pod.active]
    labels = (msgspec.json.decode(replica_set.spec.template).get("metadata") or {}).get("labels")
    matcher = matcher_of(LabelSelector(match_labels=labels or {}))
    ready = [pod for pod in active if pod.ready]
    waits = [_until_available(pod, replica_set.spec.min_ready_seconds, now) for pod in ready]
    conditions = replica_set.status.conditions
    if problem:
        reason, _, message = problem.partition(": ")
        failure = make(REPLICA_FAILURE, "True", reason, message, now)
        conditions = put(conditions, replace(failure, last_update_time=None))
    else:
        conditions = without(conditions, REPLICA_FAILURE)
    status = ReplicaSetStatus(
        replicas=len(active),
        fully_labeled_replicas=sum(matcher.matches(pod.metadata.labels) for pod in active),
        ready_replicas=len(ready),
        available_replicas=sum(wait <= 0 for wait in waits),
        terminating_replicas=sum(pod.terminating for pod in pods),
        observed_generation=replica_set.metadata.generation,
        conditions=conditions,
    )
    return Availability(status, min((wait for wait in waits if wait > 0), default=None))


def _until_available(pod: Pod, min_ready_seconds: int, now: datetime) -> float:
    """Return the seconds until a ready Pod is available; 0 or less if it is."""
    if not min_ready_seconds:
        return 0.0
    ready = find_condition(pod.status.conditions, "Ready")
    if ready is None or ready.last_transition_time is None:
        return float(min_ready_seconds)
    due = ready.last_transition_time + timedelta(seconds=min_ready_seconds)
    return (due - now).total_seconds()
