"""State machine of one Pod on this node: `step(state, event)` returns the next state and effects.

Pure: no clock, no I/O, and no memory outside the state. `pod_driver` feeds events in, keeps the
states and carries the effects out, in their order. `planning.pod` decides which containers of a Pod
to start or stop; this module joins their history with the Pods that are read and the statuses that
are written.

    unknown ──► waiting ──► binding ──► running ──► finishing ──► ended ──► (unknown)
       └────────────────────────────────────┘

Facts change the state and request a `Reconcile`, which runs after all pending events and brings the
reports of the runtime with it. A status that changes again before its write is staged is not
written: as with a kubelet, only the newest one is.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from sys import maxsize
from typing import Any, TypeAlias, get_args

from msgspec.structs import replace

from onejob.node.agent import resize_rules
from onejob.node.agent.container_rules import ContainerRules
from onejob.node.agent.observed_pod import ObservedPod
from onejob.node.agent.pod_events import (
    Adopted,
    Bind,
    BindingRefused,
    BindingWritten,
    ConsiderResize,
    DeletePod,
    Dequeue,
    DiscardPod,
    EndWork,
    Enqueue,
    FollowVolumes,
    FreeRoom,
    HookDone,
    LimitsChanged,
    LogProblem,
    PlacedHere,
    PodChanged,
    PodDeleted,
    PodEffect,
    PodEvent,
    PodSeen,
    Reconcile,
    ReconcileSoon,
    RecordWarning,
    RefreshVolumes,
    ReleasePod,
    RequestStatusWrite,
    ResizeDecided,
    SetTimer,
    StartContainer,
    StatusRefused,
    StatusTaken,
    StatusWritten,
    StopContainer,
    TakeRoom,
)
from onejob.node.agent.pod_state import (
    UNKNOWN,
    WAITING,
    Active,
    Binding,
    Done,
    NodeNow,
    Phase,
    PodState,
    Unknown,
    Waiting,
    active_pod,
    copy_active,
)
from onejob.node.agent.retries import FIRST_RETRY, retry_delay
from onejob.node.probing.results import Probed
from onejob.node.runtime import RuntimeTraits
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import NodePod
from onejob.objects.pod_status import ConditionReport
from onejob.planning.pod.demand import demand_of
from onejob.planning.pod.lifecycle import (
    PodPlan,
    by_this_clock,
    plan_pod,
    rewind,
)
from onejob.planning.pod.status import NodeFacts, report
from onejob.wire.quantity import InvalidQuantity

#: Longest delay before a status that the API refused is written again.
MAX_RETRY_DELAY = timedelta(minutes=5)
#: Later than any version of a deleted Pod that the watch can still deliver.
_NO_MORE_REVISIONS = maxsize

Effects: TypeAlias = list[PodEffect]
Step: TypeAlias = tuple[PodState, Effects]
#: Parameters wider than those of any rule: the table selects a rule by their types.
_Rule: TypeAlias = Callable[[Any, Any, NodeNow], Step]

_RECONCILE_SOON = ReconcileSoon()
_REQUEST_STATUS_WRITE = RequestStatusWrite()


class PodMachine:
    """Transition rules of one node, given its name, status facts and runtime traits."""

    def __init__(self, node_name: str, facts: NodeFacts, traits: RuntimeTraits) -> None:
        self._node_name = node_name
        self._facts = facts
        self._containers = ContainerRules(runs_programs=traits.runs_programs)
        self._table = self._rules()

    def step(self, state: PodState, event: PodEvent, node: NodeNow) -> Step:
        """Return the state after `event`, and the effects in the order in which to execute them.

        `state` is not modified. Events without a rule for the current phase are ignored.
        """
        return self._table[state.phase][type(event)](state, event, node)

    def _rules(self) -> Mapping[Phase, Mapping[type, _Rule]]:
        """Return the transition table: rules by phase and event type. Unlisted events are
        ignored."""
        working: dict[type, _Rule] = {
            PodSeen: self._observe,
            PodDeleted: self._delete_active,
            StatusTaken: self._begin_status_write,
            StatusWritten: self._status_written,
            StatusRefused: self._status_refused,
        }
        rules: dict[Phase, dict[type, _Rule]] = {
            "unknown": {
                PodSeen: self._discover,
                PodDeleted: self._delete_inactive,
                PlacedHere: self._bind,
            },
            "waiting": {
                PodSeen: self._discover,
                PodDeleted: self._delete_inactive,
                PlacedHere: self._bind,
                Reconcile: self._enqueue_again,
            },
            "binding": {
                PodSeen: self._observe_while_binding,
                PodDeleted: self._deleted_while_binding,
                BindingWritten: self._on_bound,
                BindingRefused: self._not_bound,
            },
            "running": {
                **working,
                Adopted: self._take_over,
                HookDone: self._apply_hook_result,
                Probed: self._apply_probe,
                ResizeDecided: self._resize_decided,
                LimitsChanged: self._limits_changed,
                Reconcile: self._reconcile,
            },
            "finishing": {**working, Reconcile: self._write_again},
            "ended": {PodSeen: self._observe_after_end, PodDeleted: self._delete_inactive},
        }
        return {
            phase: {**dict.fromkeys(get_args(PodEvent), _ignore), **own}
            for phase, own in rules.items()
        }

    # --- before the Pod runs here

    def _discover(self, state: Unknown | Waiting, event: PodSeen, node: NodeNow) -> Step:
        """Handle a Pod that this node is not running; return the next state and effects."""
        observed = event.observed
        effects: Effects = []
        mine = observed.node_name == self._node_name
        if isinstance(state, Waiting) and (observed.node_name or observed.terminal):
            effects.append(Dequeue())
        if observed.terminal:
            if mine and observed.grace_seconds:
                # The Pod ended during its deletion, and its node died before removing the object.
                effects.append(DeletePod(observed.key, observed.view.metadata))
            return UNKNOWN, effects
        if observed.node_name and not mine:
            return UNKNOWN, effects
        pod = _read(observed, effects)
        if pod is None:
            return state, effects
        if not mine:
            effects.append(Enqueue(pod))
            return WAITING, effects
        # Bound by another scheduler, or by an earlier run of the agent.
        # Since its creation, a new Pod has had its PodScheduled condition only.
        resize = None
        if pod.status.container_statuses or len(pod.status.conditions) > 1:
            pod, resize = resize_rules.inherit(pod)
        try:
            demand = demand_of(pod.spec)
        except InvalidQuantity:
            demand = {"pods": 1}
        effects += [TakeRoom(demand), FollowVolumes(pod), _RECONCILE_SOON]
        active = active_pod(pod, demand, pod.metadata.revision, node.now)
        if resize is not None:
            active.resize = resize
            effects.append(ConsiderResize())
        return active, effects

    def _delete_inactive(self, state: PodState, event: PodDeleted, node: NodeNow) -> Step:
        effects: Effects = [Dequeue()] if isinstance(state, Waiting) else []
        if event.from_here:
            effects.append(DiscardPod())
        return UNKNOWN, effects

    def _enqueue_again(self, state: Waiting, event: Reconcile, node: NodeNow) -> Step:
        if state.refused is None:
            return state, []
        return WAITING, [Enqueue(state.refused)]

    def _bind(self, state: Unknown | Waiting, event: PlacedHere, node: NodeNow) -> Step:
        """Handle PlacedHere: have the Pod bound."""
        return Binding(event.pod, event.demand), [Bind(event.pod)]

    def _observe_while_binding(self, state: Binding, event: PodSeen, node: NodeNow) -> Step:
        return replace(state, observed=event.observed), []

    def _deleted_while_binding(self, state: Binding, event: PodDeleted, node: NodeNow) -> Step:
        effects: Effects = [DiscardPod()] if event.from_here else []
        return replace(state, deleted=True), effects

    def _on_bound(self, state: Binding, event: BindingWritten, node: NodeNow) -> Step:
        """Handle BindingWritten: the Pod runs here."""
        if state.deleted:
            return UNKNOWN, [FreeRoom(state.demand)]
        active = active_pod(state.pod, state.demand, event.revision, node.now)
        effects: Effects = [FollowVolumes(state.pod)]
        active.unread = state.observed
        self._read_unread(active, effects)
        return self._compare(active, effects, node), effects

    def _not_bound(self, state: Binding, event: BindingRefused, node: NodeNow) -> Step:
        """Handle BindingRefused: free the room."""
        effects: Effects = [FreeRoom(state.demand)]
        if state.deleted:
            return UNKNOWN, effects
        if state.observed is not None:
            # Another scheduler may have bound it, possibly to this node.
            found, more = self._discover(UNKNOWN, PodSeen(state.observed), node)
            return found, effects + more
        if event.retry:
            return Waiting(state.pod), [*effects, SetTimer(node.now + FIRST_RETRY)]
        return UNKNOWN, effects

    # --- while the Pod runs here: facts

    def _observe(self, state: Active, event: PodSeen, node: NodeNow) -> Step:
        """Read a new version of the Pod, unless it is the echo of a write by this node.

        Echoes are recognizable only after all writes in flight are answered, so the version is kept
        until then. A deletion is never an echo, and is handled at once: no container may be started
        after it was seen.
        """
        observed = event.observed
        deleted = state.phase == "running" and _is_deleted_sooner(state, observed)
        if state.in_flight and not deleted:
            state = copy_active(state)
            state.unread = observed
            return state, []
        if not _says_something_new(state, observed):
            return state, []
        state = copy_active(state)
        effects: Effects = []
        state.unread = observed
        self._read_unread(state, effects)
        return state, effects

    def _read_unread(self, state: Active, effects: Effects) -> None:
        """Read the newest version of the Pod that the watch delivered, if it contains anything
        new."""
        observed, state.unread = state.unread, None
        if observed is None or not _says_something_new(state, observed):
            return
        pod = _read(observed, effects)
        if pod is not None:
            resize_rules.read(state, pod, effects)
            state.known_revision = max(state.known_revision, observed.revision)
            effects += [PodChanged(state.pod), _RECONCILE_SOON]

    def _delete_active(self, state: Active, event: PodDeleted, node: NodeNow) -> Step:
        effects: Effects = [EndWork(), FreeRoom(state.demand)]
        if event.from_here:
            effects.append(DiscardPod())
        return UNKNOWN, effects

    def _take_over(self, state: Active, event: Adopted, node: NodeNow) -> Step:
        """Join the runtime's records with the Pod status."""
        state = copy_active(state)
        effects: Effects = []
        self._containers.take_over(state, event, effects, node)
        effects += [RefreshVolumes(), _RECONCILE_SOON]
        return state, effects

    def _apply_hook_result(self, state: Active, event: HookDone, node: NodeNow) -> Step:
        following, effects = copy_active(state), list[PodEffect]()
        if not self._containers.note_hook(following, event, effects):
            return state, []
        effects.append(_RECONCILE_SOON)
        return following, effects

    def _apply_probe(self, state: Active, event: Probed, node: NodeNow) -> Step:
        following = copy_active(state)
        if not self._containers.note_probe(following, event):
            return state, []
        return following, [_RECONCILE_SOON]

    def _resize_decided(self, state: Active, event: ResizeDecided, node: NodeNow) -> Step:
        following, effects = copy_active(state), list[PodEffect]()
        if not resize_rules.decided(following, event, effects, node):
            return state, []
        effects += [PodChanged(following.pod), _RECONCILE_SOON]
        return following, effects

    def _limits_changed(self, state: Active, event: LimitsChanged, node: NodeNow) -> Step:
        following, effects = copy_active(state), list[PodEffect]()
        if not resize_rules.limits_changed(following, event, effects, node):
            return state, []
        effects.append(_RECONCILE_SOON)
        return following, effects

    # --- while the Pod runs here: actions

    def _reconcile(self, state: Active, event: Reconcile, node: NodeNow) -> Step:
        """Handle Reconcile: apply the runtime's events, then execute the plan that follows."""
        state = copy_active(state)
        effects: Effects = []
        for reported in event.events:
            self._containers.note(state, reported, effects, node)
        if state.resize is not None:
            resize_rules.note_ends(state)
        return self._compare(state, effects, node), effects

    def _compare(self, state: Active, effects: Effects, node: NodeNow) -> PodState:
        """Plan, request starts and stops, and report the status."""
        now = node.now
        if now < state.deadline_from:
            state.deadline_from = now
        for name, seen in state.containers.items():
            meant = by_this_clock(seen, now)
            if meant is not seen:
                state.containers = {**state.containers, name: meant}
        plan = self._plan(state, node)
        if plan.restart_all:
            state.containers = {name: rewind(seen) for name, seen in state.containers.items()}
            plan = self._plan(state, node)
        if plan.start or plan.stop:
            self._start_and_stop(state, plan, effects)
        if state.resize is not None and not plan.over:
            resize_rules.act(state, node, effects)
        if plan.backing_off:
            _record_back_offs(state, plan, effects)
        if plan.look_again_at is not None:
            effects.append(SetTimer(plan.look_again_at))
        # The runtime answers a start request in a moment; the status is written then.
        if not _awaits_start(state):
            self._report(state, plan, now)
        _request_write(state, effects)
        if plan.over and not plan.busy:
            state.phase = "finishing"
            if not state.in_flight and not state.unwritten:
                return self._end(state, effects)
        return state

    def _plan(self, state: Active, node: NodeNow) -> PodPlan:
        """Return what should run now."""
        return plan_pod(
            state.pod,
            state.containers,
            node.now,
            state.deadline_from,
            node_leaves=node.leaving,
            at_once=node.at_once,
        )

    def _start_and_stop(self, state: Active, plan: PodPlan, effects: Effects) -> None:
        """Add the effects that start and stop the plan's containers."""
        for start in plan.start:
            container = state.pod.container(start.container)
            assert container is not None, "a plan starts only containers of its Pod"
            self._containers.begin(state, start.container)
            effects.append(StartContainer(state.pod, container, start.attempt))
        for stop in plan.stop:
            attempt = self._containers.stop(state, stop.container, stop.grace_seconds)
            effects.append(StopContainer(state.pod, stop.container, attempt, stop.grace_seconds))

    def _report(self, state: Active, plan: PodPlan, now: datetime) -> None:
        """Compute the status, and mark it as unwritten if it has changed."""
        status = report(
            state.pod,
            state.containers,
            plan,
            now=now,
            started_at=state.started_at,
            facts=self._facts,
            before=state.conditions,
            resize=state.resize,
        )
        if status == state.reported or state.pod.terminal:
            return
        state.reported = status
        state.conditions = {
            **state.conditions,
            **{each.type: each for each in status.conditions if type(each) is ConditionReport},
        }
        state.unwritten = status

    def _write_again(self, state: Active, event: Reconcile, node: NodeNow) -> Step:
        state = copy_active(state)
        effects: Effects = []
        _request_write(state, effects)
        return state, effects

    def _begin_status_write(self, state: Active, event: StatusTaken, node: NodeNow) -> Step:
        """Handle StatusTaken: the unwritten status is in flight."""
        state = copy_active(state)
        state.in_flight, state.unwritten = state.unwritten, None
        state.write_requested = False
        return state, []

    def _status_written(self, state: Active, event: StatusWritten, node: NodeNow) -> Step:
        """Handle StatusWritten: nothing is in flight."""
        state = copy_active(state)
        state.in_flight = None
        state.refusals = 0
        state.known_revision = max(state.known_revision, event.revision)
        effects: Effects = []
        return self._answered(state, effects), effects

    def _status_refused(self, state: Active, event: StatusRefused, node: NodeNow) -> Step:
        """Handle StatusRefused: retry, or give up on a Pod that is gone."""
        state = copy_active(state)
        refused, state.in_flight = state.in_flight, None
        if event.gone:
            # Deleted, or replaced by a Pod of the same name; the watch will deliver that.
            state.known_revision = _NO_MORE_REVISIONS
            message = (
                f"{state.pod.key}: cannot write status, the Pod does not exist: {event.message}"
            )
            effects: Effects = [LogProblem(message)]
            return self._answered(state, effects), effects
        message = f"{state.pod.key}: the API rejected the status, retrying: {event.message}"
        effects = [LogProblem(message)]
        if state.unwritten is None:
            # Until it is stored, the record of finished containers must not be dropped.
            state.unwritten = refused
        effects.append(SetTimer(node.now + retry_delay(state.refusals, MAX_RETRY_DELAY)))
        state.refusals += 1
        self._read_unread(state, effects)
        return state, effects

    def _answered(self, state: Active, effects: Effects) -> PodState:
        """Continue after the result of a write; return the next state."""
        self._read_unread(state, effects)
        _request_write(state, effects)
        if state.phase == "finishing" and not state.unwritten:
            return self._end(state, effects)
        return state

    def _end(self, state: Active, effects: Effects) -> PodState:
        """Release the Pod after its final status is stored."""
        pod = state.pod
        if pod.metadata.deletion_timestamp is not None:
            effects.append(DeletePod(pod.key, pod.metadata))
        effects += [EndWork(), FreeRoom(state.demand), ReleasePod()]
        return Done(state.known_revision)

    # --- after the Pod's end

    def _observe_after_end(self, state: Done, event: PodSeen, node: NodeNow) -> Step:
        if event.observed.revision < state.revision:
            return state, []
        return self._discover(UNKNOWN, event, node)


