"""Priority admission: resolve the PriorityClass of a new Pod, named or default."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

_PREEMPTS: Final = "PreemptLowerPriority"


class PriorityClass(Struct, frozen=True):
    name: str
    value: int
    preemption_policy: str = _PREEMPTS
    is_default: bool = False


#: Built-in classes; they are valid even if no such object exists.
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": PriorityClass("system-cluster-critical", 2_000_000_000),
    "system-node-critical": PriorityClass("system-node-critical", 2_000_001_000),
}
_NO_CLASS: Final = PriorityClass("", 0)


def default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """Return the default class or None.

    If several are marked as default, the lowest value wins; they can only have been marked
    concurrently.
    """
    marked = [found for found in classes if found.is_default]
    return min(marked, key=lambda found: (found.value, found.name)) if marked else None


def system_class_problem(name: str, value: int, is_default: bool) -> str:
    """Return why a class may not use a name reserved for system classes; "" if it may."""
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if known.value != value:
        return f"value of {name} PriorityClass must be {known.value}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def contradiction(granted: PriorityClass | None, priority: int | None, policy: str) -> str:
    """Return why a Pod may not specify this priority and preemption policy; "" if it may."""
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
