"""String formats that upstream validates. Unknown formats are ignored."""

import binascii
import ipaddress
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from onejob.planning.go_duration import DurationError, parse_duration
from onejob.wire.names import label_errors, subdomain_errors
from onejob.wire.timestamps import InvalidTime, canonical_time

_MAC: Final = re.compile(
    r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}"
)
_HOSTNAME: Final = re.compile(
    r"(?=.{1,255}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?"
)
_EMAIL: Final = re.compile(r"[^@\s<>]+@[A-Za-z0-9.-]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+|/\S*")
_COLOR: Final = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_HEX: Final = "[0-9a-fA-F]"


def _uuid(version: str, variant: str) -> "Callable[[str], bool]":
    """Return the test for UUIDs of a version and variant, given as patterns."""
    pattern = re.compile(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{version}-?{variant}-?{_HEX}{{12}}")
    return lambda text: pattern.fullmatch(text) is not None


def _pattern_check(pattern: "re.Pattern[str]") -> "Callable[[str], bool]":
    """Return a predicate that matches a text against the whole pattern."""
    return lambda text: pattern.fullmatch(text) is not None


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        canonical_time(text)
    except InvalidTime:
        return False
    return True


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except DurationError:
        return False
    return True


def _is_bytes(text: str) -> bool:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _parser_check(parse: "Callable[[str], object]") -> "Callable[[str], bool]":
    """Return a predicate that is true if `parse` accepts the text."""

    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


_is_network: Final = _parser_check(lambda text: ipaddress.ip_network(text, strict=False))
_ANY: Final = f"{_HEX}{{4}}"
_VARIANT: Final = f"[89abAB]{_HEX}{{3}}"
#: Checks by format name without dashes.
FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": _is_bytes,
    "cidr": lambda text: "/" in text and _is_network(text),
    "date": _is_date,
    "datetime": _is_time,
    "duration": _is_duration,
    "email": _pattern_check(_EMAIL),
    "hexcolor": _pattern_check(_COLOR),
    "hostname": _pattern_check(_HOSTNAME),
    "ipv4": _parser_check(ipaddress.IPv4Address),
    "ipv6": _parser_check(ipaddress.IPv6Address),
    "k8slongname": lambda text: not subdomain_errors(text),
    "k8sshortname": lambda text: not label_errors(text),
    "mac": _pattern_check(_MAC),
    "uri": _pattern_check(_URI),
    "uuid": _uuid(_ANY, _ANY),
    "uuid3": _uuid(f"3{_HEX}{{3}}", _ANY),
    "uuid4": _uuid(f"4{_HEX}{{3}}", _VARIANT),
    "uuid5": _uuid(f"5{_HEX}{{3}}", _VARIANT),
}  # fmt: skip

#: Formats that upstream recognises but that are not validated here.
_UNCHECKED: Final = frozenset(
    ("bsonobjectid", "creditcard", "isbn", "isbn10", "isbn13", "password", "rgbcolor", "ssn")
)
_NUMBERS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_known(format_: str, kind: str) -> bool:
    """Return whether a format is defined for values of this type; "" stands for any type."""
    if kind in ("", "string"):
        name = format_.replace("-", "")
        return name in FORMATS or name in _UNCHECKED
    return format_ in _NUMBERS.get(kind, ())
