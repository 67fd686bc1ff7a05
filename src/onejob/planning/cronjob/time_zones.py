"""Time zones as intervals of constant UTC offset, which keeps DST out of calendar arithmetic.

Names are those of the tz database, including old spellings, and case-sensitive.
"""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from msgspec import Struct

#: Leave room to add an offset at either end of the range of datetime.
FIRST_INSTANT = datetime(1, 1, 3, tzinfo=UTC)
LAST_INSTANT = datetime(9990, 1, 1, tzinfo=UTC)

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


def valid_time_zone(name: str) -> bool:
    """Return whether a zone with exactly this name exists.

    `Local` does: it is the controller's own.
    """
    return time_zone_error(name) is None


def time_zone_error(name: str) -> str | None:
    """Return upstream's error message if it cannot load this zone, else None."""
    if ".." in name or name.startswith(("/", "\\")):
        return "time: invalid location name"
    if name not in ("UTC", "Local") and name not in _names():
        return f"unknown time zone {name}"
    return None


def load_time_zone(name: str) -> tzinfo:
    """Return the zone of a name accepted by `time_zone_error`. `Local` means UTC."""
    if name in ("UTC", "Local"):
        return UTC
    # Imported on first use: most servers and runs never need a zone.
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


class Stretch(Struct, frozen=True):
    """Interval [start, end) in which local time is UTC plus `offset`."""

    start: datetime
    end: datetime
    offset: timedelta


def stretch_at(zone: str, instant: datetime) -> Stretch:
    """Return the interval that contains an instant between FIRST_INSTANT and LAST_INSTANT.

    It ends with the UTC year at the latest, even where the offset stays the same.
    """
    if zone == "UTC":
        return Stretch(FIRST_INSTANT, LAST_INSTANT, timedelta())
    stretches = _stretches_of_year(zone, instant.year)
    return stretches[bisect_right(stretches, instant, key=_start) - 1]


def _start(stretch: Stretch) -> datetime:
    """Return the start of a stretch."""
    return stretch.start


@lru_cache(maxsize=4096)
def _stretches_of_year(zone: str, year: int) -> tuple[Stretch, ...]:
    """Return the year's intervals, found by sampling the offset once a day.

    The standard library does not expose the transitions of a zone, and no zone has two on one day.
    """
    info = load_time_zone(zone)
    start = max(datetime(year, 1, 1, tzinfo=UTC), FIRST_INSTANT)
    end = datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    day, offset = start, _offset(info, start)
    while day < end:
        next_day = day + _DAY
        if _offset(info, next_day) != offset:
            change = _first_change(info, day, next_day)
            found.append(Stretch(start, change, offset))
            start, offset = change, _offset(info, next_day)
        day = next_day
    if start < end:
        found.append(Stretch(start, end, offset))
    return tuple(found)


def _first_change(info: tzinfo, before: datetime, after: datetime) -> datetime:
    """Return the first second, between two instants, at which the UTC offset differs from the
    start's."""
    offset = _offset(info, before)
    while after - before > _SECOND:
        middle = before + ((after - before) // 2 // _SECOND) * _SECOND
        if _offset(info, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(info: tzinfo, instant: datetime) -> timedelta:
    """Return the UTC offset at an instant."""
    offset = instant.astimezone(info).utcoffset()
    assert offset is not None, "a zone of the tz database knows its offset"
    return offset


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """Return the names of all zones, from a cache."""
    from zoneinfo import available_timezones

    return frozenset(available_timezones())
