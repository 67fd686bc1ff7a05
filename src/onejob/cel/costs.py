"""Runtime costs of calls, in upstream's units.

A character costs a tenth, a character of a pattern a quarter.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, Final

from onejob.cel.functions import Cost
from onejob.cel.values import OptionalValue

#: Upstream's limits: one evaluation, all evaluations for one object, one estimate.
PER_CALL_LIMIT: Final = 1_000_000
PER_OBJECT_LIMIT: Final = 10_000_000
ESTIMATE_LIMIT: Final = 10_000_000

LIST_BASE: Final = 10
MAP_BASE: Final = 30
OBJECT_BASE: Final = 40
#: Allows for two checks in one evaluation.
AUTHORIZATION_CHECK: Final = 350_000

_SIZED = (str, bytes, list, dict)


def size_of(value: Any) -> int:
    if isinstance(value, _SIZED):
        return len(value.encode()) if type(value) is str and not value.isascii() else len(value)
    if isinstance(value, OptionalValue) and value.present:
        return size_of(value.content)
    return 1


def tenth(size: int) -> int:
    return (size + 9) // 10


def regex_cost(text: int, pattern: int) -> int:
    return tenth(text + 1) * ((pattern + 3) // 4)


def _walk(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) // 10
    if isinstance(value, list):
        return sum(_walk(each) for each in value)
    if isinstance(value, dict):
        return sum(_walk(key) + _walk(each) for key, each in value.items())
    return 1


def _weight(value: Any) -> int:
    """Return the size of a list, or the total weight of its elements if that is larger."""
    return max(size_of(value), _walk(value))


def _lists_product(arguments: tuple[Any, ...], result: Any) -> int:
    return 1 + _weight(arguments[0]) * _weight(arguments[1])


_FORMAT_PATTERN: Final = 60

COST_OF_CALL: dict[Cost, Callable[[tuple[Any, ...], Any], int]] = {
    Cost.TRAVERSE: lambda args, result: tenth(size_of(args[0])),
    Cost.TRAVERSE_TWICE: lambda args, result: ceil(size_of(args[0]) * 0.2),
    Cost.SECOND: lambda args, result: tenth(size_of(args[1])),
    Cost.PRODUCT: lambda args, result: tenth(size_of(args[0])) * tenth(size_of(args[1])),
    Cost.REGEX: lambda args, result: regex_cost(size_of(args[0]), size_of(args[1])),
    Cost.LIST: lambda args, result: _walk(args[0]),
    Cost.RESULT: lambda args, result: ceil(size_of(result) * 0.2),
    Cost.OUTPUT: lambda args, result: 11 + size_of(result),
    Cost.SQUARE: lambda args, result: 1 + size_of(args[0]) * _weight(args[0]),
    Cost.MEMBERS: _lists_product,
    Cost.FORMAT: lambda args, result: regex_cost(size_of(args[1]), _FORMAT_PATTERN),
    Cost.AUTHORIZE: lambda args, result: AUTHORIZATION_CHECK,
}
