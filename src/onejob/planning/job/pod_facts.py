"""Predicates and accessors of a Pod, alone or in relation to its Job."""

from collections.abc import Container, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from onejob.objects.job import Job
from onejob.objects.pod import ContainerStatus, Pod, Terminated
from onejob.planning.job.indexes import read_index
from onejob.planning.names import INDEX_ANNOTATION, TRACKING, TRACKING_AS_PROPOSED

#: State of a Pod's end: not ended, ended and holding the finalizer, or ended and accounted for.
PodEnd: TypeAlias = Literal["none", "held", "accounted"]

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
#: Exit codes of containers stopped because another one failed: 128 + SIGKILL, 128 + SIGTERM.
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
    """Return whether the Pod holds the finalizer that protects it until it is counted."""
    finalizers = pod.metadata.finalizers
    return TRACKING in finalizers or TRACKING_AS_PROPOSED in finalizers


def end_of(pod: Pod) -> PodEnd:
    if pod.status.phase not in ("Succeeded", "Failed"):
        return "none"
    # Inlines `is_tracked`: this is evaluated for every change of every Pod.
    finalizers = pod.metadata.finalizers
    tracked = TRACKING in finalizers or TRACKING_AS_PROPOSED in finalizers
    return "held" if tracked else "accounted"


def controlling_job_uid(pod: Pod | None) -> str | None:
    """Return the UID of the Job that controls the Pod; None if no Job does."""
    for owner in () if pod is None else pod.metadata.owner_references:
        if owner.controller:
            is_job = owner.kind == "Job" and owner.api_version == "batch/v1"
            return owner.uid if is_job else None
    return None


def same_owners(old: Pod | None, new: Pod | None) -> bool:
    """Return whether the ownerReferences are equal.

    Nearly always True; the caller may then skip the old Pod's owners.
    """
    if old is None or new is None:
        return False
    return old.metadata.owner_references == new.metadata.owner_references


def completion_index(pod: Pod) -> int | None:
    """Return the Pod's completion index; None if it is absent or invalid."""
    annotations = pod.metadata.annotations
    return read_index(annotations[INDEX_ANNOTATION]) if INDEX_ANNOTATION in annotations else None


def valid_index(pod: Pod, job: Job) -> int | None:
    """Return the index if it is below the Job's completions, else None.

    Completions may have been reduced since the Pod was created.
    """
    index = completion_index(pod)
    return index if index is not None and index < (job.spec.completions or 0) else None


def pod_failed(pod: Pod, job: Job) -> bool:
    """Return whether the Pod counts as failed.

    A Pod being deleted does, unless the Job's podReplacementPolicy is Failed.
    """
    if pod.status.phase == "Failed":
        return True
    return (
        pod.metadata.deletion_timestamp is not None
        and pod.status.phase != "Succeeded"
        and job.spec.pod_replacement_policy != "Failed"
    )


def finish_time(pod: Pod) -> datetime:
    """Return when a Pod that counts as ended did end, by the best evidence available."""
    return (
        _last_container_end(pod)
        or _became_unready_at(pod)
        or _asked_to_end_at(pod)
        or pod.metadata.creation_timestamp
        or _EARLIEST
    )


def restart_count(pod: Pod) -> int:
    """Return the number of container restarts, including init containers."""
    restarts = 0
    for status in pod.status.container_statuses:
        restarts += status.restart_count
    for status in pod.status.init_container_statuses:
        restarts += status.restart_count
    return restarts


def sidecar_names(pod: Pod) -> frozenset[str]:
    """Return the names of sidecars: init containers with restartPolicy Always."""
    return frozenset(
        container.name
        for container in pod.spec.init_containers
        if container.restart_policy == "Always"
    )


def failures_of_pod(pod: Pod) -> list[ContainerStatus]:
    """Return the failed containers, starting with the one that made the Pod fail."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return failed_containers(statuses, sidecar_names(pod))


def failed_containers(statuses: Iterable[Status], sidecars: Container[str]) -> list[Status]:
    """Return the failed containers, in the order of their failure.

    Sidecars are stopped after the other containers and do not affect the result: they are ignored
    if any other container has ended. Timestamps have whole seconds; of containers that ended in the
    same second, the ones stopped by a signal come last.
    """
    ended = [status for status in statuses if status.state.terminated is not None]
    deciding = [status for status in ended if status.name not in sidecars] or ended
    failed = [status for status in deciding if _termination_of(status).exit_code != 0]
    return sorted(
        failed,
        key=lambda status: (
            _termination_of(status).finished_at or _LATEST,
            _termination_of(status).exit_code in _STOPPED,
        ),
    )


def _last_container_end(pod: Pod) -> datetime | None:
    """Return the latest end of a container; None if none has a time."""
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
    """Return the time at which the Pod ceased to be Ready; None if it is unknown."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "False":
            return condition.last_transition_time
    return None


def _asked_to_end_at(pod: Pod) -> datetime | None:
    """Return the time of the deletion request; None if the Pod is not being deleted."""
    deleted_at = pod.metadata.deletion_timestamp
    if deleted_at is None:
        return None
    try:
        return deleted_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    except OverflowError:
        # The result would precede the earliest representable time: the deletion time is at the
        # start of the calendar, or the grace period is longer than the calendar.
        return _EARLIEST


def _termination_of(status: _Status) -> Terminated:
    end = status.state.terminated
    assert end is not None, "only containers that ended are asked"
    return end
