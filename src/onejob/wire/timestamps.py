"""Timestamps of API documents: RFC 3339, UTC, whole seconds or microseconds."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from onejob.wire.field_errors import shortened

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>[.,]\d+)?(?P<zone>Z|[+-]\d\d:\d\d)"
)
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"


class InvalidTime(ValueError):
    """Invalid RFC 3339 time; the message is close to upstream's."""


def canonical_time(text: str) -> str:
    """Return the time in UTC, truncated to whole seconds. Raises `InvalidTime`."""
    # Long texts are not cached, so that a client cannot fill the memory.
    return _canonical_time(text) if len(text) <= 64 else _canonical_time.__wrapped__(text)


@lru_cache(maxsize=1024)  # One document repeats the same time often.
def _canonical_time(text: str) -> str:
    """Return a time in canonical form, from a cache. Raises InvalidTime."""
    moment = _parse(text, _LAYOUT)
    # Not strftime: it does not pad years before 1000.
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"


def canonical_micro_time(text: str) -> str:
    """Return the time in UTC with exactly six fractional digits. Raises `InvalidTime`."""
    moment = _parse(text, _MICRO_LAYOUT)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _parse(text: str, layout: str) -> datetime:
    """Return a time in UTC. Raises InvalidTime, in the words of Go."""
    match = _RFC3339.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        fraction = match["fraction"] or ""
        seconds = text[: match.start("zone") - len(fraction)]
        # The wire format allows up to nanoseconds; fromisoformat rejects some lengths.
        return datetime.fromisoformat(f"{seconds}.{fraction[1:7]:0<6}{match['zone']}").astimezone(
            UTC
        )
    except (ValueError, OverflowError):
        raise InvalidTime(
            f'parsing time "{shortened(text)}" as "{layout}": cannot parse "{shortened(text)}" '
            'as "2006"'
        ) from None


def rfc3339(at: datetime) -> str:
    """Return a time in whole seconds, with its offset or `Z` for UTC."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
