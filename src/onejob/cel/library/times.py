"""Timestamps and durations: parsing, formatting, and their components."""

import datetime
import re
from collections.abc import Callable
from zoneinfo import ZoneInfo

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Library
from onejob.cel.values import Duration, Timestamp

LIBRARY = Library()

_SECOND = 10**9
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?"
    r"(?:[Zz]|([+-])(\d\d):(\d\d))\Z",
    re.ASCII,
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)\Z", re.ASCII)
_UNITS = {
    "h": 3600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 10**6,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ns": 1,
}
_DURATION_PART = re.compile(r"(\d{0,40})(?:\.(\d{0,40}))?(ns|us|µs|μs|ms|h|m|s)", re.ASCII)
_MAX_TEXT_LENGTH = 200


def parse_timestamp(text: str) -> Timestamp:
    match = _TIMESTAMP.match(text)
    if match is None:
        raise EvaluationError(f'invalid timestamp "{text[:64]}"')
    hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    if hour > 23 or minute > 59 or second > 59:
        raise EvaluationError(f'invalid timestamp "{text}"')
    seconds = _days(match) * 86400 + hour * 3600 + minute * 60 + second
    offset = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            raise EvaluationError(f'invalid timestamp "{text}"')
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        offset = offset if match[8] == "+" else -offset
    nanoseconds = (seconds - offset) * _SECOND + int((match[7] or "0").ljust(9, "0"))
    return Timestamp(nanoseconds, offset)


def parse_date(text: str) -> Timestamp:
    match = _DATE.match(text)
    if match is None:
        raise EvaluationError(f'invalid date "{text[:64]}"')
    return Timestamp(_days(match) * 86400 * _SECOND)


def _days(match: re.Match[str]) -> int:
    try:
        day = datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError as error:
        raise EvaluationError(f'invalid timestamp "{match[0]}"') from error
    return day.toordinal() - _EPOCH


def parse_duration(text: str) -> Duration:
    """Parse a duration in Go's notation: `1h30m`, `-1.5s`. Raises EvaluationError."""
    fault = EvaluationError(f'time: invalid duration "{text[:64]}"')
    if len(text) > _MAX_TEXT_LENGTH:
        raise fault
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    total = at = 0
    while at < len(rest):
        match = _DURATION_PART.match(rest, at)
        if match is None or not (match[1] or match[2]):
            raise fault
        unit = _UNITS[match[3]]
        fraction = match[2] or ""
        total += int(match[1] or 0) * unit
        total += int(fraction or 0) * unit // 10 ** len(fraction)
        at = match.end()
    if not rest:
        raise fault
    return Duration(sign * total)


def format_timestamp(value: Timestamp) -> str:
    seconds, fraction = divmod(value.nanoseconds, _SECOND)
    days, rest = divmod(seconds + value.offset, 86400)
    if not 0 < days + _EPOCH <= datetime.date.max.toordinal():
        raise EvaluationError("timestamp overflow")
    day = datetime.date.fromordinal(days + _EPOCH)
    text = f"{day.year:04d}-{day.month:02d}-{day.day:02d}"
    text += f"T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    if fraction:
        text += f".{fraction:09d}".rstrip("0")
    if not value.offset:
        return text + "Z"
    minutes = abs(value.offset) // 60
    return f"{text}{'-' if value.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def format_duration(value: Duration) -> str:
    seconds, fraction = divmod(abs(value.nanoseconds), _SECOND)
    text = str(seconds) + (f".{fraction:09d}".rstrip("0") if fraction else "")
    return f"{'-' if value.nanoseconds < 0 else ''}{text}s"


@LIBRARY.add("timestamp(string) -> timestamp")
def timestamp_of_string(text: str) -> Timestamp:
    return parse_timestamp(text)


@LIBRARY.add("timestamp(int) -> timestamp")
def timestamp_of_int(seconds: int) -> Timestamp:
    return Timestamp(seconds * _SECOND)


@LIBRARY.add("timestamp(timestamp) -> timestamp", "duration(duration) -> duration")
def same(value: Timestamp | Duration) -> Timestamp | Duration:
    return value


@LIBRARY.add("duration(string) -> duration")
def duration_of_string(text: str) -> Duration:
    return parse_duration(text)


@LIBRARY.add("duration(int) -> duration")
def duration_of_int(nanoseconds: int) -> Duration:
    return Duration(nanoseconds)


_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)\Z", re.ASCII)


def _local(value: Timestamp, zone: str) -> datetime.datetime:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        moment += datetime.timedelta(microseconds=value.nanoseconds // 1000)
        match = _OFFSET.match(zone)
        if match:
            offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
            return moment.astimezone(datetime.timezone(-offset if match[1] == "-" else offset))
        return moment.astimezone(ZoneInfo(zone or "UTC"))
    except (OverflowError, OSError, ValueError, KeyError) as error:
        # ZoneInfo raises KeyError for an unknown name, ValueError for a malformed one.
        raise EvaluationError(f"unknown time zone {zone[:64]}") from error


_PARTS: dict[str, Callable[[datetime.datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}
_DURATION_PARTS = {
    "getHours": 3600 * _SECOND,
    "getMinutes": 60 * _SECOND,
    "getSeconds": _SECOND,
}


def _add_part(name: str, part: Callable[[datetime.datetime], int]) -> None:
    @LIBRARY.add(f"timestamp..{name}() -> int", f"timestamp..{name}(string) -> int")
    def of_timestamp(value: Timestamp, zone: str = "UTC") -> int:
        return part(_local(value, zone))


def _add_duration_part(name: str, unit: int) -> None:
    @LIBRARY.add(f"duration..{name}() -> int")
    def of_duration(value: Duration) -> int:
        whole = abs(value.nanoseconds) // unit
        return whole if value.nanoseconds >= 0 else -whole


for _name, _part in _PARTS.items():
    _add_part(_name, _part)
for _name, _unit in _DURATION_PARTS.items():
    _add_duration_part(_name, _unit)


@LIBRARY.add("duration..getMilliseconds() -> int")
def duration_milliseconds(value: Duration) -> int:
    """Return the whole duration in milliseconds, truncated towards zero."""
    whole = abs(value.nanoseconds) // 10**6
    return whole if value.nanoseconds >= 0 else -whole
