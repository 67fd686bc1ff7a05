"""List functions of Kubernetes and of CEL's lists extension."""

from functools import cmp_to_key
from typing import Any

from onejob.cel.errors import CostLimitExceeded, EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.library.operators import add
from onejob.cel.values import Duration, UInt, bounded_count, compare, contains, equal, no_overload

LIBRARY = Library()

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE = ("int", "uint", "double", "duration")
_MAX_LIST_LENGTH = 1_000_000


@LIBRARY.add(*(f"list<{each}>..isSorted() -> bool" for each in _COMPARABLE), cost=Cost.LIST)
def is_sorted(values: list[Any]) -> bool:
    following = iter(values)
    next(following, None)
    return all(compare(one, other) != 1 for one, other in zip(values, following, strict=False))


@LIBRARY.add(*(f"list<{each}>..sum() -> {each}" for each in _SUMMABLE), cost=Cost.LIST)
def total(values: list[Any]) -> Any:
    if not values:
        return 0
    result = values[0]
    if type(result) not in (int, UInt, float, Duration):
        raise no_overload()
    for each in values[1:]:
        if type(each) is not type(result):
            raise no_overload()
        result = add(result, each)
    return result


@LIBRARY.add(*(f"list<{each}>..max() -> {each}" for each in _COMPARABLE), cost=Cost.LIST)
def largest(values: list[Any]) -> Any:
    return _extreme(values, 1, "max")


@LIBRARY.add(*(f"list<{each}>..min() -> {each}" for each in _COMPARABLE), cost=Cost.LIST)
def least(values: list[Any]) -> Any:
    return _extreme(values, -1, "min")


def _extreme(values: list[Any], wanted: int, name: str) -> Any:
    if not values:
        raise EvaluationError(f"{name} called on empty list")
    result = values[0]
    for each in values[1:]:
        if compare(each, result) == wanted:
            result = each
    return result


@LIBRARY.add("list<A>..indexOf(A) -> int", cost=Cost.LIST)
def index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, each in enumerate(values) if equal(each, wanted)), -1)


@LIBRARY.add("list<A>..lastIndexOf(A) -> int", cost=Cost.LIST)
def last_index_of(values: list[Any], wanted: Any) -> int:
    indexes = range(len(values) - 1, -1, -1)
    return next((index for index in indexes if equal(values[index], wanted)), -1)


@LIBRARY.add("dyn..includes(dyn) -> bool", cost=Cost.LIST)
def includes(whole: Any, wanted: Any) -> bool:
    if isinstance(whole, list):
        return any(equal(each, wanted) for each in whole)
    return equal(whole, wanted)


@LIBRARY.add("list<A>..slice(int, int) -> list<A>", cost=Cost.OUTPUT)
def slice_(values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(values):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return list(values[start:end])


@LIBRARY.add(
    "list<list<A>>..flatten() -> list<A>", "list<dyn>..flatten() -> list<dyn>", cost=Cost.OUTPUT
)
def flatten(values: list[Any]) -> list[Any]:
    return flatten_to(values, 1)


@LIBRARY.add("list<dyn>..flatten(int) -> list<dyn>", cost=Cost.OUTPUT)
def flatten_to(values: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    # Literals nest as deep as the parser allows, JSON as deep as the decoder allows.
    for _ in range(min(depth, 64)):
        if not any(isinstance(each, list) for each in values):
            break
        result: list[Any] = []
        for each in values:
            if isinstance(each, list):
                result.extend(each)
            else:
                result.append(each)
            if len(result) > _MAX_LIST_LENGTH:
                raise CostLimitExceeded
        values = result
    return list(values)


@LIBRARY.add(*(f"list<{each}>..sort() -> list<{each}>" for each in _COMPARABLE), cost=Cost.OUTPUT)
def sort(values: list[Any]) -> list[Any]:
    return sort_by_keys(values, values)


def sort_by_keys(values: list[Any], keys: list[Any]) -> list[Any]:
    """Return the values in the order of their keys, which must be of one type."""
    if keys and any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    if keys:
        compare(keys[0], keys[0])

    def compare_at(left: int, right: int) -> int:
        return compare(keys[left], keys[right])

    order = sorted(range(len(keys)), key=cmp_to_key(compare_at))
    return [values[index] for index in order]


@LIBRARY.add("lists.range(int) -> list<int>", cost=Cost.OUTPUT)
def range_(count: int) -> list[int]:
    if count > _MAX_LIST_LENGTH:
        raise CostLimitExceeded
    return list(range(count))


@LIBRARY.add("list<A>..reverse() -> list<A>", cost=Cost.OUTPUT)
def reverse(values: list[Any]) -> list[Any]:
    return values[::-1]


@LIBRARY.add("list<A>..distinct() -> list<A>", cost=Cost.SQUARE)
def distinct(values: list[Any]) -> list[Any]:
    count = bounded_count()
    seen: set[str] = set()
    result: list[Any] = []
    for each in values:
        if type(each) is str:
            if each not in seen:
                seen.add(each)
                result.append(each)
        elif not contains(result, each, count):
            result.append(each)
    return result
