"""Status and conditions of a Deployment, from the status of its ReplicaSets."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from onejob.objects.deployment import (
    Deployment,
    DeploymentStatus,
    ReplicaSet,
    WorkloadCondition,
)
from onejob.planning.deployment.conditions import (
    AVAILABLE,
    PROGRESSING,
    REPLICA_FAILURE,
    Conditions,
    find,
    make,
    put,
    without,
)
from onejob.planning.deployment.limits import limits

NEW_AVAILABLE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
_UPDATED: Final = "ReplicaSetUpdated"
_CREATED: Final = "NewReplicaSetCreated"
#: Reasons of a condition Progressing that a roll-out may keep until its next progress.
_KEPT: Final = frozenset({TIMED_OUT, _UPDATED, _CREATED})
_PAUSED: Final = "DeploymentPaused"
#: As upstream: a deadline of this many seconds is none.
_NO_DEADLINE: Final = 2**31 - 1


def rollout_status(
    deployment: Deployment,
    replica_sets: Sequence[ReplicaSet],
    current: ReplicaSet | None,
    stuck: str,
    now: datetime,
) -> tuple[DeploymentStatus, float | None]:
    """Return the status, and the seconds until the progress deadline if it applies.

    `stuck` is why containers of the newest Pods cannot start, `reason: message`, or "".
    """
    statuses = [each.status for each in replica_sets]
    total = sum(each.replicas for each in statuses)
    available = sum(each.available_replicas for each in statuses)
    status = DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=total,
        updated_replicas=current.status.replicas if current is not None else 0,
        ready_replicas=sum(each.ready_replicas for each in statuses),
        available_replicas=available,
        unavailable_replicas=max(0, total - available),
        terminating_replicas=sum(each.terminating_replicas for each in statuses),
        collision_count=deployment.status.collision_count,
    )
    conditions = _with_available(deployment, status, now)
    if not deployment.metadata.deleting:
        conditions = _with_progress(deployment, status, current, conditions, stuck, now)
    failures = [
        failure
        for each in replica_sets
        if (failure := find(each.status.conditions, REPLICA_FAILURE)) is not None
    ]
    if failures:
        shown = failures[0]
        made = make(REPLICA_FAILURE, shown.status, shown.reason, shown.message, now)
        conditions = put(conditions, made)
    else:
        conditions = without(conditions, REPLICA_FAILURE)
    status = replace(status, conditions=conditions)
    return status, _until_deadline(deployment, status, now)


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Return whether all replicas are of the current template and available."""
    wanted = deployment.spec.replicas
    return (
        status.updated_replicas == status.replicas == status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def _with_available(deployment: Deployment, status: DeploymentStatus, now: datetime) -> Conditions:
    least = deployment.spec.replicas - limits(deployment)[1]
    if status.available_replicas >= least:
        new = make(
            AVAILABLE,
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
            now,
        )
    else:
        new = make(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
            now,
        )
    return put(deployment.status.conditions, new)


def _with_progress(
    deployment: Deployment,
    status: DeploymentStatus,
    current: ReplicaSet | None,
    conditions: Conditions,
    stuck: str,
    now: datetime,
) -> Conditions:
    """Return the conditions with Progressing up to date."""
    if not _has_deadline(deployment):
        return without(conditions, PROGRESSING)
    before = find(conditions, PROGRESSING)
    if deployment.spec.paused:
        if before is not None and before.reason == _PAUSED:
            return conditions
        text = "Deployment is paused"
        return put(conditions, make(PROGRESSING, "Unknown", _PAUSED, text, now))
    if before is not None and before.reason == _PAUSED:
        text = "Deployment is resumed"
        conditions = put(conditions, make(PROGRESSING, "Unknown", "DeploymentResumed", text, now))
        before = find(conditions, PROGRESSING)
    was_complete = before is not None and before.reason == NEW_AVAILABLE
    if was_complete and status.replicas == status.updated_replicas and not stuck:
        return conditions
    name = _subject(deployment, current)
    if is_complete(deployment, status):
        text = f"{name} has successfully progressed."
        return put(conditions, make(PROGRESSING, "True", NEW_AVAILABLE, text, now))
    if stuck and not _timed_out(deployment, before, now):
        reason, _, message = stuck.partition(": ")
        return put(conditions, make(PROGRESSING, "False", reason, message, now))
    if _progressed(deployment.status, status):
        made = make(PROGRESSING, "True", _UPDATED, f"{name} is progressing.", now)
        if before is not None and before.status == "True":
            made = replace(made, last_transition_time=before.last_transition_time)
        return (*without(conditions, PROGRESSING), made)
    if _timed_out(deployment, before, now):
        reason, _, why = stuck.partition(": ")
        text = f"{name} has timed out progressing." + (f" {reason}: {why}" if stuck else "")
        return put(conditions, make(PROGRESSING, "False", TIMED_OUT, text, now))
    if before is None or before.reason not in _KEPT:
        if current is None:
            return conditions
        if current.status.replicas == 0:
            reason, text = _CREATED, f'Created new replica set "{current.metadata.name}"'
        else:
            reason, text = _UPDATED, f"{name} is progressing."
        return put(conditions, make(PROGRESSING, "True", reason, text, now))
    return conditions


def _subject(deployment: Deployment, current: ReplicaSet | None) -> str:
    if current is None:
        return f'Deployment "{deployment.metadata.name}"'
    return f'ReplicaSet "{current.metadata.name}"'


def _progressed(old: DeploymentStatus, new: DeploymentStatus) -> bool:
    return (
        new.updated_replicas > old.updated_replicas
        or new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        or new.ready_replicas > old.ready_replicas
        or new.available_replicas > old.available_replicas
    )


def _has_deadline(deployment: Deployment) -> bool:
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != _NO_DEADLINE


def _timed_out(deployment: Deployment, progress: WorkloadCondition | None, now: datetime) -> bool:
    if progress is None or progress.reason == NEW_AVAILABLE:
        return False
    return progress.reason == TIMED_OUT or _due(deployment, progress) < now


def _due(deployment: Deployment, progress: WorkloadCondition) -> datetime:
    since = progress.last_update_time or progress.last_transition_time
    assert since is not None, "a condition has a time"
    return since + timedelta(seconds=deployment.spec.progress_deadline_seconds or 0)


def _until_deadline(
    deployment: Deployment, status: DeploymentStatus, now: datetime
) -> float | None:
    """Return the seconds after which a roll-out without progress has timed out."""
    progress = find(status.conditions, PROGRESSING)
    if not _has_deadline(deployment) or deployment.spec.paused or progress is None:
        return None
    if progress.reason in (NEW_AVAILABLE, TIMED_OUT):
        return None
    # The times of conditions have whole seconds.
    return max(0.0, (_due(deployment, progress) - now).total_seconds()) + 1.0
