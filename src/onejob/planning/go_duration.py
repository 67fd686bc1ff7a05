"""Durations in Go's notation (`1h30m`), used by cron's `@every`."""

import re

_UNIT_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LIMIT_NANOSECONDS = 2**63
_NUMBER = re.compile(r"([0-9]*)(?:\.([0-9]*))?")
_UNIT = re.compile(r"[^.0-9]*")


class DurationError(ValueError):
    """Invalid duration; the message is Go's."""


def parse_duration(text: str) -> int:
    """Parse a duration into whole nanoseconds, possibly negative. Raises `DurationError`."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError(f"time: invalid duration {_quote(text)}")
    total = 0
    while rest:
        number = _NUMBER.match(rest)
        assert number is not None, "every part of the pattern is optional"
        whole, fraction = number[1], number[2] or ""
        if not whole and not fraction:
            raise DurationError(f"time: invalid duration {_quote(text)}")
        rest = rest[number.end() :]
        unit = _UNIT.match(rest)
        assert unit is not None, "the pattern matches the empty text"
        rest = rest[unit.end() :]
        if not unit[0]:
            raise DurationError(f"time: missing unit in duration {_quote(text)}")
        if unit[0] not in _UNIT_NANOSECONDS:
            raise DurationError(f"time: unknown unit {_quote(unit[0])} in duration {_quote(text)}")
        scale = _UNIT_NANOSECONDS[unit[0]]
        total += int(whole or "0") * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
        if total > _LIMIT_NANOSECONDS or (total == _LIMIT_NANOSECONDS and not negative):
            raise DurationError(f"time: invalid duration {_quote(text)}")
    return -total if negative else total


def _quote(text: str) -> str:
    """Quote like Go's time package. It escapes characters outside printable ASCII byte by byte."""
    quoted = ""
    for character in text:
        if character in ('"', "\\"):
            quoted += "\\" + character
        elif " " <= character < "\x7f":
            quoted += character
        else:
            quoted += "".join(f"\\x{byte:02x}" for byte in character.encode())
    return f'"{quoted}"'
