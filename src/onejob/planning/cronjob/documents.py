"""Documents written for a CronJob: the Job of a slot, and the CronJob's status patch."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from onejob.objects.cronjob import Child, CronJob, CronJobStatus, ObjectReference
from onejob.planning.cronjob.time_zones import load_time_zone
from onejob.wire.timestamps import rfc3339

SCHEDULED_AT_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: Annotation of a Job that was started while lastScheduleTime was in the future: the
#: resourceVersion of the CronJob at that time. The Job's slot precedes lastScheduleTime, so only
#: this annotation shows whether a status was written since.
STARTED_FROM_ANNOTATION = "onejob.dev/started-from-cronjob-version"


def job_name(cronjob: CronJob, slot: datetime) -> str:
    """Return the name of the slot's Job.

    It is deterministic, so that no two controllers can start the same slot twice.
    """
    return f"{cronjob.metadata.name}-{int(slot.timestamp()) // 60}"


def slot_of(cronjob: CronJob, job: Child) -> datetime | None:
    """Return the slot for which the CronJob created this Job, else None.

    None is returned for Jobs of other origin, such as `kubectl create job --from`.
    """
    try:
        slot = datetime.fromisoformat(job.metadata.annotations.get(SCHEDULED_AT_ANNOTATION, ""))
    except ValueError:
        return None
    made = slot.tzinfo is not None and job.metadata.name == job_name(cronjob, slot)
    return slot.astimezone(UTC) if made else None


def is_unwritten_since(cronjob: CronJob, job: Child) -> bool:
    """Return whether the CronJob still has the version from which it started this Job.

    False also for Jobs that were not started while lastScheduleTime was in the future.
    """
    version = job.metadata.annotations.get(STARTED_FROM_ANNOTATION)
    return bool(version) and version == cronjob.metadata.resource_version


def job_document(cronjob: CronJob, slot: datetime, *, last_run_ahead: bool = False) -> bytes:
    """Return the Job to create for a slot. The CronJob's time zone must be valid.

    `last_run_ahead`: lastScheduleTime is in the future because the clock was set back.
    """
    template = cronjob.spec.job_template
    zone = load_time_zone(cronjob.spec.time_zone) if cronjob.spec.time_zone else UTC
    metadata: dict[str, Any] = {
        "name": job_name(cronjob, slot),
        "annotations": {
            **template.metadata.annotations,
            SCHEDULED_AT_ANNOTATION: rfc3339(slot.astimezone(zone)),
        },
        "ownerReferences": [
            {
                "apiVersion": cronjob.cron_kind.api_version,
                "kind": cronjob.cron_kind.kind,
                "name": cronjob.metadata.name,
                "uid": cronjob.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if last_run_ahead:
        metadata["annotations"][STARTED_FROM_ANNOTATION] = cronjob.metadata.resource_version
    if template.metadata.labels:
        metadata["labels"] = template.metadata.labels
    document = {
        "apiVersion": cronjob.cron_kind.child_api_version,
        "kind": cronjob.cron_kind.child_kind,
        "metadata": metadata,
        "spec": template.spec,
    }
    return msgspec.json.encode(document)


def reference_to(cronjob: CronJob, job: Child) -> ObjectReference:
    """Return the reference to a Job in the CronJob's status."""
    return ObjectReference(
        api_version=cronjob.cron_kind.child_api_version,
        kind=cronjob.cron_kind.child_kind,
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        uid=job.metadata.uid,
        resource_version=job.metadata.resource_version,
    )


def status_patch(cronjob: CronJob, status: CronJobStatus) -> bytes:
    """Return a merge patch for `/status` that fails with Conflict if the CronJob has changed."""
    changed: dict[str, Any] = {
        "active": list(status.active) or None,
        "lastScheduleTime": status.last_schedule_time,
        "lastSuccessfulTime": status.last_successful_time,
    }
    if status.next_schedule_time != cronjob.status.next_schedule_time:
        changed["nextScheduleTime"] = status.next_schedule_time
    body = {
        "metadata": {"resourceVersion": cronjob.metadata.resource_version},
        "status": changed,
    }
    return msgspec.json.encode(body)
