"""Independent, slow evaluator of schedules: it checks the wall clock every minute."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

#: The clocks of these zones are changed by an hour, by half an hour and by two hours, at night, at
#: midnight, at a quarter to three; around Ramadan; or not at all.
ZONES = (
    "UTC",
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Havana",
    "America/Santiago",
    "Africa/Casablanca",
    "Pacific/Chatham",
    "Antarctica/Troll",
)
#: Until 2011 this zone went back at one minute past midnight, into the day before.
ODD_ZONE = "America/St_Johns"

FIRST_DAY = datetime(2023, 1, 1, tzinfo=UTC)
LAST_DAY = datetime(2027, 1, 1, tzinfo=UTC)

#: Each schedule with its meaning, written by hand.
SCHEDULES: Mapping[str, Callable[[datetime], bool]] = {
    "* * * * *": lambda t: True,
    "*/15 * * * *": lambda t: t.minute % 15 == 0,
    "0 * * * *": lambda t: t.minute == 0,
    "@hourly": lambda t: t.minute == 0,
    "30 1 * * *": lambda t: (t.hour, t.minute) == (1, 30),
    "45 1 * * *": lambda t: (t.hour, t.minute) == (1, 45),
    "0 2 * * *": lambda t: (t.hour, t.minute) == (2, 0),
    "15,45 2,3 * * *": lambda t: t.hour in (2, 3) and t.minute in (15, 45),
    "@daily": lambda t: (t.hour, t.minute) == (0, 0),
    "30 0 * * *": lambda t: (t.hour, t.minute) == (0, 30),
    "59 23 * * *": lambda t: (t.hour, t.minute) == (23, 59),
    "5/20 22-23 * * fri-SAT": lambda t: (
        t.minute in (5, 25, 45) and t.hour >= 22 and t.isoweekday() in (5, 6)
    ),
    "0 12 */2 * 1": lambda t: (
        (t.hour, t.minute) == (12, 0) and (t.day % 2 == 1 or t.isoweekday() == 1)
    ),
    "0 12 13 * 5": lambda t: (t.hour, t.minute) == (12, 0) and (t.day == 13 or t.isoweekday() == 5),
    "0 3 29 2 ?": lambda t: (t.month, t.day, t.hour, t.minute) == (2, 29, 3, 0),
    "@weekly": lambda t: (t.isoweekday(), t.hour, t.minute) == (7, 0, 0),
    "@monthly": lambda t: (t.day, t.hour, t.minute) == (1, 0, 0),
    "@yearly": lambda t: (t.month, t.day, t.hour, t.minute) == (1, 1, 0, 0),
}


def times_by_looking(zone: str, first: datetime, end: datetime) -> dict[str, list[datetime]]:
    """Return the times in [first, end) at which each schedule is due."""
    info = ZoneInfo(zone)
    due: dict[str, list[datetime]] = {schedule: [] for schedule in SCHEDULES}
    for instant in _minutes(first, end):
        local = instant.astimezone(info)
        for schedule, matches in SCHEDULES.items():
            if matches(local):
                due[schedule].append(instant)
    return due


def transitions(zone: str, first: datetime, end: datetime) -> list[datetime]:
    """Return the hours in which the zone's clock is changed."""
    info = ZoneInfo(zone)
    found = []
    instant = first
    while instant < end:
        if instant.astimezone(info).utcoffset() != (instant + HOUR).astimezone(info).utcoffset():
            found.append(instant)
        instant += HOUR
    return found


def _minutes(first: datetime, end: datetime) -> Iterator[datetime]:
    while first < end:
        yield first
        first += MINUTE
