"""Records of ended Pods and Jobs, reduced to what is asked about them later."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from onejob.objects.job import Job
from onejob.objects.meta import View
from onejob.objects.pod import Pod, Terminated
from onejob.planning.job.pod_facts import finish_time, restart_count
from onejob.planning.metadata_values import annotated_number
from onejob.planning.names import FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION

#: Records kept of the deleted Pods of one Job.
MAX_RECORDS: Final = 1000
_MAX_MESSAGE: Final = 200


class PodRecord(View, frozen=True):
    """An ended Pod of a Job."""

    name: str
    uid: str
    #: Succeeded or Failed.
    phase: str
    index: int | None = None
    #: Number of earlier failures of the index, or 0.
    attempt: int = 0
    restarts: int = 0
    node: str = ""
    #: Exit code of the container that decided the outcome; None if no container has run.
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    finish_time: datetime | None = None
    #: Path of the log on this API server, or the command that reads the log of a deleted Pod.
    log: str = ""
    #: Whether the Pod's object is gone.
    deleted: bool = False


class JobEnd(View, frozen=True):
    """End of a Job that other Jobs wait for."""

    name: str
    #: Complete or Failed.
    condition: str
    reason: str = ""
    at: datetime | None = None


class RemovedJob(View, frozen=True):
    """A removed Job of a workflow, whose start or end the workflow may not have recorded."""

    uid: str
    #: None if it had not finished.
    end: JobEnd | None = None


def pod_record(pod: Pod, *, deleted: bool) -> PodRecord:
    """Return the record of a Pod that has ended."""
    meta = pod.metadata
    end = _deciding_end(pod)
    path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/log"
    return PodRecord(
        name=meta.name,
        uid=meta.uid,
        phase=pod.phase,
        index=annotated_number(meta, INDEX_ANNOTATION),
        attempt=annotated_number(meta, FAILURE_COUNT_ANNOTATION) or 0,
        restarts=restart_count(pod),
        node=pod.spec.node_name,
        exit_code=None if end is None else end.exit_code,
        reason=pod.status.reason or ("" if end is None else end.reason),
        message="" if end is None else " ".join(end.message.split())[:_MAX_MESSAGE],
        start_time=pod.status.start_time,
        finish_time=finish_time(pod),
        log=f"onejob logs --deleted pod/{meta.name} -n {meta.namespace}" if deleted else path,
        deleted=deleted,
    )


def job_end(job: Job) -> JobEnd | None:
    """Return the end of a finished Job, else None."""
    condition = job.finished_condition
    if condition is None:
        return None
    return JobEnd(
        name=job.metadata.name,
        condition=condition.type,
        reason=condition.reason,
        at=condition.last_transition_time,
    )


def merged(
    live: Iterable[PodRecord], deleted: Iterable[PodRecord], limit: int
) -> Sequence[PodRecord]:
    """Return the newest `limit` records, oldest first. A Pod that still exists counts once."""
    by_uid = {record.uid: record for record in deleted}
    by_uid.update((record.uid, record) for record in live)
    ordered = sorted(by_uid.values(), key=_order)
    return ordered[-limit:]


def _order(record: PodRecord) -> tuple[float, str]:
    at = record.finish_time
    return (0.0 if at is None else at.timestamp(), record.name)


def _deciding_end(pod: Pod) -> Terminated | None:
    """Return the first failure of a container, or else the end of the last one."""
    ends = [
        status.state.terminated
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if status.state.terminated is not None
    ]
    failures = [end for end in ends if end.exit_code]
    if failures:
        return failures[0]
    return ends[-1] if ends else None
