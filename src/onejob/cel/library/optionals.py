"""Optional values."""

from typing import Any

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.values import NONE, Duration, OptionalValue, Timestamp, no_overload

LIBRARY = Library()


@LIBRARY.add("optional.of(V) -> optional<V>")
def optional_of(value: Any) -> OptionalValue:
    return OptionalValue(True, value)


@LIBRARY.add("optional.none() -> optional<V>")
def optional_none() -> OptionalValue:
    return NONE


@LIBRARY.add("optional.ofNonZeroValue(V) -> optional<V>")
def optional_of_non_zero(value: Any) -> OptionalValue:
    zero = value is None or value is False
    if isinstance(value, (int, float, str, bytes, list, dict)):
        zero = not value
    elif isinstance(value, Duration):
        zero = not value.nanoseconds
    elif isinstance(value, Timestamp):
        # Go's zero time is the first moment of the year 1.
        zero = value.nanoseconds == -62_135_596_800 * 10**9
    elif isinstance(value, OptionalValue):
        zero = not value.present
    return NONE if zero else OptionalValue(True, value)


@LIBRARY.add("optional<V>..value() -> V")
def value(optional: OptionalValue) -> Any:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.content


@LIBRARY.add("optional<V>..hasValue() -> bool")
def has_value(optional: OptionalValue) -> bool:
    return optional.present


@LIBRARY.add("list<V>..first() -> optional<V>")
def first(values: list[Any]) -> OptionalValue:
    return OptionalValue(True, values[0]) if values else NONE


@LIBRARY.add("list<V>..last() -> optional<V>")
def last(values: list[Any]) -> OptionalValue:
    return OptionalValue(True, values[-1]) if values else NONE


@LIBRARY.add(
    "optional.unwrap(list<optional<V>>) -> list<V>",
    "list<optional<V>>..unwrapOpt() -> list<V>",
    cost=Cost.OUTPUT,
)
def unwrap(values: list[Any]) -> list[Any]:
    if not all(isinstance(each, OptionalValue) for each in values):
        raise no_overload()
    return [each.content for each in values if each.present]


# `or` and `orValue` evaluate their argument lazily, so the compiler implements them. These
# declarations only provide their types.


@LIBRARY.add("optional<V>..or(optional<V>) -> optional<V>")
def or_(optional: OptionalValue, other: OptionalValue) -> OptionalValue:
    return optional if optional.present else other


@LIBRARY.add("optional<V>..orValue(V) -> V")
def or_value(optional: OptionalValue, other: Any) -> Any:
    return optional.content if optional.present else other
