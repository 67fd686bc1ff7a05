"""What can be said of a Pod by looking at it alone, or at it and its Job."""

from collections.abc import Container, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from onejob.objects.job import Job
from onejob.objects.pod import ContainerStatus, Pod, Terminated
from onejob.planning.job.indexes import read_index
from onejob.planning.names import INDEX_ANNOTATION, TRACKING, TRACKING_AS_PROPOSED

#: Whether a Pod has ended, and if so, whether it still holds the finalizer or is accounted for.
PodEnd: TypeAlias = Literal["none", "held", "accounted"]

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
#: 128 + SIGKILL, 128 + SIGTERM: how containers end that are stopped because another one failed.
_STOPPED: Final = (137, 143)


class _State(Protocol):
    @property
    def terminated(self) -> Terminated | None: ...


class _Status(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def state(self) -> _State: ...


Status = TypeVar("Status", bound=_Status)


def is_tracked(pod: Pod) -> bool:
    """Whether the Pod holds the finalizer that keeps it until its end is counted."""
    finalizers = pod.metadata.finalizers
    return TRACKING in finalizers or TRACKING_AS_PROPOSED in finalizers


def end_of(pod: Pod) -> PodEnd:
    if pod.status.phase not in ("Succeeded", "Failed"):
        return "none"
    return "held" if is_tracked(pod) else "accounted"


def controlling_job_uid(pod: Pod | None) -> str | None:
    """The UID of the Job that controls the Pod; None if no Job does."""
    owner = pod.metadata.controller_ref if pod is not None else None
    if owner is None or owner.kind != "Job" or owner.api_version != "batch/v1":
        return None
    return owner.uid


def same_owners(old: Pod | None, new: Pod | None) -> bool:
    """Nearly always: then the owners of one of the two need no look."""
    if old is None or new is None:
        return False
    return old.metadata.owner_references == new.metadata.owner_references


def completion_index(pod: Pod) -> int | None:
    """None if there is no index, or not a valid one."""
    text = pod.metadata.annotations.get(INDEX_ANNOTATION)
    return None if text is None else read_index(text)


def valid_index(pod: Pod, job: Job) -> int | None:
    """The index, if the Job has such a one (its completions may have shrunk)."""
    index = completion_index(pod)
    return index if index is not None and index < (job.spec.completions or 0) else None


def pod_failed(pod: Pod, job: Job) -> bool:
    """Whether the Pod counts as failed: unless the Job replaces only failed Pods, one that is
    being deleted has failed already."""
    if pod.status.phase == "Failed":
        return True
    return (
        pod.metadata.deletion_timestamp is not None
        and pod.status.phase != "Succeeded"
        and job.spec.pod_replacement_policy != "Failed"
    )


def finish_time(pod: Pod) -> datetime:
    """When a Pod that is counted as ended did end, by the best evidence there is."""
    return (
        _last_container_end(pod)
        or _became_unready_at(pod)
        or _asked_to_end_at(pod)
        or pod.metadata.creation_timestamp
        or _EARLIEST
    )


def restart_count(pod: Pod) -> int:
    """How often its containers were restarted, init containers included."""
    restarts = 0
    for status in pod.status.container_statuses:
        restarts += status.restart_count
    for status in pod.status.init_container_statuses:
        restarts += status.restart_count
    return restarts


def sidecar_names(pod: Pod) -> frozenset[str]:
    """Init containers that run beside the others instead of before them."""
    return frozenset(
        container.name
        for container in pod.spec.init_containers
        if container.restart_policy == "Always"
    )


def failures_of_pod(pod: Pod) -> list[ContainerStatus]:
    """The containers that failed, the one that made the Pod fail at the front."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return failed_containers(statuses, sidecar_names(pod))


def failed_containers(statuses: Iterable[Status], sidecars: Container[str]) -> list[Status]:
    """The containers that failed, the one that did so first at the front.

    Sidecars are stopped after the others and decide nothing: they are left out if any other
    container has ended. Times have whole seconds: of containers that ended in the same one, those
    that were stopped come last.
    """
    ended = [status for status in statuses if status.state.terminated is not None]
    deciding = [status for status in ended if status.name not in sidecars] or ended
    failed = [status for status in deciding if _end(status).exit_code != 0]
    return sorted(
        failed,
        key=lambda status: (
            _end(status).finished_at or _LATEST,
            _end(status).exit_code in _STOPPED,
        ),
    )


def _last_container_end(pod: Pod) -> datetime | None:
    statuses: tuple[ContainerStatus, ...] = pod.status.container_statuses
    if pod.status.init_container_statuses:
        sidecars = sidecar_names(pod)
        statuses = statuses + tuple(
            status for status in pod.status.init_container_statuses if status.name in sidecars
        )
    latest: datetime | None = None
    for status in statuses:
        terminated = status.state.terminated
        if terminated is None or terminated.finished_at is None:
            return None
        if latest is None or terminated.finished_at > latest:
            latest = terminated.finished_at
    return latest


def _became_unready_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "False":
            return condition.last_transition_time
    return None


def _asked_to_end_at(pod: Pod) -> datetime | None:
    deleted_at = pod.metadata.deletion_timestamp
    if deleted_at is None:
        return None
    try:
        return deleted_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    except OverflowError:
        # A deletion time from the first minute of the calendar cannot be moved further back, nor
        # any time by a grace that is longer than the calendar.
        return _EARLIEST


def _end(status: _Status) -> Terminated:
    end = status.state.terminated
    assert end is not None, "only containers that ended are asked"
    return end
