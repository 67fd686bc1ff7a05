"""What the status of a Pod says of the containers that an earlier run of the agent had."""

from onejob.node.runtime import AttemptRef
from onejob.objects.pod_spec import NodePod, ReportedContainer
from onejob.planning.pod.lifecycle import ContainerSeen, Exit


def _statuses(pod: NodePod) -> tuple[ReportedContainer, ...]:
    return (*pod.status.container_statuses, *pod.status.init_container_statuses)


def has_run(pod: NodePod) -> bool:
    """By its status. One whose containers only ever waited (for an image, say) may still wait."""
    return pod.status.start_time is not None and not all(
        status.state.waiting is not None and status.last_state.terminated is None
        for status in _statuses(pod)
    )


def reported_running(pod: NodePod, ref: AttemptRef) -> bool:
    """Whether an earlier run of the agent has run the postStart hook of this attempt."""
    for status in _statuses(pod):
        if status.name == ref.container and status.restart_count == ref.attempt:
            return status.state.running is not None
    return False


def running_attempts(pod: NodePod) -> dict[str, int]:
    """By container, the attempt that the status says is running."""
    return {
        status.name: status.restart_count
        for status in _statuses(pod)
        if status.state.running is not None
    }


def remembered_containers(pod: NodePod) -> dict[str, ContainerSeen]:
    """Restart counts by the status, for a Pod that an earlier run of the agent ran."""
    found = {}
    for status in _statuses(pod):
        if (ended := _reported_exit(status)) is not None:
            attempt = status.restart_count
            found[status.name] = ContainerSeen(
                "exited", attempt, exit=ended, quick_restarts=attempt
            )
    return found


def _reported_exit(status: ReportedContainer) -> Exit | None:
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
    )
