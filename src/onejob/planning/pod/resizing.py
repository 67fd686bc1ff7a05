"""In-place resize of a running Pod: whether the node allocates it, and what has to change.

Three sets of resources differ while a resize is under way, as in a kubelet: those that clients want
(the spec), those that the node has allocated, and the actual ones, which limit the containers.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from onejob.objects.pod_spec import Container, NodePod, Resources
from onejob.planning.pod.demand import read_amounts, with_pod_limits
from onejob.planning.pod.placement import Amounts

#: Resources that a running container can change.
_RESIZABLE: Final = ("cpu", "memory")
PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"

Refused: TypeAlias = Literal["Deferred", "Infeasible"]
#: What a container needs after an allocation: nothing, other limits, or a restart.
Action: TypeAlias = Literal["", "update", "restart"]


class ResizeCondition(Struct, frozen=True, gc=False):
    """Reason and message of a condition about a resize; its status is always True."""

    reason: str
    message: str
    #: Generation of the Pod that the condition is about.
    generation: int
    since: datetime


class Resize(Struct, frozen=True, gc=False):
    """Resize of one Pod, under way or done."""

    #: The Pod with the resources of its spec, instead of the allocated ones.
    wanted: NodePod
    pending: ResizeCondition | None = None
    progress: ResizeCondition | None = None
    #: Resources in force, including the Pod's limits, of containers that still need an action.
    actual: Mapping[str, Resources] = {}
    #: Containers whose limits are being changed.
    updating: frozenset[str] = frozenset()
    #: Containers that are stopped to start again with other resources.
    restarting: frozenset[str] = frozenset()
    #: Limits are not changed again before this time, after an error.
    retry_at: datetime | None = None


class Refusal(Struct, frozen=True, gc=False):
    reason: Refused
    message: str


def allocated_pod(pod: NodePod, allocated: NodePod) -> NodePod:
    """Return `pod` with the resources of `allocated`; `pod` itself if they are the same."""
    spec, kept = pod.spec, allocated.spec
    if spec is kept:
        return pod
    containers = _with_resources(spec.containers, kept.containers)
    init_containers = _with_resources(spec.init_containers, kept.init_containers)
    shared = spec.resources if _same(spec.resources, kept.resources) else kept.resources
    if (
        containers is spec.containers
        and init_containers is spec.init_containers
        and shared is spec.resources
    ):
        return pod
    return replace(
        pod,
        spec=replace(
            spec, containers=containers, init_containers=init_containers, resources=shared
        ),
    )


def reported_pod(pod: NodePod) -> NodePod:
    """Return `pod` with the resources that its status reports, those in force when an earlier run
    of the agent wrote it; `pod` itself if they are the same."""
    reported = {
        status.name: status.resources
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if status.resources is not None
    }
    if not reported:
        return pod
    shared = pod.status.resources
    spec = replace(
        pod.spec,
        containers=_reported(pod.spec.containers, reported),
        init_containers=_reported(pod.spec.init_containers, reported),
        resources=pod.spec.resources if shared is None else shared,
    )
    return allocated_pod(pod, replace(pod, spec=spec))


def _reported(
    containers: tuple[Container, ...], reported: Mapping[str, Resources]
) -> tuple[Container, ...]:
    return tuple(
        replace(each, resources=reported.get(each.name, each.resources)) for each in containers
    )


def _with_resources(
    containers: tuple[Container, ...], allocated: tuple[Container, ...]
) -> tuple[Container, ...]:
    """Return the containers with allocated resources; the same tuple if nothing differs."""
    own = {each.name: each.resources for each in allocated}
    if all(_same(each.resources, own.get(each.name, each.resources)) for each in containers):
        return containers
    return tuple(replace(each, resources=own.get(each.name, each.resources)) for each in containers)


def refusal(
    demand: Amounts, others: Amounts, allocatable: Amounts, problems: Mapping[str, str]
) -> Refusal | None:
    """Return why the node does not allocate a resize; None if it does.

    Args:
        demand: Demand of the Pod with the resources that it wants.
        others: Amounts allocated to the other Pods of the node.
        allocatable: Amounts of the whole node.
        problems: By container name, why the runtime cannot change it while it runs.
    """
    if problems:
        text = "; ".join(f'container "{name}": {why}' for name, why in sorted(problems.items()))
        return Refusal("Infeasible", text)
    for name in _RESIZABLE:
        wanted, used = demand.get(name, 0), others.get(name, 0)
        most = allocatable.get(name, 0)
        if wanted and wanted + used > most:
            never = wanted > most
            message = (
                f"Node didn't have enough {'capacity' if never else 'resource'}: {name}, "
                f"requested: {wanted}, {'' if never else f'used: {used}, '}capacity: {most}"
            )
            return Refusal("Infeasible" if never else "Deferred", message)
    return None


def larger(a: Amounts, b: Amounts) -> dict[str, int]:
    """Return the larger amount of each resource: the demand of a Pod whose resize is deferred."""
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}


def effective(pod: NodePod, container: Container) -> Container:
    """Return a container with the limits of its Pod in place of those that it lacks."""
    return with_pod_limits(pod.spec, container)


def affected(before: NodePod, after: NodePod) -> Iterator[tuple[Container, Container, Action]]:
    """Yield the containers whose resources differ, as they are and as they will be, and what they
    need if they run."""
    old = {each.name: each for each in (*before.spec.init_containers, *before.spec.containers)}
    for each in (*after.spec.init_containers, *after.spec.containers):
        if each.name in old:
            mine, theirs = effective(before, old[each.name]), effective(after, each)
            if action := action_for(theirs, mine.resources):
                yield mine, theirs, action


def action_for(container: Container, actual: Resources) -> Action:
    """Return what a running container with `actual` resources needs. `container` is effective."""
    wanted = container.resources
    action: Action = ""
    limits, requests = (
        _changed(wanted.limits, actual.limits),
        _changed(wanted.requests, actual.requests),
    )
    for name in _RESIZABLE:
        if name in limits or name in requests:
            if _restarts(container, name):
                return "restart"
            if name in limits:
                action = "update"
    return action


def _restarts(container: Container, resource: str) -> bool:
    return any(
        policy.resource_name == resource and policy.restart_policy == "RestartContainer"
        for policy in container.resize_policy
    )


def _changed(a: Mapping[str, str | int | float], b: Mapping[str, str | int | float]) -> set[str]:
    """Return the names of amounts that differ."""
    if a == b:
        return set()
    mine, theirs = read_amounts(a), read_amounts(b)
    return {name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)}


def _same(a: Resources, b: Resources) -> bool:
    return not _changed(a.limits, b.limits) and not _changed(a.requests, b.requests)
