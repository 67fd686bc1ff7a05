"""Pod status for a `PodPlan`: container states and conditions, in full."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from onejob.objects.pod_spec import Container, NodePod, QuantityText, Resources
from onejob.objects.pod_status import (
    ConditionRemoval,
    ConditionReport,
    ContainerReport,
    IpReport,
    PodReport,
    Running,
    State,
    Terminated,
    Waiting,
)
from onejob.planning.pod.lifecycle import (
    UNSEEN,
    ContainerSeen,
    Exit,
    PodPlan,
    back_off,
    is_sidecar,
)
from onejob.planning.pod.resizing import IN_PROGRESS, PENDING, Resize

_NOTHING = State()
_NO_AMOUNTS: Mapping[str, QuantityText] = {}
_UNCHANGED: Mapping[str, Resources] = {}


class _ConditionMaker(Protocol):
    def __call__(
        self, kind: str, fact: bool, reason: str = "", message: str = ""
    ) -> ConditionReport: ...


class NodeFacts(Struct, frozen=True):
    """Properties of the node that appear in a Pod's status."""

    #: Scheme of container IDs: `process`, `podman`, `simulated`.
    runtime: str
    ip: str = "127.0.0.1"


def container_id(runtime: str, uid: str, container: str, attempt: int) -> str:
    return f"{runtime}://{uid}-{container}-{attempt}"


def report(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    plan: PodPlan,
    *,
    now: datetime,
    started_at: datetime,
    facts: NodeFacts,
    before: Mapping[str, ConditionReport],
    resize: Resize | None = None,
) -> PodReport:
    """Return the status of a Pod with the resources that are allocated to it.

    `before` holds the conditions last reported, by type: one whose status is unchanged keeps its
    transition time.
    """
    ips = (IpReport(ip=facts.ip),)
    now = now.replace(microsecond=0)
    actual = _UNCHANGED if resize is None else resize.actual
    return PodReport(
        observed_generation=pod.metadata.generation,
        phase=plan.phase,
        reason=plan.reason,
        message=plan.message,
        start_time=started_at.replace(microsecond=0),
        host_ip=facts.ip,
        host_ips=ips,
        pod_ip=facts.ip,
        pod_ips=ips,
        conditions=(
            *_conditions(pod, seen, plan, now, before),
            *(() if resize is None else _resize_conditions(resize, plan)),
        ),
        init_container_statuses=_containers(
            pod, pod.spec.init_containers, seen, plan, facts, actual, init=True
        ),
        container_statuses=_containers(
            pod, pod.spec.containers, seen, plan, facts, actual, init=False
        ),
        ephemeral_container_statuses=_containers(
            pod, pod.spec.ephemeral_containers, seen, plan, facts, actual, init=False
        ),
        allocated_resources=pod.spec.resources.requests,
        resources=_pod_resources(pod),
    )


def _pod_resources(pod: NodePod) -> Resources | None:
    resources = pod.spec.resources
    return resources if resources.limits or resources.requests else None


def _resize_conditions(
    resize: Resize, plan: PodPlan
) -> tuple[ConditionReport | ConditionRemoval, ...]:
    """Return the conditions about a resize; those that do not apply are removed."""
    reports: list[ConditionReport | ConditionRemoval] = []
    for kind, known in ((PENDING, resize.pending), (IN_PROGRESS, resize.progress)):
        if known is None or plan.over:
            reports.append(ConditionRemoval(type=kind, patch="delete"))
        else:
            reports.append(
                ConditionReport(
                    type=kind,
                    observed_generation=known.generation,
                    status="True",
                    reason=known.reason or None,
                    message=known.message or None,
                    last_transition_time=known.since.replace(microsecond=0),
                )
            )
    return tuple(reports)


def _containers(
    pod: NodePod,
    containers: Sequence[Container],
    seen: Mapping[str, ContainerSeen],
    plan: PodPlan,
    facts: NodeFacts,
    actual: Mapping[str, Resources],
    *,
    init: bool,
) -> tuple[ContainerReport, ...]:
    """Return the statuses of the init containers, the main or the ephemeral ones."""
    reports: tuple[ContainerReport, ...] = ()
    for container in containers:
        reports = (*reports, _container(pod, container, seen, plan, facts, actual, init=init))
    return reports


def _container(
    pod: NodePod,
    container: Container,
    every: Mapping[str, ContainerSeen],
    plan: PodPlan,
    facts: NodeFacts,
    actual: Mapping[str, Resources],
    *,
    init: bool,
) -> ContainerReport:
    """Return the status of a container."""
    seen = every.get(container.name, UNSEEN)
    attempt = seen.attempt
    last = _NOTHING
    if seen.stage == "running" and seen.started_at is not None:
        state = State(running=Running(started_at=seen.started_at.replace(microsecond=0)))
        last = _terminated_state(seen.previous_exit)
    elif seen.stage == "exited" and seen.exit is not None:
        if plan.backing_off and container.name in plan.backing_off:
            state = _crash_loop(pod, container, seen)
            last = _terminated_state(seen.exit)
        elif seen.blocked is not None and not plan.over:
            state = State(waiting=Waiting(reason=seen.blocked.reason, message=seen.blocked.message))
            last = _terminated_state(seen.exit)
        else:
            state = _terminated_state(seen.exit)
            last = _terminated_state(seen.previous_exit)
    elif seen.stage == "starting" and seen.previous_exit is not None:
        # Until the new attempt runs, the status shows the previous one.
        state = _terminated_state(seen.previous_exit)
        attempt -= 1
    else:
        state = _unstarted_state(seen, plan, init=init)
    uid = pod.metadata.uid
    identity = container_id(facts.runtime, uid, container.name, attempt) if attempt >= 0 else ""
    running = seen.stage == "running"
    allocated = container.resources
    done = init and not is_sidecar(container) and seen.exit is not None and seen.exit.succeeded
    return ContainerReport(
        name=container.name,
        image=container.image,
        image_id="",
        container_id=identity,
        restart_count=max(attempt, 0),
        ready=done or (running and seen.ready),
        started=running and seen.started,
        state=state,
        last_state=last,
        allocated_resources=allocated.requests if attempt >= 0 else _NO_AMOUNTS,
        resources=actual.get(container.name, allocated) if attempt >= 0 else None,
    )


