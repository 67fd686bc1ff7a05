"""Runtime values other than JSON's, with equality and order for all values."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from onejob.cel.errors import CostLimitExceeded, EvaluationError

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1
#: 0001-01-01T00:00:00Z and the last nanosecond of the year 9999.
TIMESTAMP_MIN: Final = -62_135_596_800 * 10**9
TIMESTAMP_MAX: Final = 253_402_300_800 * 10**9 - 1


class UInt(int):
    """Unsigned integer: a CEL type of its own, although it is written like an int."""

    __slots__ = ()


class Opaque:
    """Base class of values with their own type and no literal syntax: see the libraries."""

    __slots__ = ()
    type_name = ""

    def equals(self, other: "Opaque") -> bool:
        raise NotImplementedError


class Timestamp(Opaque):
    """Point in time, in nanoseconds since 1970, UTC."""

    __slots__ = ("nanoseconds", "offset")
    type_name = "google.protobuf.Timestamp"

    def __init__(self, nanoseconds: int, offset: int = 0) -> None:
        if not TIMESTAMP_MIN <= nanoseconds <= TIMESTAMP_MAX:
            raise EvaluationError("timestamp overflow")
        self.nanoseconds = nanoseconds
        #: Seconds east of UTC in the parsed text; formatting reproduces it.
        self.offset = offset

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds


class Duration(Opaque):
    __slots__ = ("nanoseconds",)
    type_name = "google.protobuf.Duration"

    def __init__(self, nanoseconds: int) -> None:
        if not INT_MIN <= nanoseconds <= INT_MAX:
            raise EvaluationError("integer overflow")
        self.nanoseconds = nanoseconds

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, Duration) and self.nanoseconds == other.nanoseconds


class OptionalValue(Opaque):
    __slots__ = ("content", "present")
    type_name = "optional_type"

    def __init__(self, present: bool, content: Any = None) -> None:
        self.present = present
        self.content = content

    def equals(self, other: Opaque) -> bool:
        if not isinstance(other, OptionalValue) or self.present != other.present:
            return False
        return not self.present or equal(self.content, other.content)


NONE: Final = OptionalValue(False)


class TypeValue(Opaque):
    """Type as a value: the result of `type(x)`, and the meaning of `int` or `string` as names."""

    __slots__ = ("name",)
    type_name = "type"

    def __init__(self, name: str) -> None:
        self.name = name

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name


class ObjectValue(Opaque):
    """Object built by an expression: `Object.spec{replicas: 3}`."""

    __slots__ = ("fields", "type_name")

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        self.type_name = type_name
        self.fields = fields

    def equals(self, other: Opaque) -> bool:
        return (
            isinstance(other, ObjectValue)
            and self.type_name == other.type_name
            and equal(self.fields, other.fields)
        )


class LazyFields(Opaque):
    """Named values that are computed at their first use. An error is repeated at each use."""

    __slots__ = ("_compute", "_found")
    type_name = "kubernetes.variables"

    def __init__(self, compute: Mapping[str, Callable[[], Any]]) -> None:
        self._compute = compute
        self._found: dict[str, Any] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._compute

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            compute = self._compute[name]
            try:
                self._found[name] = compute()
            except EvaluationError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, EvaluationError):
            raise found
        return found

    def equals(self, other: Opaque) -> bool:
        return self is other


class SetList(list[Any]):
    """List with x-kubernetes-list-type set: equality ignores order."""


class MapList(list[Any]):
    """List with x-kubernetes-list-type map: equality ignores order and matches elements by key."""

    keys: tuple[str, ...] = ()

    def key_of(self, element: Any) -> Any:
        if type(element) is not dict:
            return repr(element)
        return tuple(repr(element.get(key)) for key in self.keys)


_TYPE_NAMES = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    dict: "map",
    list: "list",
    SetList: "list",
    MapList: "list",
}


def type_name(value: Any) -> str:
    found = _TYPE_NAMES.get(type(value))
    if found is not None:
        return found
    name: str = value.type_name
    return name


def no_overload() -> EvaluationError:
    return EvaluationError("no such overload")


_NUMBERS = frozenset((int, UInt, float))
_PLAIN = frozenset((str, bool, int, UInt, float, bytes, type(None)))
_Count = Callable[[], None]


def _uncounted() -> None:
    return None


def bounded_count(most: int = 1_000_000) -> _Count:
    """Return a counter for functions that compare before their cost is known.

    It raises CostLimitExceeded after `most` calls, the limit of one evaluation.
    """
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen > most:
            raise CostLimitExceeded

    return count


def equal(left: Any, right: Any, count: _Count = _uncounted) -> bool:
    """Return the result of CEL's `==`.

    Numbers of different types are equal by value; values of other different types never are.
    `count` is called for each pair compared inside lists and maps.
    """
    left_type, right_type = type(left), type(right)
    if left_type in _PLAIN:
        if left_type is right_type:
            return bool(left == right)
        if left_type in _NUMBERS and right_type in _NUMBERS:
            # Upstream compares as doubles if either is a double.
            if left_type is float or right_type is float:
                return float(left) == float(right)
            return bool(left == right)
        return False
    if left_type is dict:
        return right_type is dict and _equal_maps(left, right, count)
    if isinstance(left, list):
        return isinstance(right, list) and _equal_lists(left, right, count)
    return isinstance(left, Opaque) and isinstance(right, Opaque) and left.equals(right)


def _equal_maps(left: dict[Any, Any], right: dict[Any, Any], count: _Count) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.items():
        count()
        found, other = lookup(right, key)
        if not found or not equal(value, other, count):
            return False
    return True


def _equal_lists(left: list[Any], right: list[Any], count: _Count) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, MapList):
        others = {left.key_of(element): element for element in right}
        for element in left:
            count()
            key = left.key_of(element)
            if key not in others or not equal(element, others[key], count):
                return False
        return True
    if isinstance(left, SetList):
        return _contains_all(left, right, count) and _contains_all(right, left, count)
    for one, other in zip(left, right, strict=True):
        count()
        if not equal(one, other, count):
            return False
    return True


def _contains_all(wanted: list[Any], among: list[Any], count: _Count) -> bool:
    # Strings, the usual elements, by hash; other elements one by one.
    strings = {element for element in among if type(element) is str}
    rest = [element for element in among if type(element) is not str]
    for element in wanted:
        count()
        if type(element) is str:
            if element not in strings:
                return False
        elif not contains(rest, element, count):
            return False
    return True


def contains(among: list[Any], wanted: Any, count: _Count = _uncounted) -> bool:
    for element in among:
        count()
        if equal(element, wanted, count):
            return True
    return False


def lookup(mapping: dict[Any, Any], key: Any) -> tuple[bool, Any]:
    """Return whether the key exists, and its value.

    Unlike in a dict, True and 1 are different keys.
    """
    kind = type(key)
    if kind is float and not math.isfinite(key):
        return False, None
    if kind not in _PLAIN or kind is bytes or kind is type(None):
        return False, None
    if key not in mapping:
        return False, None
    if kind is not str and (kind is bool) != any(
        type(each) is bool for each in mapping if each == key
    ):
        return False, None
    return True, mapping[key]


_ORDERED = frozenset((str, bool, bytes))


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1; 2 if the values are unordered because one is NaN.

    Raises EvaluationError for types without an order.
    """
    left_type, right_type = type(left), type(right)
    if left_type in _NUMBERS and right_type in _NUMBERS:
        if left != left or right != right:
            return 2
        if left_type is not right_type and (left_type is float or right_type is float):
            left, right = float(left), float(right)
    elif left_type is right_type and left_type in (Timestamp, Duration):
        left, right = left.nanoseconds, right.nanoseconds
    elif left_type is not right_type or left_type not in _ORDERED:
        raise no_overload()
    elif left_type is str:
        # By code points, which equals the order of UTF-8 bytes: Python's own order.
        return -1 if left < right else int(left > right)
    return -1 if left < right else int(left > right)


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> UInt:
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise EvaluationError("unsigned integer overflow")
