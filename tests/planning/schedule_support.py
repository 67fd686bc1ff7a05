"""Enumeration of the times of a schedule."""

from datetime import datetime, timedelta

from onejob.planning.cronjob.schedule import (
    Schedule,
)


def times_by_next(schedule: Schedule, first: datetime, end: datetime) -> list[datetime]:
    """Return the times in [first, end), found by repeated calls of `next`."""
    times: list[datetime] = []
    found = schedule.next(first - timedelta(seconds=1))
    while found is not None and found < end:
        times.append(found)
        found = schedule.next(found)
    return times
