"""State transitions of Pods that are resized in place.

Part of `pod_machine` and as pure, like `container_rules`. `Active.pod` has the resources that the
node allocated, so that all other rules apply to these; `Active.resize` has those that are wanted.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from onejob.node.agent.pod_events import (
    ChangeLimits,
    ConsiderResize,
    FreeRoom,
    LimitsChanged,
    PodEffect,
    RecordNormal,
    RecordWarning,
    ResizeDecided,
    SetTimer,
    StopContainer,
    TakeRoom,
)
from onejob.node.agent.pod_state import Active, NodeNow
from onejob.objects.meta import Condition
from onejob.objects.pod_spec import NodePod, Resources
from onejob.planning.pod.demand import demand_of
from onejob.planning.pod.lifecycle import UNSEEN, rewind
from onejob.planning.pod.placement import Amounts
from onejob.planning.pod.resizing import (
    IN_PROGRESS,
    PENDING,
    Refusal,
    Resize,
    ResizeCondition,
    action_for,
    affected,
    allocated_pod,
    effective,
    larger,
    reported_pod,
)

#: Delay before limits that could not be changed are tried again.
_RETRY: Final = timedelta(seconds=10)


def inherit(pod: NodePod) -> tuple[NodePod, Resize | None]:
    """Return a Pod found on this node with the resources allocated to it, and the state of its
    resize; None if it has none."""
    before = reported_pod(pod)
    pending, progress = pod.condition(PENDING), pod.condition(IN_PROGRESS)
    if before is pod and pending is None and progress is None:
        return pod, None
    return before, Resize(
        pod, _inherited(pod, pending), None if before is pod else _inherited(pod, progress)
    )


def _inherited(pod: NodePod, condition: Condition | None) -> ResizeCondition | None:
    if condition is None or condition.last_transition_time is None:
        return None
    since = condition.last_transition_time
    # The generation is not read: an unchanged refusal is decided again and keeps its time.
    return ResizeCondition(condition.reason, condition.message, 0, since)


def read(state: Active, pod: NodePod, effects: list[PodEffect]) -> None:
    """Take over a new version of the Pod; the allocated resources stay."""
    allocated = allocated_pod(pod, state.pod)
    state.pod = allocated
    resize = state.resize
    if allocated is pod:
        if resize is not None:
            state.resize = replace(resize, wanted=pod, pending=None)
            _hold(state, demand_of(pod.spec), effects)
        return
    state.resize = Resize(pod) if resize is None else replace(resize, wanted=pod)
    settled = (
        resize is not None
        and resize.pending is not None
        and (resize.pending.generation == pod.metadata.generation)
    )
    if not settled:
        effects.append(ConsiderResize())


def decided(state: Active, event: ResizeDecided, effects: list[PodEffect], node: NodeNow) -> bool:
    """Apply a decision; return whether it is about the resources that are wanted now."""
    resize = state.resize
    if resize is None or event.generation != resize.wanted.metadata.generation:
        return False
    if allocated_pod(resize.wanted, state.pod) is resize.wanted:
        return False
    if event.refusal is None:
        _allocate(state, resize, effects, node.now)
    else:
        _refuse(state, resize, event.refusal, effects, node.now)
    return True


def _allocate(state: Active, resize: Resize, effects: list[PodEffect], now: datetime) -> None:
    wanted = resize.wanted
    actual = dict(resize.actual)
    for before, after, _ in affected(state.pod, wanted):
        if state.containers.get(after.name, UNSEEN).busy:
            actual.setdefault(after.name, before.resources)
    state.pod = wanted
    generation = wanted.metadata.generation
    progress = ResizeCondition("", "", generation, now)
    state.resize = replace(resize, pending=None, progress=progress, actual=actual, retry_at=None)
    _hold(state, demand_of(wanted.spec), effects)
    effects.append(RecordNormal(wanted, "ResizeStarted", _summary("started", wanted, generation)))


def _refuse(
    state: Active, resize: Resize, refusal: Refusal, effects: list[PodEffect], now: datetime
) -> None:
    generation = resize.wanted.metadata.generation
    before = resize.pending
    same = before is not None and before.reason == refusal.reason
    since = before.since if before is not None and same else now
    pending = ResizeCondition(refusal.reason, refusal.message, generation, since)
    state.resize = replace(resize, pending=pending)
    allocated = demand_of(state.pod.spec)
    deferred = refusal.reason == "Deferred"
    # Other Pods must not take the room for which a deferred resize waits.
    held = larger(allocated, demand_of(resize.wanted.spec)) if deferred else allocated
    _hold(state, held, effects)
    if before is None or not same or before.generation != generation:
        text = _summary(refusal.reason, resize.wanted, generation, refusal.message)
        effects.append(RecordWarning(resize.wanted, f"Resize{refusal.reason}", text))


def _hold(state: Active, demand: Amounts, effects: list[PodEffect]) -> None:
    """Have the Pod hold these amounts of the node instead of its present ones."""
    if demand != state.demand:
        effects += [TakeRoom(demand), FreeRoom(state.demand)]
        state.demand = demand


def note_ends(state: Active) -> None:
    """Drop what containers that no longer run would have needed; let those start again that were
    stopped for it, whatever the restart policy."""
    resize = state.resize
    if resize is None or not resize.actual:
        return
    over = {name for name in resize.actual if state.containers.get(name, UNSEEN).stage == "exited"}
    if not over:
        return
    for name in over & resize.restarting:
        state.containers = {**state.containers, name: rewind(state.containers[name])}
    actual = {name: each for name, each in resize.actual.items() if name not in over}
    state.resize = replace(
        resize,
        actual=actual,
        restarting=resize.restarting - over,
        updating=resize.updating - over,
    )


def act(state: Active, node: NodeNow, effects: list[PodEffect]) -> None:
    """Change the limits of running containers, or restart them, as allocated."""
    resize = state.resize
    if resize is None or resize.progress is None:
        return
    actual, updating, restarting = dict(resize.actual), set(resize.updating), set(resize.restarting)
    for name, resources in resize.actual.items():
        container, seen = state.pod.container(name), state.containers.get(name, UNSEEN)
        if container is None or name in updating or name in restarting:
            continue
        container = effective(state.pod, container)
        action = action_for(container, resources)
        if not action:
            del actual[name]
        elif seen.stage != "running" or seen.stopping:
            continue
        elif action == "restart":
            restarting.add(name)
            grace = max(state.pod.spec.termination_grace_period_seconds, 0)
            stopping = replace(seen, stopping=True, stop_grace_seconds=grace)
            state.containers = {**state.containers, name: stopping}
            effects.append(StopContainer(state.pod, name, seen.attempt, grace))
        elif resize.retry_at is not None and node.now < resize.retry_at:
            effects.append(SetTimer(resize.retry_at))
        else:
            updating.add(name)
            effects.append(ChangeLimits(state.pod, container, seen.attempt))
    progress = resize.progress
    if not actual:
        generation = progress.generation
        text = _summary("completed", state.pod, generation)
        effects.append(RecordNormal(state.pod, "ResizeCompleted", text))
    state.resize = replace(
        resize,
        actual=actual,
        updating=frozenset(updating),
        restarting=frozenset(restarting),
        progress=progress if actual else None,
    )


def limits_changed(
    state: Active, event: LimitsChanged, effects: list[PodEffect], node: NodeNow
) -> bool:
    """Apply the result of a change; return False if the attempt has ended since."""
    resize = state.resize
    seen = state.containers.get(event.container, UNSEEN)
    if resize is None or seen.attempt != event.attempt or event.container not in resize.updating:
        return False
    updating = resize.updating - {event.container}
    if not event.problem:
        actual = {**resize.actual, event.container: event.resources}
        state.resize = replace(resize, actual=actual, updating=updating)
        return True
    progress = resize.progress
    generation = resize.wanted.metadata.generation if progress is None else progress.generation
    known = progress is not None and progress.message == event.problem
    since = progress.since if progress is not None and progress.reason else node.now
    failed = ResizeCondition("Error", event.problem, generation, since)
    retry_at = node.now + _RETRY
    state.resize = replace(resize, updating=updating, progress=failed, retry_at=retry_at)
    if not known:
        text = _summary("error", state.pod, generation, event.problem)
        effects.append(RecordWarning(state.pod, "ResizeError", text))
    return True


class _Allocation(msgspec.Struct, frozen=True):
    name: str
    resources: Resources


class _Summary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Resources of a Pod, as the kubelet's Events have them."""

    init_containers: tuple[_Allocation, ...] = ()
    containers: tuple[_Allocation, ...] = ()
    generation: int | None = None
    error: str = ""


def _summary(what: str, pod: NodePod, generation: int, error: str = "") -> str:
    """Return the message of an Event about a resize."""
    summary = _Summary(
        tuple(_Allocation(each.name, each.resources) for each in pod.spec.init_containers),
        tuple(_Allocation(each.name, each.resources) for each in pod.spec.containers),
        generation,
        error,
    )
    return f"Pod resize {what}: {msgspec.json.encode(summary).decode()}"
