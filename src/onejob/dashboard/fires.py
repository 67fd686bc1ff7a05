"""Past and future fire times of a CronJob with their outcomes, for the dashboard.

Pure functions.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from onejob.objects.cronjob import read_cronjob
from onejob.objects.job import read_job
from onejob.planning.cronjob.history import fires, read_event, slots_from_now
from onejob.planning.cronjob.schedule import Calendar, Schedule
from onejob.planning.cronjob.slots import schedule_of

Document: TypeAlias = dict[str, Any]

_SHOWN_PAST: Final = 60
#: Minimum number of upcoming times; for a calendar schedule also all within the next weeks, up to
#: `_MAX_COMING_SLOTS`.
_SHOWN_NEXT: Final = 30
_WEEKS_AHEAD: Final = timedelta(weeks=4)
_MAX_COMING_SLOTS: Final = 24 * 28


def fires_of(
    document: Document,
    jobs: Sequence[Document],
    events: Sequence[Document],
    now: datetime,
    *,
    local_zone: str,
) -> Document:
    """Return past and coming fire times of a CronJob.

    `jobs` are the Jobs of its namespace, `events` the Events about it. The result states if it is
    truncated: in the past, or within the next weeks.
    """
    cronjob = read_cronjob(msgspec.json.encode(document))
    schedule = schedule_of(cronjob, local_zone)
    zone = schedule.zone if isinstance(schedule, Calendar) else ""
    if schedule is None:
        return {"zone": zone, "past": [], "coming": [], "morePast": False, "moreComing": False}
    read_jobs = [read_job(msgspec.json.encode(job)) for job in jobs]
    seen = [event for found in events if (event := read_event(found)) is not None]
    coming = [] if cronjob.spec.suspend else _coming(schedule, now)
    past = fires(cronjob, read_jobs, seen, schedule, now, _SHOWN_PAST + 1)
    return {
        "zone": zone,
        "past": [
            {"at": fire.slot, "job": fire.job, "state": fire.state, "why": fire.why}
            for fire in past[:_SHOWN_PAST]
        ],
        "morePast": len(past) > _SHOWN_PAST,
        "coming": coming[:_MAX_COMING_SLOTS],
        "moreComing": len(coming) > _MAX_COMING_SLOTS,
    }


def _coming(schedule: Schedule, now: datetime) -> list[datetime]:
    """Return the coming times, with one more than are shown if there are more."""
    found: list[datetime] = []
    for slot in islice(slots_from_now(schedule, now), _MAX_COMING_SLOTS + 1):
        if len(found) >= _SHOWN_NEXT and slot > now + _WEEKS_AHEAD:
            break
        found.append(slot)
    return found
