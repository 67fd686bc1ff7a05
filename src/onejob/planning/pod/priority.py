"""Which priority a new Pod gets: that of the class it names, or of the default class."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

_PREEMPTS: Final = "PreemptLowerPriority"


class PriorityClass(Struct, frozen=True):
    name: str
    value: int
    preemption_policy: str = _PREEMPTS
    is_default: bool = False


#: Known everywhere, whether or not somebody has created them.
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": PriorityClass("system-cluster-critical", 2_000_000_000),
    "system-node-critical": PriorityClass("system-node-critical", 2_000_001_000),
}
_NO_CLASS: Final = PriorityClass("", 0)


def default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """Of several (they were marked at the same time) the lowest."""
    marked = [found for found in classes if found.is_default]
    return min(marked, key=lambda found: (found.value, found.name)) if marked else None


def system_class_problem(name: str, value: int, is_default: bool) -> str:
    """Why a class may not have a name that is kept for the system's; "" if it may."""
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if known.value != value:
        return f"value of {name} PriorityClass must be {known.value}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def contradiction(granted: PriorityClass | None, priority: int | None, policy: str) -> str:
    """Why a Pod may not bring this priority and preemption policy along; "" if it may."""
    granted = granted or _NO_CLASS
    if priority is not None and priority != granted.value:
        return (
            f"the integer value of priority ({priority}) must not be provided in pod spec; "
            f"priority admission controller computed {granted.value} from the given "
            "PriorityClass name"
        )
    if policy and policy != granted.preemption_policy:
        return (
            f"the string value of PreemptionPolicy ({policy}) must not be provided in pod spec; "
            f"priority admission controller computed {granted.preemption_policy} from the given "
            "PriorityClass name"
        )
    return ""
