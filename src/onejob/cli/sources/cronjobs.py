"""Schedule history and backfill of CronJobs: past slots, and Jobs for slots that have none."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.sources.base import Api, list_all
from onejob.clock import local_zone
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import read_job
from onejob.objects.meta import EVENTS, JOBS
from onejob.planning.cronjob.documents import SCHEDULED_AT_ANNOTATION
from onejob.planning.cronjob.history import (
    BACKFILL_LABEL,
    Fire,
    fires,
    read_event,
    slots_between,
)
from onejob.planning.cronjob.schedule import Schedule, ScheduleError, parse_schedule
from onejob.planning.cronjob.time_zones import load_time_zone
from onejob.planning.queue.limits import QUEUE_LABEL
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.timestamps import rfc3339

Document = dict[str, Any]


def read_fires(
    api: Api, namespace: str, document: Document, now: datetime, count: int
) -> Sequence[Fire]:
    cronjob = read_cronjob(msgspec.json.encode(document))
    jobs = [
        read_job(msgspec.json.encode(job)) for job in list_all(api, BY_RESOURCE[JOBS], namespace)
    ]
    about = f"involvedObject.kind=CronJob,involvedObject.name={cronjob.metadata.name}"
    events = list_all(api, BY_RESOURCE[EVENTS], namespace, fieldSelector=about)
    seen = [seen for event in events if (seen := read_event(event)) is not None]
    return fires(cronjob, jobs, seen, _schedule(cronjob), now, count)


def backfill_jobs(
    document: Document, begin: datetime, until: datetime, queue: str, *, most: int
) -> Sequence[tuple[datetime, Document]]:
    """Return the first `most` slots between `begin` and `until`, each with its Job."""
    cronjob = read_cronjob(msgspec.json.encode(document))
    slots = islice(slots_between(_schedule(cronjob), begin, until), most)
    return [(slot, _job(document, cronjob, slot, queue)) for slot in slots]


def existing_jobs(api: Api, namespace: str) -> set[str]:
    return {job["metadata"]["name"] for job in list_all(api, BY_RESOURCE[JOBS], namespace)}


def _job(document: Document, cronjob: CronJob, slot: datetime, queue: str) -> Document:
    template = document["spec"]["jobTemplate"]
    metadata = template.get("metadata", {})
    name = cronjob.metadata.name
    zone = load_time_zone(cronjob.spec.time_zone) if cronjob.spec.time_zone else UTC
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name[:40]}-backfill-{int(slot.timestamp()) // 60}",
            "labels": {
                **metadata.get("labels", {}),
                BACKFILL_LABEL: name,
                **({QUEUE_LABEL: queue} if queue else {}),
            },
            "annotations": {
                **metadata.get("annotations", {}),
                SCHEDULED_AT_ANNOTATION: rfc3339(slot.astimezone(zone)),
            },
        },
        "spec": template["spec"],
    }


def _schedule(cronjob: CronJob) -> Schedule:
    # Without spec.timeZone the server's own zone applies; for a server on another machine, this
    # machine's zone may be the wrong one.
    try:
        return parse_schedule(cronjob.spec.schedule, cronjob.spec.time_zone, local=local_zone())
    except ScheduleError as error:
        raise CommandError(f"invalid schedule: {error}") from None
