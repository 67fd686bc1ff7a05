"""Resource quantities: `500m`, `2Gi`, `1e3`."""

import re
from fractions import Fraction
from typing import Any

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.values import INT_MAX, INT_MIN, Opaque

LIBRARY = Library()

_QUANTITY = re.compile(
    r"([+-]?)(\d*)(?:\.(\d*))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,10}))?\Z", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MAX_QUANTITY_LENGTH = 1000
#: Beyond this exponent a quantity is clamped to its maximum, or below a billionth.
_FARTHEST = 1100


class Quantity(Opaque):
    __slots__ = ("number",)
    type_name = "kubernetes.Quantity"

    def __init__(self, number: Fraction) -> None:
        self.number = number

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, Quantity) and self.number == other.number


def parse_quantity(text: str) -> Quantity:
    fault = EvaluationError(
        "quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )
    match = _QUANTITY.match(text) if len(text) <= _MAX_QUANTITY_LENGTH else None
    if match is None or not (match[2] or match[3]):
        raise fault
    fraction = match[3] or ""
    number = Fraction(int((match[2] + fraction) or "0"), 10 ** len(fraction))
    if match[4]:
        number *= 1024 ** _BINARY[match[4]]
    else:
        exponent = _DECIMAL[match[5]] if match[5] else int(match[6] or 0)
        exponent = max(-_FARTHEST, min(_FARTHEST, exponent))
        number *= Fraction(10) ** exponent
    # The resolution is a billionth; finer values are rounded up.
    billionths = -((-number * 10**9) // 1)
    number = min(Fraction(billionths, 10**9), Fraction(INT_MAX))
    return Quantity(-number if match[1] == "-" else number)


@LIBRARY.add("quantity(string) -> Quantity", cost=Cost.TRAVERSE)
def quantity(text: str) -> Quantity:
    return parse_quantity(text)


@LIBRARY.add("isQuantity(string) -> bool", cost=Cost.TRAVERSE)
def is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except EvaluationError:
        return False
    return True


def _sign(number: Fraction) -> int:
    return (number > 0) - (number < 0)


@LIBRARY.add("sign(Quantity) -> int")
def sign(value: Quantity) -> int:
    return _sign(value.number)


@LIBRARY.add("Quantity..isGreaterThan(Quantity) -> bool")
def is_greater_than(left: Quantity, right: Quantity) -> bool:
    return left.number > right.number


@LIBRARY.add("Quantity..isLessThan(Quantity) -> bool")
def is_less_than(left: Quantity, right: Quantity) -> bool:
    return left.number < right.number


@LIBRARY.add("Quantity..compareTo(Quantity) -> int")
def compare_to(left: Quantity, right: Quantity) -> int:
    return _sign(left.number - right.number)


@LIBRARY.add("Quantity..asApproximateFloat() -> double")
def as_approximate_float(value: Quantity) -> float:
    return float(value.number)


@LIBRARY.add("Quantity..isInteger() -> bool")
def is_integer(value: Quantity) -> bool:
    return value.number.denominator == 1 and INT_MIN <= value.number <= INT_MAX


@LIBRARY.add("Quantity..asInteger() -> int")
def as_integer(value: Quantity) -> int:
    if not is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return int(value.number)


def _operand(value: Any) -> Fraction:
    return value.number if isinstance(value, Quantity) else Fraction(value)


@LIBRARY.add("Quantity..add(Quantity) -> Quantity", "Quantity..add(int) -> Quantity")
def add(left: Quantity, right: Any) -> Quantity:
    return Quantity(left.number + _operand(right))


@LIBRARY.add("Quantity..sub(Quantity) -> Quantity", "Quantity..sub(int) -> Quantity")
def subtract(left: Quantity, right: Any) -> Quantity:
    return Quantity(left.number - _operand(right))
