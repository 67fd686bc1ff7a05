"""Kubernetes quantities (`500m`, `1.5Gi`, `2e3`): exact parsing, comparison, canonical form.

Values are whole nano-units in an int, so nothing is lost to floating point.
"""

import re
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

QuantityFormat = Literal["decimal", "binary", "exponent"]

_NANO: Final = 10**9
#: Largest value; upstream silently clamps to it (an int64).
_MAX_QUANTITY: Final = (2**63 - 1) * _NANO

_WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_NUMBER: Final = "unable to parse numeric part of quantity"
_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"

_PARTS: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {exponent // 10: suffix for suffix, exponent in _BINARY.items()}
#: Clamp for exponents: a larger one can only mean "too large" or "zero", and must not cost memory.
_EXPONENT_BOUND: Final = 64


#: Characters. Longer texts are not cached, so that a client cannot fill the memory.
_MAX_CACHED_LENGTH: Final = 100


class InvalidQuantity(ValueError):
    """Invalid quantity; the message is upstream's."""


class Quantity(Struct, frozen=True, order=True):
    nanos: int
    format: QuantityFormat = "decimal"

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded up: the unit of CPU."""
        return -(-self.nanos // 10**6)

    @property
    def whole(self) -> int:
        """The amount in units, rounded up: bytes of memory, number of pods."""
        return -(-self.nanos // _NANO)

    def __str__(self) -> str:
        units, rest = divmod(self.nanos, 1024 * _NANO)
        # Without a binary suffix the text would be parsed as decimal, so write it as decimal.
        if self.format == "binary" and units and not rest:
            return _binary_text(units)
        return _decimal_text(self.nanos, self.format == "exponent")


def parse_quantity(text: str | int | float) -> Quantity:
    """Parse a quantity; numbers are parsed as their JSON text. Raises `InvalidQuantity`."""
    text = text if isinstance(text, str) else repr(text)
    return _parse(text) if len(text) <= _MAX_CACHED_LENGTH else _parse.__wrapped__(text)


def canonical_quantity(text: str | int | float) -> str:
    """Return upstream's notation of the quantity: `0.5` is `500m`, `1024Mi` is `1Gi`."""
    text = text if isinstance(text, str) else repr(text)
    return _canonical(text) if len(text) <= _MAX_CACHED_LENGTH else str(_parse.__wrapped__(text))


def same_quantity(a: str | int | float, b: str | int | float) -> bool:
    """Return whether both are equal in value, regardless of notation."""
    return a == b or parse_quantity(a).nanos == parse_quantity(b).nanos


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    """Return a quantity in canonical form, from a cache. Raises InvalidQuantity."""
    return str(_parse(text))


@lru_cache(maxsize=1024)
def _parse(text: str) -> Quantity:
    """Return the parsed quantity, from a cache. Raises InvalidQuantity."""
    match = _PARTS.fullmatch(text.strip())
    if match is None or not match[0]:
        raise InvalidQuantity(_WRONG_FORMAT)
    sign, units, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    if not units and not fraction:
        # Upstream parses a lone sign as zero, but not a suffix or a dot without digits.
        if suffix or match[3] is not None:
            raise InvalidQuantity(_WRONG_NUMBER)
        units = "0"
    if len(units) + len(fraction) > 1000:
        raise InvalidQuantity(_WRONG_NUMBER)
    digits = int(units + fraction)
    if sign == "-":
        digits = -digits
    shift, quantity_format = _scale(suffix)
    if quantity_format == "binary":
        return Quantity(_bounded(digits * 2**shift * _NANO, 10 ** len(fraction)), "binary")
    exponent = shift + 9 - len(fraction)
    if exponent >= 0:
        return Quantity(_bounded(digits * 10**exponent, 1), quantity_format)
    return Quantity(_bounded(digits, 10**-exponent), quantity_format)


def _scale(suffix: str) -> tuple[int, QuantityFormat]:
    """Return exponent and format of a suffix. Raises InvalidQuantity."""
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], "decimal"
    if suffix in _BINARY:
        return _BINARY[suffix], "binary"
    if suffix[0] in "eE":
        try:
            exponent = int(suffix[1:])
        except ValueError:
            raise InvalidQuantity(_WRONG_SUFFIX) from None
        return max(-_EXPONENT_BOUND, min(_EXPONENT_BOUND, exponent)), "exponent"
    raise InvalidQuantity(_WRONG_SUFFIX)


def _bounded(numerator: int, denominator: int) -> int:
    """Return the quotient, rounded away from zero and clamped to upstream's range."""
    nanos = -(-abs(numerator) // denominator)
    nanos = min(nanos, _MAX_QUANTITY)
    return -nanos if numerator < 0 else nanos


def _binary_text(kibi: int) -> str:
    power = 1
    while kibi % 1024 == 0 and power < 6:
        kibi //= 1024
        power += 1
    return f"{kibi}{_BINARY_SUFFIX[power]}"


def _decimal_text(nanos: int, with_exponent: bool) -> str:
    """Return a decimal amount in canonical form."""
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0 and exponent < 18:
        nanos //= 1000
        exponent += 3
    if with_exponent:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"
