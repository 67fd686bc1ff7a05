"""Conditions of Deployments and ReplicaSets: set, removed and compared as upstream does."""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from onejob.objects.deployment import WorkloadCondition

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
REPLICA_FAILURE: Final = "ReplicaFailure"

Conditions = tuple[WorkloadCondition, ...]


def find(conditions: Conditions, kind: str) -> WorkloadCondition | None:
    return next((each for each in conditions if each.type == kind), None)


def without(conditions: Conditions, kind: str) -> Conditions:
    return tuple(each for each in conditions if each.type != kind)


def make(kind: str, status: str, reason: str, message: str, now: datetime) -> WorkloadCondition:
    now = now.replace(microsecond=0)
    return WorkloadCondition(
        type=kind,
        status=status,
        last_update_time=now,
        last_transition_time=now,
        reason=reason,
        message=message,
    )


def put(conditions: Conditions, new: WorkloadCondition) -> Conditions:
    """Return the conditions with `new` in place of the one of its type.

    As upstream, a condition with the same status and reason stays as it is, and the transition time
    changes only with the status.
    """
    old = find(conditions, new.type)
    if old is not None:
        if (old.status, old.reason) == (new.status, new.reason):
            return conditions
        if old.status == new.status:
            new = replace(new, last_transition_time=old.last_transition_time)
    return (*without(conditions, new.type), new)
