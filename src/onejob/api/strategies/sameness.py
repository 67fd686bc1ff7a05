"""Whether two pieces of a spec ask for the same, however they are written.

Clients written in Go drop what is empty and rewrite quantities when they send back what they
were given. None of that may look like a change to an immutable field or bump a generation.
"""

from typing import Any, Final

from onejob.wire.quantity import same_quantity

#: Maps whose values are quantities, and fields that are one.
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead", "capacity", "allocatable"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})

#: Fields that cannot tell false or zero from unset.
_ZERO_IS_UNSET: Final = frozenset(
    {
        "hostNetwork", "hostPID", "hostIPC", "hostPort", "initialDelaySeconds", "readOnly",
        "stdin", "stdinOnce", "tty",
    }
)  # fmt: skip


def same_meaning(a: Any, b: Any) -> bool:
    if a == b:
        return True
    if isinstance(a, dict | None) and isinstance(b, dict | None):
        a, b = a or {}, b or {}
        return all(_same_field(key, a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list | None) and isinstance(b, list | None):
        a, b = a or [], b or []
        return len(a) == len(b) and all(map(same_meaning, a, b))
    # The one is unset, the other an empty text.
    return not a and not b and isinstance(a, str | None) and isinstance(b, str | None)


def _same_field(key: str, a: Any, b: Any) -> bool:
    if a == b:
        return True
    if key in _ZERO_IS_UNSET:
        return not a and not b
    if key in _QUANTITIES and a is not None and b is not None:
        return same_quantity(a, b)
    if key in _QUANTITY_MAPS and isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_quantity(a[name], b[name]) for name in a)
    return same_meaning(a, b)
