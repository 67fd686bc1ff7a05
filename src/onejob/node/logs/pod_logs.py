"""Logs by Pod and container name, with the errors of `GET …/log`."""

from collections.abc import AsyncIterator
from typing import Protocol

from onejob.client.base import Client
from onejob.node.runtime import AttemptRef
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, ReportedContainer, read_node_pod
from onejob.wire.errors import BadRequest
from onejob.wire.requests import LogOptions


class LogKeeper(Protocol):
    """A `Runtime`, or another provider of the logs of attempts."""

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        """Iterate over the output of an attempt, selected by `options`."""


async def pod_logs(
    client: Client, keeper: LogKeeper, key: Key, container: str, options: LogOptions
) -> AsyncIterator[bytes]:
    """Iterate over the log of a container; empty for a Pod that is not bound. Raises BadRequest,
    NotFound."""
    pod = read_node_pod(await client.get(key))
    name = _choose(pod, container)
    if not pod.spec.node_name:
        return
    attempt = _attempt(pod, name, previous=options.previous)
    async for piece in keeper.logs(AttemptRef(pod.uid, name, attempt), options):
        yield piece


def running_container(document: bytes, container: str) -> tuple[NodePod, AttemptRef]:
    """Return the Pod and the running attempt of a container, for exec and attach. Raises
    BadRequest."""
    pod = read_node_pod(document)
    name = _choose(pod, container)
    status = _status(pod, name)
    if status.state.running is None:
        raise BadRequest(f'container "{name}" in pod "{pod.metadata.name}" is not running')
    return pod, AttemptRef(pod.uid, name, status.restart_count)


def _choose(pod: NodePod, container: str) -> str:
    """Return the name of the container to read, by default the only one. Raises BadRequest."""
    name = pod.metadata.name
    if container:
        if pod.container(container) is None:
            raise BadRequest(f"container {container} is not valid for pod {name}")
        return container
    if len(pod.spec.containers) == 1:
        return pod.spec.containers[0].name
    names = " ".join(c.name for c in pod.spec.containers)
    text = f"a container name must be specified for pod {name}, choose one of: [{names}]"
    if pod.spec.init_containers:
        inits = " ".join(c.name for c in pod.spec.init_containers)
        text += f" or one of the init containers: [{inits}]"
    raise BadRequest(text)


def _attempt(pod: NodePod, name: str, *, previous: bool) -> int:
    """Return the number of the container's current or previous attempt. Raises BadRequest."""
    status = _status(pod, name)
    place = f'container "{name}" in pod "{pod.metadata.name}"'
    if previous:
        if status.last_state.terminated is None or status.restart_count == 0:
            raise BadRequest(f"previous terminated {place} not found")
        waiting = status.state.running is None and status.state.terminated is None
        # While it waits for a restart, its newest attempt is already the previous one.
        return status.restart_count if waiting else status.restart_count - 1
    begun = status.state.running or status.state.terminated or status.last_state.terminated
    if begun is None:
        raise BadRequest(f"{place} is waiting to start: {_waiting_reason(status)}")
    return status.restart_count


def _waiting_reason(status: ReportedContainer) -> str:
    waiting = status.state.waiting
    return waiting.reason if waiting is not None and waiting.reason else "ContainerCreating"


def _status(pod: NodePod, name: str) -> ReportedContainer:
    """Return the reported status of a container; an empty one if it is not reported."""
    reported = pod.status
    for status in (
        *reported.container_statuses,
        *reported.init_container_statuses,
        *reported.ephemeral_container_statuses,
    ):
        if status.name == name:
            return status
    return ReportedContainer(name=name)
