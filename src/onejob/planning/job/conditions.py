"""Job conditions: constructors, updates and lookups."""

from collections.abc import Sequence
from datetime import datetime

from onejob.objects.meta import Condition
from onejob.planning.metadata_values import whole_second

COMPLETE = "Complete"
FAILED = "Failed"
FAILURE_TARGET = "FailureTarget"
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
SUSPENDED = "Suspended"


def new_condition(kind: str, status: str, reason: str, message: str, now: datetime) -> Condition:
    """Return a condition as of now."""
    at = whole_second(now)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=at,
        last_transition_time=at,
    )


def ensure_condition(
    conditions: Sequence[Condition], wanted: Condition
) -> tuple[tuple[Condition, ...], bool]:
    """Return the conditions including `wanted`, and whether that changed them.

    A condition with status False is not added if its type is absent: a Job that was never suspended
    needs no "not suspended" condition.
    """
    for position, present in enumerate(conditions):
        if present.type == wanted.type:
            if (present.status, present.reason, present.message) == (
                wanted.status,
                wanted.reason,
                wanted.message,
            ):
                return tuple(conditions), False
            return (*conditions[:position], wanted, *conditions[position + 1 :]), True
    if wanted.status == "False":
        return tuple(conditions), False
    return (*conditions, wanted), True


def find_true(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Return the condition of this type if its status is True; None otherwise."""
    for condition in conditions:
        if condition.type == kind and condition.status == "True":
            return condition
    return None
