"""Time zones as stretches of constant UTC offset, so that calendar arithmetic never meets DST.

The names are those of the tz database, old spellings included, exactly as written there.
"""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from msgspec import Struct

#: Room for adding an offset at either end of what datetime can hold.
FIRST_INSTANT = datetime(1, 1, 3, tzinfo=UTC)
LAST_INSTANT = datetime(9990, 1, 1, tzinfo=UTC)

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


def valid_time_zone(name: str) -> bool:
    """Whether a zone of this very spelling exists. `Local` does: it is the controller's own."""
    return time_zone_error(name) is None


def time_zone_error(name: str) -> str | None:
    """What upstream says when it cannot load this zone; None if it can."""
    if ".." in name or name.startswith(("/", "\\")):
        return "time: invalid location name"
    if name not in ("UTC", "Local") and name not in _names():
        return f"unknown time zone {name}"
    return None


def load_time_zone(name: str) -> tzinfo:
    """The zone of a name that `time_zone_error` accepts. `Local` means UTC."""
    if name in ("UTC", "Local"):
        return UTC
    # Imported where a zone is first used: most servers and runs never use one.
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


class Stretch(Struct, frozen=True):
    """From `start` (included) to `end` (excluded), local time is UTC plus `offset`."""

    start: datetime
    end: datetime
    offset: timedelta


def stretch_at(zone: str, instant: datetime) -> Stretch:
    """The stretch that holds an instant between FIRST_INSTANT and LAST_INSTANT.

    It ends no later than the UTC year, even where the offset stays the same.
    """
    if zone == "UTC":
        return Stretch(FIRST_INSTANT, LAST_INSTANT, timedelta())
    stretches = _stretches_of_year(zone, instant.year)
    return stretches[bisect_right(stretches, instant, key=_start) - 1]


def _start(stretch: Stretch) -> datetime:
    return stretch.start


@lru_cache(maxsize=4096)
def _stretches_of_year(zone: str, year: int) -> tuple[Stretch, ...]:
    """Found by asking for the offset day by day: the tz database of the standard library does
    not tell its transitions, and no zone has two on one day."""
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
    offset = _offset(info, before)
    while after - before > _SECOND:
        middle = before + ((after - before) // 2 // _SECOND) * _SECOND
        if _offset(info, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(info: tzinfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(info).utcoffset()
    assert offset is not None, "a zone of the tz database knows its offset"
    return offset


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    from zoneinfo import available_timezones

    return frozenset(available_timezones())
