"""Cron schedules: parser and evaluation of `spec.schedule`.

Grammar, error messages and the day-of-month/day-of-week rule match upstream's parser, quirks
included.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from onejob.planning.cronjob.time_zones import (
    FIRST_INSTANT,
    LAST_INSTANT,
    stretch_at,
    time_zone_error,
    valid_time_zone,
)
from onejob.planning.go_duration import DurationError, parse_duration

__all__ = ["Calendar", "Every", "Schedule", "ScheduleError", "parse_schedule", "valid_time_zone"]

#: Years to search ahead. A schedule without a match in this span has none.
YEARS_AHEAD = 5

#: Characters. Listing every minute, hour, day and month takes a third of this. Upstream has no
#: limit of its own, but here a schedule is parsed on every sync of its CronJob.
MAX_SCHEDULE_LENGTH = 1024

_SECOND, _MINUTE, _DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


class ScheduleError(ValueError):
    """Invalid schedule; the message is upstream's."""


class Calendar(Struct, frozen=True):
    """Five-field cron schedule.

    Holds the matching minutes, hours, days and months, ascending; weekday 0 is Sunday.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    #: True if a day must match both `days` and `weekdays`, because one of the fields has a `*`.
    both_days: bool
    zone: str

    def next(self, after: datetime) -> datetime | None:
        """Return the first whole minute after `after` that matches in local time, in UTC, or None.

        A local time skipped by the zone never matches; one that is repeated matches twice.
        """
        if not self.minutes or not self.hours:
            return None
        instant = max(after, FIRST_INSTANT).astimezone(UTC).replace(microsecond=0) + _SECOND
        last_year: int | None = None
        while instant < LAST_INSTANT:
            stretch = stretch_at(self.zone, instant)
            # Local time is represented as if it were UTC, for plain calendar arithmetic.
            wall = instant + stretch.offset
            last_year = wall.year + YEARS_AHEAD if last_year is None else last_year
            if wall.year > last_year:
                return None
            end = min(stretch.end + stretch.offset, datetime(last_year + 1, 1, 1, tzinfo=UTC))
            found = self._next_reading(wall, end)
            if found is not None:
                return found - stretch.offset
            instant = stretch.end
        return None

    def _next_reading(self, wall: datetime, end: datetime) -> datetime | None:
        """Return the first match in the local times [wall, end), which share one UTC offset."""
        if wall.second:
            wall = wall.replace(second=0) + _MINUTE
        while wall < end:
            if wall.month not in self.months:
                wall = _first_of_next_month(wall)
                continue
            if self._day_matches(wall):
                found = self._reading_on_day(wall)
                if found is not None:
                    return found if found < end else None
            wall = wall.replace(hour=0, minute=0) + _DAY
        return None

    def _day_matches(self, wall: datetime) -> bool:
        """Return whether the schedule fires on this date; if both days and weekdays are restricted,
        either suffices."""
        day = wall.day in self.days
        weekday = wall.isoweekday() % 7 in self.weekdays
        return (day and weekday) if self.both_days else (day or weekday)

    def _reading_on_day(self, wall: datetime) -> datetime | None:
        """Return the first wall-clock time at or after `wall` on the same day at which the schedule
        fires; None if there is none."""
        hour_at = bisect_left(self.hours, wall.hour)
        if hour_at < len(self.hours) and self.hours[hour_at] == wall.hour:
            minute_at = bisect_left(self.minutes, wall.minute)
            if minute_at < len(self.minutes):
                return wall.replace(minute=self.minutes[minute_at])
            hour_at += 1
        if hour_at == len(self.hours):
            return None
        return wall.replace(hour=self.hours[hour_at], minute=self.minutes[0])


class Every(Struct, frozen=True):
    """`@every`: a fixed interval, independent of wall-clock time."""

    seconds: int

    def next(self, after: datetime) -> datetime | None:
        after = after.astimezone(UTC).replace(microsecond=0)
        if after >= LAST_INSTANT - timedelta(seconds=self.seconds):
            return None
        return after + timedelta(seconds=self.seconds)


Schedule: TypeAlias = Calendar | Every


def parse_schedule(text: str, zone: str | None = None, *, local: str = "UTC") -> Schedule:
    """Parse a schedule.

    A `TZ=` or `CRON_TZ=` prefix takes precedence over `zone`; without either, `local` is the zone.

    Raises:
        ScheduleError: if the text is invalid or too long.
    """
    if len(text) > MAX_SCHEDULE_LENGTH:
        raise ScheduleError(f"schedule is longer than {MAX_SCHEDULE_LENGTH} characters")
    return _parse(text, zone, local)


@lru_cache(maxsize=8192)
def _parse(text: str, zone: str | None, local: str) -> Schedule:
    """Return the parsed schedule, from a cache. Raises ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, text = _split_prefix(text)
    elif zone is not None:
        # Upstream prepends the zone to the schedule as a prefix, which trims the schedule.
        text = _trim(text)
        _check_zone(zone)
    zone = local if zone in (None, "Local") else zone
    if text.startswith("@"):
        return _parse_macro(text, zone)
    fields = _fields(text)
    if len(fields) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    return _calendar(fields, zone)


