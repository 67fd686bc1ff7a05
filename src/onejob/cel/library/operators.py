"""Arithmetic, order, membership and size. The compiler has faster paths for the usual types."""

import math
from typing import Any

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Library
from onejob.cel.values import (
    Duration,
    MapList,
    SetList,
    Timestamp,
    UInt,
    checked_int,
    checked_uint,
    compare,
    contains,
    equal,
    lookup,
    no_overload,
)

LIBRARY = Library()

_SAME = ("int", "uint", "double")


def _arithmetic(symbol: str) -> list[str]:
    return [f"_{symbol}_({each}, {each}) -> {each}" for each in _SAME]


def _number(left: Any, value: Any) -> Any:
    kind = type(left)
    if kind is int:
        return checked_int(value)
    return checked_uint(value) if kind is UInt else value


@LIBRARY.add(
    *_arithmetic("+"),
    "_+_(string, string) -> string",
    "_+_(bytes, bytes) -> bytes",
    "_+_(list<A>, list<A>) -> list<A>",
    "_+_(duration, duration) -> duration",
    "_+_(timestamp, duration) -> timestamp",
    "_+_(duration, timestamp) -> timestamp",
)
def add(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return _add_lists(left, right)
    if isinstance(left, (Timestamp, Duration)):
        total = left.nanoseconds + right.nanoseconds
        both = isinstance(left, Duration) and isinstance(right, Duration)
        if both:
            return Duration(total)
        return Timestamp(total, left.offset if isinstance(left, Timestamp) else right.offset)
    return _number(left, left + right)


def _add_lists(left: list[Any], right: list[Any]) -> list[Any]:
    if isinstance(left, SetList):
        return SetList([*left, *(each for each in right if not contains(left, each))])
    if isinstance(left, MapList):
        merged = {left.key_of(each): each for each in left}
        merged.update({left.key_of(each): each for each in right})
        result = MapList(merged.values())
        result.keys = left.keys
        return result
    return left + right


@LIBRARY.add(
    *_arithmetic("-"),
    "_-_(duration, duration) -> duration",
    "_-_(timestamp, duration) -> timestamp",
    "_-_(timestamp, timestamp) -> duration",
)
def subtract(left: Any, right: Any) -> Any:
    if isinstance(left, (Timestamp, Duration)):
        difference = left.nanoseconds - right.nanoseconds
        if isinstance(left, Timestamp) and isinstance(right, Duration):
            return Timestamp(difference, left.offset)
        return Duration(difference)
    return _number(left, left - right)


@LIBRARY.add(*_arithmetic("*"))
def multiply(left: Any, right: Any) -> Any:
    return _number(left, left * right)


@LIBRARY.add(*_arithmetic("/"))
def divide(left: Any, right: Any) -> Any:
    if type(left) is float:
        return _divide_floats(left, right)
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return _number(left, quotient if (left < 0) == (right < 0) else -quotient)


def _divide_floats(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


@LIBRARY.add("_%_(int, int) -> int", "_%_(uint, uint) -> uint")
def modulo(left: Any, right: Any) -> Any:
    if right == 0:
        raise EvaluationError("modulus by zero")
    remainder = abs(left) % abs(right)
    return _number(left, remainder if left >= 0 else -remainder)


@LIBRARY.add("-_(int) -> int", "-_(double) -> double")
def negate(operand: Any) -> Any:
    return _number(operand, -operand)


@LIBRARY.add("!_(bool) -> bool")
def invert(operand: bool) -> bool:
    return not operand


_ORDERED = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_CROSS = [(a, b) for a in _SAME for b in _SAME if a != b]


def _order(symbol: str) -> list[str]:
    pairs = [(each, each) for each in _ORDERED] + _CROSS
    return [f"_{symbol}_({left}, {right}) -> bool" for left, right in pairs]


@LIBRARY.add(*_order("<"))
def less(left: Any, right: Any) -> bool:
    return compare(left, right) == -1


@LIBRARY.add(*_order("<="))
def less_or_equal(left: Any, right: Any) -> bool:
    return compare(left, right) in (-1, 0)


@LIBRARY.add(*_order(">"))
def greater(left: Any, right: Any) -> bool:
    return compare(left, right) == 1


@LIBRARY.add(*_order(">="))
def greater_or_equal(left: Any, right: Any) -> bool:
    return compare(left, right) in (0, 1)


@LIBRARY.add("_==_(A, A) -> bool")
def equals(left: Any, right: Any) -> bool:
    return equal(left, right)


@LIBRARY.add("_!=_(A, A) -> bool")
def differs(left: Any, right: Any) -> bool:
    return not equal(left, right)


@LIBRARY.add("@in(A, list<A>) -> bool", "@in(K, map<K, V>) -> bool")
def is_in(wanted: Any, among: Any) -> bool:
    if type(among) is dict:
        return lookup(among, wanted)[0]
    if isinstance(among, list):
        return contains(among, wanted)
    raise no_overload()


@LIBRARY.add(
    *(
        f"{shape}{each}{end}"
        for each in ("string", "bytes", "list<A>", "map<K, V>")
        for shape, end in (("size(", ") -> int"), ("", "..size() -> int"))
    )
)
def size(value: Any) -> int:
    return len(value)