def _ignore(state: PodState, event: PodEvent, node: NodeNow) -> Step:
    """Handle an event without a rule."""
    return state, []


def is_echo(state: PodState, seen: Pod) -> bool:
    """Return whether the watch delivered only a write of this node, or one without consequences, so
    that no step is needed."""
    if seen.metadata.deletion_timestamp is not None:
        return False
    if type(state) is Active and state.in_flight is None:
        return seen.metadata.revision <= state.known_revision
    # Whatever others write to a Pod that has ended, only its deletion concerns the node.
    return type(state) is Done and seen.terminal


def _request_write(state: Active, effects: Effects) -> None:
    """Request a status write, at most one at a time and none while a status is in flight: its
    answer triggers the next."""
    if state.unwritten and not state.in_flight and not state.write_requested:
        state.write_requested = True
        effects.append(_REQUEST_STATUS_WRITE)


def _read(observed: ObservedPod, effects: Effects) -> NodePod | None:
    """Return the decoded Pod; None, with an effect that logs it, if it cannot be decoded."""
    try:
        return observed.read()
    except ValueError as error:
        effects.append(LogProblem(f"{observed.key}: cannot read the Pod: {error}"))
        return None


def _says_something_new(state: Active, observed: ObservedPod) -> bool:
    """Return whether `observed` is newer than the known revision, or deletes the Pod sooner.

    The answer to a status write may already cover the revision of a deletion, which must not be
    overlooked.
    """
    return observed.revision > state.known_revision or _is_deleted_sooner(state, observed)


def _is_deleted_sooner(state: Active, observed: ObservedPod) -> bool:
    metadata = state.pod.metadata
    return observed.deleting and (
        not metadata.deleting
        or observed.grace_seconds < (metadata.deletion_grace_period_seconds or 0)
    )


def _awaits_start(state: Active) -> bool:
    """Return whether a container is being started, without waiting for resources."""
    for seen in state.containers.values():
        if seen.stage == "starting" and not seen.post_start_began and seen.blocked is None:
            return True
    return False


def _record_back_offs(state: Active, plan: PodPlan, effects: Effects) -> None:
    """Record one BackOff warning per failed attempt, while its restart is delayed."""
    for name in plan.backing_off or ():
        attempt = state.containers[name].attempt
        if state.back_offs.get(name) != attempt:
            state.back_offs = {**state.back_offs, name: attempt}
            meta = state.pod.metadata
            place = f"{meta.name}_{meta.namespace}({meta.uid})"
            message = f"Back-off restarting failed container {name} in pod {place}"
            effects.append(RecordWarning(state.pod, "BackOff", message))