def _crash_loop(pod: NodePod, container: Container, seen: ContainerSeen) -> State:
    """Return the state of a container that waits for its back-off."""
    seconds = int(back_off(seen.quick_restarts).total_seconds())
    wait = f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"
    place = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return State(
        waiting=Waiting(
            reason="CrashLoopBackOff",
            message=f"back-off {wait} restarting failed container={container.name} pod={place}",
        )
    )


def _unstarted_state(seen: ContainerSeen, plan: PodPlan, *, init: bool) -> State:
    """Return the state of a container that has not been started."""
    if plan.over and plan.initialized:
        return State(
            terminated=Terminated(
                exit_code=137,
                reason="ContainerStatusUnknown",
                message="The container could not be located when the pod was terminated",
            )
        )
    if seen.blocked is not None:
        return State(waiting=Waiting(reason=seen.blocked.reason, message=seen.blocked.message))
    initializing = init or not plan.initialized
    return State(waiting=Waiting(reason="PodInitializing" if initializing else "ContainerCreating"))


def _terminated_state(exit: Exit | None) -> State:
    """Return the state after an exit; an empty one for None."""
    if exit is None:
        return _NOTHING
    return State(
        terminated=Terminated(
            exit_code=exit.code,
            reason=exit.reason or ("Completed" if exit.succeeded else "Error"),
            signal=exit.signal,
            message=exit.message,
            started_at=(exit.started_at or exit.finished_at).replace(microsecond=0),
            finished_at=exit.finished_at.replace(microsecond=0),
            peak_memory_bytes=exit.peak_bytes,
            cpu_milliseconds=exit.cpu_milliseconds,
            duration_milliseconds=exit.milliseconds,
        )
    )


def _conditions(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    plan: PodPlan,
    now: datetime,
    before: Mapping[str, ConditionReport],
) -> tuple[ConditionReport, ...]:
    """Return the conditions of the Pod."""

    def condition(kind: str, fact: bool, reason: str = "", message: str = "") -> ConditionReport:
        status = "True" if fact else "False"
        old = before.get(kind)
        since = old.last_transition_time if old is not None and old.status == status else now
        return ConditionReport(
            type=kind,
            observed_generation=pod.metadata.generation,
            status=status,
            reason=reason or (None if old is not None and old.reason != "" else ""),
            message=message or (None if old is not None and old.message != "" else ""),
            last_transition_time=since,
        )

    disrupted: tuple[ConditionReport, ...] = ()
    if plan.disruption and pod.condition("DisruptionTarget") is None:
        disrupted = (condition("DisruptionTarget", True, "TerminationByKubelet", plan.disruption),)
    if plan.over:
        reason = "PodCompleted" if plan.phase == "Succeeded" else "PodFailed"
        if plan.initialized:
            done = reason if reason == "PodCompleted" else ""
            initialized = condition("Initialized", True, done)
        else:
            initialized = _initialized_condition(pod, seen, condition)
        return (
            condition("PodReadyToStartContainers", False),
            initialized,
            condition("Ready", False, reason),
            condition("ContainersReady", False, reason),
            *disrupted,
        )
    unready = [
        container.name
        for container in _running_containers(pod)
        if not _ready(seen.get(container.name, UNSEEN))
    ]
    gates = [
        gate.condition_type
        for gate in pod.spec.readiness_gates
        if (found := pod.condition(gate.condition_type)) is None or found.status != "True"
    ]
    why = ("ContainersNotReady", _list_text("unready", unready)) if unready else ("", "")
    if unready or not gates:
        ready = condition("Ready", not unready, *why)
    else:
        text = ", ".join(
            f'the status of pod readiness gate "{gate}" is not "True"' for gate in gates
        )
        ready = condition("Ready", False, "ReadinessGatesNotReady", text)
    return (
        condition("PodReadyToStartContainers", True),
        condition("Initialized", True)
        if plan.initialized
        else _initialized_condition(pod, seen, condition),
        ready,
        condition("ContainersReady", not unready, *why),
    )


def _initialized_condition(
    pod: NodePod,
    seen: Mapping[str, ContainerSeen],
    condition: _ConditionMaker,
) -> ConditionReport:
    incomplete = []
    for container in pod.spec.init_containers:
        state = seen.get(container.name, UNSEEN)
        complete = state.started if is_sidecar(container) else _succeeded(state)
        if not complete:
            incomplete.append(container.name)
    return condition(
        "Initialized", False, "ContainersNotInitialized", _list_text("incomplete", incomplete)
    )


def _running_containers(pod: NodePod) -> Sequence[Container]:
    if not pod.spec.init_containers:
        return pod.spec.containers
    return (*(c for c in pod.spec.init_containers if is_sidecar(c)), *pod.spec.containers)


def _ready(state: ContainerSeen) -> bool:
    """Return whether the container counts as ready."""
    return state.stage == "running" and state.ready


def _succeeded(state: ContainerSeen) -> bool:
    """Return whether the container has exited with 0."""
    return state.stage == "exited" and state.exit is not None and state.exit.succeeded


def _list_text(what: str, names: list[str]) -> str:
    return f"containers with {what} status: [{' '.join(names)}]"
