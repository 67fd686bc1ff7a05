"""Pods of a Job for the dashboard: table rows, and failures grouped by cause. Pure functions."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from onejob.objects.meta import Meta, View
from onejob.objects.pod import ContainerSpec, Terminated
from onejob.planning.job.indexes import IndexSet, read_index
from onejob.planning.job.pod_facts import failed_containers
from onejob.planning.names import INDEX_ANNOTATION

#: Pods named per cause.
_NAMED_PODS: Final = 5
_MAX_MESSAGE_LENGTH: Final = 500


class _Waiting(View, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(View, frozen=True):
    started_at: datetime | None = None


class _State(View, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: Terminated | None = None


class _Container(View, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: _State = _State()


class _Spec(View, frozen=True):
    node_name: str = ""
    init_containers: tuple[ContainerSpec, ...] = ()


class _Status(View, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class PodView(View, frozen=True):
    """View of a Pod with the fields that a row needs."""

    metadata: Meta = Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def active(self) -> bool:
        """Whether the Pod has not ended."""
        return self.status.phase not in ("Succeeded", "Failed")

    @property
    def index(self) -> int | None:
        """Completion index; None if the Pod has none."""
        return read_index(self.metadata.annotations.get(INDEX_ANNOTATION))

    @property
    def containers(self) -> tuple[_Container, ...]:
        """Statuses of all containers."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)

    @property
    def ended_at(self) -> datetime | None:
        """Latest end of a container; None if none has ended."""
        ends = [c.state.terminated.finished_at for c in self.containers if c.state.terminated]
        return max((end for end in ends if end is not None), default=None)


class PodRow(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    phase: str
    index: int | None
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    #: Exit code of the container that failed first.
    exit_code: int | None
    #: Reason for waiting or ending, one word.
    reason: str
    restarts: int
    ending: bool
    #: Peak memory and CPU time of its ended containers; None if not measured.
    peak_memory_bytes: int | None = None
    cpu_milliseconds: int | None = None


class Failure(msgspec.Struct, frozen=True, rename="camel"):
    """Pods that failed in the same way."""

    container: str
    exit_code: int | None
    reason: str
    message: str
    count: int
    #: Names of some of the Pods, the newest first.
    pods: tuple[str, ...]
    last_at: datetime | None


class PodIndexes(msgspec.Struct, frozen=True):
    running: str
    pending: str
    #: Indexes whose newest known Pod has failed; only the Job's status decides whether the index
    #: has.
    failed: str


read_pod_view = msgspec.json.Decoder(PodView).decode


def row_of(pod: PodView) -> PodRow:
    """Return the table row of a Pod."""
    failed = _first_failure(pod)
    waiting = next((c.state.waiting for c in pod.containers if c.state.waiting), None)
    started = [c.state.running.started_at for c in pod.containers if c.state.running]
    started += [c.state.terminated.started_at for c in pod.containers if c.state.terminated]
    reason = pod.status.reason
    if not reason and failed is not None and failed[1] is not None:
        reason = failed[1].reason
    elif not reason and pod.active and waiting is not None:
        reason = waiting.reason
    ends = [c.state.terminated for c in pod.containers if c.state.terminated]
    peak = sum(end.peak_memory_bytes for end in ends)
    return PodRow(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        index=pod.index,
        created_at=pod.metadata.creation_timestamp,
        started_at=min((at for at in started if at is not None), default=None),
        ended_at=None if pod.active else pod.ended_at,
        exit_code=None if failed is None or failed[1] is None else failed[1].exit_code,
        reason=reason,
        restarts=sum(container.restart_count for container in pod.containers),
        ending=pod.metadata.deleting and pod.active,
        peak_memory_bytes=peak or None,
        cpu_milliseconds=sum(end.cpu_milliseconds for end in ends) if peak else None,
    )


def failures_of(pods: Iterable[PodView]) -> list[Failure]:
    """Group failed Pods by cause, the most frequent first."""
    groups: dict[tuple[str, int | None, str, str], list[PodView]] = {}
    for pod in pods:
        if pod.status.phase != "Failed":
            continue
        container, end = _first_failure(pod) or ("", None)
        cause: tuple[str, int | None, str, str]
        if end is None:
            cause = ("", None, pod.status.reason or "Failed", _one_line(pod.status.message))
        else:
            cause = (container, end.exit_code, end.reason, _one_line(end.message))
        groups.setdefault(cause, []).append(pod)
    found = []
    for (name, exit_code, reason, message), members in groups.items():
        members.sort(key=_end_order, reverse=True)
        named = tuple(pod.metadata.name for pod in members[:_NAMED_PODS])
        found.append(
            Failure(name, exit_code, reason, message, len(members), named, members[0].ended_at)
        )
    return sorted(found, key=lambda failure: -failure.count)


def pod_indexes(pods: Iterable[PodView]) -> PodIndexes:
    """Return the indexes of the given Pods by state.

    An active Pod takes precedence over an ended one.
    """
    found: dict[str, set[int]] = {"Running": set(), "Pending": set(), "Failed": set()}
    for pod in pods:
        if pod.index is not None and pod.status.phase != "Succeeded":
            phase = pod.status.phase if pod.status.phase in found else "Pending"
            found[phase].add(pod.index)
    running = found["Running"]
    pending = found["Pending"] - running
    failed = found["Failed"] - running - pending
    return PodIndexes(_ranges(running), _ranges(pending), _ranges(failed))


def _ranges(indexes: Iterable[int]) -> str:
    """Return indexes as ranges."""
    return str(IndexSet([(index, index) for index in sorted(indexes)]))


def newest(pods: Sequence[PodView], phase: str, most: int) -> list[PodView]:
    """Return the Pods of a phase that ended last, at most `most`."""
    found = [pod for pod in pods if pod.status.phase == phase]
    return sorted(found, key=_end_order, reverse=True)[:most]


def _first_failure(pod: PodView) -> tuple[str, Terminated | None] | None:
    """Return name and end of the first failed container of a failed Pod; None for other Pods."""
    if pod.status.phase != "Failed":
        return None
    sidecars = {c.name for c in pod.spec.init_containers if c.restart_policy == "Always"}
    for container in failed_containers(pod.containers, sidecars):
        return container.name, container.state.terminated
    return "", None


def _end_order(pod: PodView) -> tuple[float, str]:
    end = pod.ended_at
    return (end.timestamp() if end is not None else 0.0, pod.metadata.name)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE_LENGTH]
