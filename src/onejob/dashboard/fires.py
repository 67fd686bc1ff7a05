"""When a CronJob fired and will fire, and what came of it, for the page. Pure."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from onejob.objects.cronjob import read_cronjob
from onejob.objects.job import read_job
from onejob.planning.cronjob.history import fires, read_event, slots_from_now
from onejob.planning.cronjob.schedule import Calendar
from onejob.planning.cronjob.slots import schedule_of

Document: TypeAlias = dict[str, Any]

_SHOWN_PAST: Final = 60
_SHOWN_NEXT: Final = 30


def fires_of(
    document: Document,
    jobs: Sequence[Document],
    events: Sequence[Document],
    now: datetime,
    *,
    local_zone: str,
) -> Document:
    """`jobs` are those of its namespace, `events` those about it."""
    cronjob = read_cronjob(msgspec.json.encode(document))
    schedule = schedule_of(cronjob, local_zone)
    zone = schedule.zone if isinstance(schedule, Calendar) else ""
    if schedule is None:
        return {"zone": zone, "past": [], "coming": []}
    read_jobs = [read_job(msgspec.json.encode(job)) for job in jobs]
    seen = [event for found in events if (event := read_event(found)) is not None]
    coming = [] if cronjob.spec.suspend else islice(slots_from_now(schedule, now), _SHOWN_NEXT)
    return {
        "zone": zone,
        "past": [
            {"at": fire.slot, "job": fire.job, "state": fire.state, "why": fire.why}
            for fire in fires(cronjob, read_jobs, seen, schedule, now, _SHOWN_PAST)
        ],
        "coming": list(coming),
    }
