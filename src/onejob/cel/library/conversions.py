"""Conversions between types, and types as values."""

import math
import re
from typing import Any

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.library.times import format_duration, format_timestamp
from onejob.cel.values import (
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    checked_int,
    checked_uint,
    type_name,
)

LIBRARY = Library()

_INT = re.compile(r"[+-]?\d{1,30}\Z", re.ASCII)
_UINT = re.compile(r"\d{1,30}\Z", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity|nan)\Z",
                    re.ASCII | re.IGNORECASE)  # fmt: skip
_MAX_NUMBER_LENGTH = 1000
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


@LIBRARY.add("dyn(A) -> dyn")
def dyn(value: Any) -> Any:
    return value


@LIBRARY.add("type(A) -> type<A>")
def type_(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


@LIBRARY.add("int(int) -> int", "int(uint) -> int")
def int_of_int(value: int) -> int:
    return checked_int(int(value))


@LIBRARY.add("int(double) -> int")
def int_of_double(value: float) -> int:
    # Upstream rejects both ends of the range, where a double is not exact.
    if not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


@LIBRARY.add("int(string) -> int")
def int_of_string(value: str) -> int:
    if not _INT.match(value):
        raise _not_parsed("ParseInt", value)
    return checked_int(int(value))


@LIBRARY.add("int(timestamp) -> int")
def int_of_timestamp(value: Timestamp) -> int:
    return value.nanoseconds // 10**9


@LIBRARY.add("int(duration) -> int")
def int_of_duration(value: Duration) -> int:
    return value.nanoseconds


@LIBRARY.add("uint(int) -> uint", "uint(uint) -> uint")
def uint_of_int(value: int) -> UInt:
    return checked_uint(value)


@LIBRARY.add("uint(double) -> uint")
def uint_of_double(value: float) -> UInt:
    if not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(int(value))


@LIBRARY.add("uint(string) -> uint")
def uint_of_string(value: str) -> UInt:
    if not _UINT.match(value):
        raise _not_parsed("ParseUint", value)
    return checked_uint(int(value))


@LIBRARY.add("double(double) -> double", "double(int) -> double", "double(uint) -> double")
def double_of_number(value: float) -> float:
    return float(value)


@LIBRARY.add("double(string) -> double")
def double_of_string(value: str) -> float:
    # Length limit first: the pattern would try every split of a long run of digits.
    if len(value) > _MAX_NUMBER_LENGTH or not _FLOAT.match(value):
        raise _not_parsed("ParseFloat", value)
    return float(value)


def _not_parsed(function: str, value: str) -> EvaluationError:
    return EvaluationError(f'strconv.{function}: parsing "{value[:64]}": invalid syntax')


@LIBRARY.add("bool(bool) -> bool")
def bool_of_bool(value: bool) -> bool:
    return value


@LIBRARY.add("bool(string) -> bool")
def bool_of_string(value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


@LIBRARY.add("bytes(bytes) -> bytes")
def bytes_of_bytes(value: bytes) -> bytes:
    return value


@LIBRARY.add("bytes(string) -> bytes", cost=Cost.TRAVERSE)
def bytes_of_string(value: str) -> bytes:
    return value.encode(errors="surrogatepass")


@LIBRARY.add("string(bytes) -> string", cost=Cost.TRAVERSE)
def string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error


@LIBRARY.add(
    *(
        f"string({each}) -> string"
        for each in ("string", "bool", "int", "uint", "double", "timestamp", "duration")
    )
)
def string_of(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return format_double(value)
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    return str(value)


def format_double(value: float) -> str:
    """Format like Go's %g: with an exponent below -4 or above 5."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, body = ("-", repr(-value)) if math.copysign(1, value) < 0 else ("", repr(value))
    mantissa, _, exponent = body.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0)
    if not digits:
        return f"{sign}0"
    if whole.strip("0") == "":
        point = int(exponent or 0) - (len(fraction) - len(fraction.lstrip("0")))
    digits = digits.rstrip("0")
    scientific = point - 1
    if scientific < -4 or scientific >= 6:
        shown = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{shown}e{'-' if scientific < 0 else '+'}{abs(scientific):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if len(digits) <= point:
        return f"{sign}{digits.ljust(point, '0')}"
    return f"{sign}{digits[:point]}.{digits[point:]}"
