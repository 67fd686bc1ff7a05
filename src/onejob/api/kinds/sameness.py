"""Semantic comparison of spec fields, and of their errors, with the stored object.

Go clients drop empty values and rewrite quantities when they send back a document. Neither may
count as a change of an immutable field or increment the generation.
"""

from collections.abc import Callable
from typing import Any, Final

from onejob.wire.field_errors import FieldError
from onejob.wire.quantity import same_quantity

#: Fields that are maps of quantities, and fields that are quantities.
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead", "capacity", "allocatable"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})

#: Fields in which false or zero is equivalent to unset.
_ZERO_IS_UNSET: Final = frozenset(
    {
        "hostNetwork", "hostPID", "hostIPC", "hostPort", "initialDelaySeconds", "readOnly",
        "stdin", "stdinOnce", "tty",
    }
)  # fmt: skip


def same_meaning(a: Any, b: Any) -> bool:
    """Return whether two values are equal if null, empty objects, lists and texts count as absent,
    recursively."""
    if a == b:
        return True
    if isinstance(a, dict | None) and isinstance(b, dict | None):
        a, b = a or {}, b or {}
        return all(_same_field(key, a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list | None) and isinstance(b, list | None):
        a, b = a or [], b or []
        return len(a) == len(b) and all(map(same_meaning, a, b))
    # One is unset, the other an empty string.
    return not a and not b and isinstance(a, str | None) and isinstance(b, str | None)


def _same_field(key: str, a: Any, b: Any) -> bool:
    """Return whether two values of a field have the same meaning; quantities are compared by
    amount."""
    if a == b:
        return True
    if key in _ZERO_IS_UNSET:
        return not a and not b
    if key in _QUANTITIES and a is not None and b is not None:
        return same_quantity(a, b)
    if key in _QUANTITY_MAPS and isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_quantity(a[name], b[name]) for name in a)
    return same_meaning(a, b)


def newly_invalid(
    errors: list[FieldError], stored_errors: Callable[[], list[FieldError]], pod_spec: str
) -> list[FieldError]:
    """Return the errors without those of a Pod spec that the stored object has as well.

    The validation of Pod specs became stricter, and an object stored before must remain updatable:
    its invalid fields may be immutable. `restartPolicy` has always been validated. `pod_spec` is
    the path of the Pod spec.
    """
    always_validated = f"{pod_spec}.restartPolicy"
    older = [
        error
        for error in errors
        if error.field.startswith(f"{pod_spec}.") and error.field != always_validated
    ]
    if not older:
        return errors
    known = stored_errors()
    return [error for error in errors if error not in older or error not in known]
