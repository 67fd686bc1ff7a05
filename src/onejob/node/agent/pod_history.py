"""Container history from the Pod status that an earlier run of the agent wrote."""

from onejob.node.runtime import AttemptRef
from onejob.objects.pod_spec import NodePod, ReportedContainer
from onejob.planning.pod.lifecycle import ContainerSeen, Exit


def _statuses(pod: NodePod) -> tuple[ReportedContainer, ...]:
    """Return the reported statuses of all containers."""
    status = pod.status
    return (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    )


def has_run(pod: NodePod) -> bool:
    """Return whether the status shows that containers may have run. Containers that have only been
    waiting, for example for an image, have not."""
    return pod.status.start_time is not None and not all(
        status.state.waiting is not None and status.last_state.terminated is None
        for status in _statuses(pod)
    )


def reported_running(pod: NodePod, ref: AttemptRef) -> bool:
    """Return whether the status shows this attempt as running, which implies that an earlier run of
    the agent completed its postStart hook."""
    for status in _statuses(pod):
        if status.name == ref.container and status.restart_count == ref.attempt:
            return status.state.running is not None
    return False


def running_attempts(pod: NodePod) -> dict[str, int]:
    """Return the attempt reported as running, by container name."""
    return {
        status.name: status.restart_count
        for status in _statuses(pod)
        if status.state.running is not None
    }


def remembered_containers(pod: NodePod) -> dict[str, ContainerSeen]:
    """Return ended containers with their restart counts as the status reports them, for a Pod that
    an earlier run of the agent ran."""
    found = {}
    for status in _statuses(pod):
        if (ended := _reported_exit(status)) is not None:
            attempt = status.restart_count
            found[status.name] = ContainerSeen(
                "exited", attempt, exit=ended, quick_restarts=attempt
            )
    return found


def _reported_exit(status: ReportedContainer) -> Exit | None:
    """Return the reported exit of a container, current or last; None if there is none."""
    ended = status.state.terminated or status.last_state.terminated
    if ended is None or ended.finished_at is None:
        return None
    return Exit(
        ended.exit_code,
        ended.finished_at,
        ended.started_at,
        ended.signal,
        ended.reason,
        ended.message,
        peak_bytes=ended.peak_memory_bytes,
        cpu_milliseconds=ended.cpu_milliseconds,
        milliseconds=ended.duration_milliseconds,
    )