def _split_prefix(text: str) -> tuple[str, str]:
    """Return the zone of a `TZ=` prefix and the rest. Raises ScheduleError."""
    prefix, space, rest = text.partition(" ")
    if not space:
        # Upstream's parser panics here, and its caller reports the panic.
        raise ScheduleError(
            "invalid schedule format: runtime error: slice bounds out of range [:-1]"
        )
    zone = prefix.partition("=")[2]
    if zone:
        _check_zone(zone)
    return zone or "UTC", _trim(rest)


def _check_zone(zone: str) -> None:
    if error := time_zone_error(zone):
        raise ScheduleError(f"provided bad location {zone}: {error}")


_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _parse_macro(text: str, zone: str) -> Schedule:
    """Return the schedule of a descriptor such as `@daily`. Raises ScheduleError."""
    if text in _MACROS:
        return _calendar(_MACROS[text].split(" "), zone)
    if text.startswith("@every "):
        try:
            nanoseconds = parse_duration(text.removeprefix("@every "))
        except DurationError as error:
            raise ScheduleError(f"failed to parse duration {text}: {error}") from error
        return Every(max(nanoseconds // 10**9, 1))
    raise ScheduleError(f"unrecognized descriptor: {text}")


class _Bounds(Struct, frozen=True):
    low: int
    high: int
    names: Mapping[str, int]


def _name_numbers(names: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


_MINUTES = _Bounds(0, 59, {})
_HOURS = _Bounds(0, 23, {})
_DAYS = _Bounds(1, 31, {})
_MONTHS = _Bounds(1, 12, _name_numbers("jan feb mar apr may jun jul aug sep oct nov dec", 1))
_WEEKDAYS = _Bounds(0, 6, _name_numbers("sun mon tue wed thu fri sat", 0))


def _calendar(fields: Sequence[str], zone: str) -> Calendar:
    """Return the schedule of five fields. Raises ScheduleError."""
    minutes, _ = _parse_field(fields[0], _MINUTES)
    hours, _ = _parse_field(fields[1], _HOURS)
    days, any_day = _parse_field(fields[2], _DAYS)
    months, _ = _parse_field(fields[3], _MONTHS)
    weekdays, any_weekday = _parse_field(fields[4], _WEEKDAYS)
    return Calendar(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        days,
        months,
        weekdays,
        any_day or any_weekday,
        zone,
    )


def _parse_field(field: str, bounds: _Bounds) -> tuple[frozenset[int], bool]:
    """Return the numbers matched by a field, and whether a `*` in it means "any"."""
    numbers: set[int] = set()
    starred = False
    for item in filter(None, field.split(",")):
        item_numbers, item_starred = _parse_item(item, bounds)
        numbers.update(item_numbers)
        starred = starred or item_starred
    return frozenset(numbers), starred


def _parse_item(item: str, bounds: _Bounds) -> tuple[range, bool]:
    """Return the values of an item of a field, and whether it is a star. Raises ScheduleError."""
    span, *steps = item.split("/")
    first, *ends = span.split("-")
    starred = first in ("*", "?")
    if starred:
        low, high = bounds.low, bounds.high
    else:
        low = high = _parse_number(first, bounds.names)
        if len(ends) == 1:
            high = _parse_number(ends[0], bounds.names)
        elif ends:
            raise ScheduleError(f"too many hyphens: {item}")
    step = 1
    if len(steps) == 1:
        step = _parse_number(steps[0], {})
        if not ends:
            high = bounds.high
        starred = starred and step <= 1
    elif steps:
        raise ScheduleError(f"too many slashes: {item}")
    if low < bounds.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {item}")
    if high > bounds.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {item}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {item}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {item}")
    return range(low, high + 1, step), starred


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def _parse_number(text: str, names: Mapping[str, int]) -> int:
    """Return a number or the value of a name. Raises ScheduleError."""
    named = names.get(text.lower())
    if named is not None:
        return named
    if not _INTEGER.fullmatch(text):
        raise _not_an_integer(text, "invalid syntax")
    # More than 19 digits exceed Go's int64 (and Python refuses to parse thousands of digits).
    if len(text.lstrip("+-0")) > 19 or not -(2**63) <= (number := int(text)) < 2**63:
        raise _not_an_integer(text, "value out of range")
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def _not_an_integer(text: str, problem: str) -> ScheduleError:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return ScheduleError(
        f'failed to parse int from {text}: strconv.Atoi: parsing "{escaped}": {problem}'
    )


#: White space as defined by Go; Python's definition includes some control characters.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_WORD = re.compile(f"[^{_SPACE}]+")


def _fields(text: str) -> list[str]:
    """Return the words of a schedule."""
    return _WORD.findall(text)


def _trim(text: str) -> str:
    """Return a text without surrounding space, as Go defines it."""
    return text.strip(_SPACE)


def _first_of_next_month(wall: datetime) -> datetime:
    year, month = divmod(wall.year * 12 + wall.month, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)
