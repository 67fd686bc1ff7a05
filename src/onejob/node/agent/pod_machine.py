"""One Pod on this node as a state machine: `step(state, event)` gives the next state and effects.

Pure: no clock, no I/O, nothing remembered but in the state. `pod_driver` brings events in, keeps
the states and carries the effects out, in their order. What is next for the containers in a Pod
is decided by `planning.pod`; this module joins their history with what is read and written.

    unknown ──► waiting ──► binding ──► running ──► finishing ──► ended ──► (unknown)
       └────────────────────────────────────┘

Facts change the state and ask for `Reconcile`, which comes once all that has happened by then is
known: a container that started and ended since is reported on once.
"""

from collections.abc import Callable, Mapping
from copy import copy
from datetime import datetime, timedelta
from sys import maxsize
from typing import Any, TypeAlias

from msgspec.structs import replace

from onejob.node.agent.capacity import demand_of
from onejob.node.agent.observed_pod import ObservedPod
from onejob.node.agent.pod_events import (
    Bind,
    BindingRefused,
    BindingWritten,
    ContainerRuns,
    DeletePod,
    Dequeue,
    DiscardPod,
    EndWork,
    Enqueue,
    FollowVolumes,
    FreeRoom,
    HookDone,
    LogProblem,
    PlacedHere,
    PodChanged,
    PodDeleted,
    PodEffect,
    PodEvent,
    PodSeen,
    Probed,
    Reconcile,
    ReconcileSoon,
    RecordWarning,
    RefreshVolumes,
    ReleasePod,
    RunPostStart,
    SetTimer,
    StartContainer,
    StatusRefused,
    StatusWritten,
    StopContainer,
    TakenOver,
    TakeRoom,
    WriteStatus,
)
from onejob.node.agent.pod_history import (
    has_run,
    remembered_containers,
    reported_running,
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
)
from onejob.node.runtime import (
    Ended,
    Lost,
    RuntimeEvent,
    RuntimeTraits,
    StartBlocked,
    Started,
    Warned,
)
from onejob.node.supervisor.pressure import PRESSURES
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.pod import lifecycle
from onejob.planning.pod.lifecycle import (
    UNSEEN,
    Blocked,
    ContainerSeen,
    PodPlan,
    by_this_clock,
    plan_pod,
)
from onejob.planning.pod.status import NodeFacts, report
from onejob.wire.quantity import BadQuantity

#: How long a write that the API refused waits to be tried again, at first and at most.
FIRST_RETRY, LONGEST_RETRY = timedelta(seconds=1), timedelta(minutes=5)
#: Statuses of one Pod that may be on their way at a time. They are tried in order, so the next need
#: not wait for the commit of the one before.
MOST_IN_FLIGHT = 2
#: Later than all that the watch can show of a Pod that is gone, save that it is.
_NO_MORE_REVISIONS = maxsize

Effects: TypeAlias = list[PodEffect]
Step: TypeAlias = tuple[PodState, Effects]
#: The parameters are wider than those of any rule: the table finds one by their types.
_Rule: TypeAlias = Callable[[Any, Any, NodeNow], Step]

_RECONCILE_SOON = ReconcileSoon()


class PodMachine:
    """The rules of one node: its name, what its statuses say of it, and how its runtime is."""

    def __init__(self, node_name: str, facts: NodeFacts, traits: RuntimeTraits) -> None:
        self._node_name = node_name
        self._facts = facts
        self._traits = traits
        self._table = self._rules()

    def step(self, state: PodState, event: PodEvent, node: NodeNow) -> Step:
        """`state` is left as it is. An event that means nothing in a state changes nothing."""
        rule = self._table[state.phase].get(type(event))
        return (state, []) if rule is None else rule(state, event, node)

    def _rules(self) -> Mapping[Phase, Mapping[type, _Rule]]:
        """What happens in which state upon which event; what is not listed is ignored."""
        working: dict[type, _Rule] = {
            PodSeen: self._observe,
            PodDeleted: self._vanish,
            StatusWritten: self._status_written,
            StatusRefused: self._status_refused,
        }
        happened: dict[type, _Rule] = dict.fromkeys(
            (Started, Ended, StartBlocked, Lost, Warned), self._happened
        )
        return {
            "unknown": {
                PodSeen: self._discover,
                PodDeleted: self._forget,
                PlacedHere: self._bind,
            },
            "waiting": {
                PodSeen: self._discover,
                PodDeleted: self._forget,
                PlacedHere: self._bind,
                Reconcile: self._enqueue_again,
            },
            "binding": {
                PodSeen: self._observe_while_binding,
                PodDeleted: self._deleted_while_binding,
                BindingWritten: self._bound,
                BindingRefused: self._not_bound,
            },
            "running": {
                **working,
                **happened,
                TakenOver: self._take_over,
                HookDone: self._hook_done,
                Probed: self._probed,
                Reconcile: self._reconcile,
            },
            "finishing": {**working, Reconcile: self._write_again},
            "ended": {PodSeen: self._observe_after_end, PodDeleted: self._forget},
        }

    # --- before it runs here

    def _discover(self, state: Unknown | Waiting, event: PodSeen, node: NodeNow) -> Step:
        """A Pod that we do not work on."""
        observed = event.observed
        effects: Effects = []
        mine = observed.node_name == self._node_name
        if isinstance(state, Waiting) and (observed.node_name or observed.terminal):
            effects.append(Dequeue())
        if observed.terminal:
            if mine and observed.grace_seconds:
                # It ended while being deleted, and its node died before the last step.
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
        # Bound by somebody else, or by an earlier run of the agent.
        try:
            demand = demand_of(pod.spec)
        except BadQuantity:
            demand = {"pods": 1}
        effects += [TakeRoom(demand), FollowVolumes(pod), _RECONCILE_SOON]
        return active_pod(pod, demand, pod.metadata.revision, node.now), effects

    def _forget(self, state: PodState, event: PodDeleted, node: NodeNow) -> Step:
        effects: Effects = [Dequeue()] if isinstance(state, Waiting) else []
        if event.from_here:
            effects.append(DiscardPod())
        return UNKNOWN, effects

    def _enqueue_again(self, state: Waiting, event: Reconcile, node: NodeNow) -> Step:
        if state.refused is None:
            return state, []
        return WAITING, [Enqueue(state.refused)]

    def _bind(self, state: Unknown | Waiting, event: PlacedHere, node: NodeNow) -> Step:
        return Binding(event.pod, event.demand), [Bind(event.pod)]

    def _observe_while_binding(self, state: Binding, event: PodSeen, node: NodeNow) -> Step:
        return replace(state, observed=event.observed), []

    def _deleted_while_binding(self, state: Binding, event: PodDeleted, node: NodeNow) -> Step:
        effects: Effects = [DiscardPod()] if event.from_here else []
        return replace(state, deleted=True), effects

    def _bound(self, state: Binding, event: BindingWritten, node: NodeNow) -> Step:
        if state.deleted:
            return UNKNOWN, [FreeRoom(state.demand)]
        active = active_pod(state.pod, state.demand, event.revision, node.now)
        effects: Effects = [FollowVolumes(state.pod)]
        active.unread = state.observed
        self._read_unread(active, effects)
        return self._compare(active, effects, node), effects

    def _not_bound(self, state: Binding, event: BindingRefused, node: NodeNow) -> Step:
        effects: Effects = [FreeRoom(state.demand)]
        if state.deleted:
            return UNKNOWN, effects
        if state.observed is not None:
            # Perhaps somebody else bound it, and to this node.
            found, more = self._discover(UNKNOWN, PodSeen(state.observed), node)
            return found, effects + more
        if event.retry:
            return Waiting(state.pod), [*effects, SetTimer(node.now + FIRST_RETRY)]
        return UNKNOWN, effects

    # --- while it runs here: what is learnt

    def _observe(self, state: Active, event: PodSeen, node: NodeNow) -> Step:
        """It is read only if it is not what we just wrote, and that is only known once all that
        is being written is answered. A deletion is none of ours, and nothing may be started after
        it was seen."""
        observed = event.observed
        deleted = state.phase == "running" and _is_deleted_sooner(state, observed)
        if state.in_flight and not deleted:
            state = copy(state)
            state.unread = observed
            return state, []
        if not _says_something_new(state, observed):
            return state, []
        state = copy(state)
        effects: Effects = []
        state.unread = observed
        self._read_unread(state, effects)
        return state, effects

    def _read_unread(self, state: Active, effects: Effects) -> None:
        observed, state.unread = state.unread, None
        if observed is None or not _says_something_new(state, observed):
            return
        pod = _read(observed, effects)
        if pod is not None:
            state.pod = pod
            state.known_revision = max(state.known_revision, observed.revision)
            effects += [PodChanged(pod), _RECONCILE_SOON]

    def _vanish(self, state: Active, event: PodDeleted, node: NodeNow) -> Step:
        effects: Effects = [EndWork(), FreeRoom(state.demand)]
        if event.from_here:
            effects.append(DiscardPod())
        return UNKNOWN, effects

    def _take_over(self, state: Active, event: TakenOver, node: NodeNow) -> Step:
        """Join what the runtime knows with what the API says."""
        state = copy(state)
        effects: Effects = []
        for attempt in sorted(event.attempts, key=lambda attempt: attempt.ref.attempt):
            self._note(state, attempt, effects, node)
        if self._traits.runs_programs and _may_lack_records(state, rebooted=event.rebooted):
            for container in state.pod.spec.containers:
                if container.name not in state.containers:
                    _put(state, container.name, lifecycle.lose(UNSEEN, node.now))
        state.containers = {**remembered_containers(state.pod), **state.containers}
        effects += [RefreshVolumes(), _RECONCILE_SOON]
        return state, effects

    def _happened(self, state: Active, event: RuntimeEvent, node: NodeNow) -> Step:
        state = copy(state)
        effects: Effects = []
        self._note(state, event, effects, node)
        if self._traits.every_status:
            # A Pod that takes no time still is seen to run.
            return self._compare(state, effects, node), effects
        effects.append(_RECONCILE_SOON)
        return state, effects

    def _note(self, state: Active, event: RuntimeEvent, effects: Effects, node: NodeNow) -> None:
        if isinstance(event, Warned):
            effects.append(RecordWarning(state.pod, event.reason, event.message))
            return
        ref = event.ref
        container = state.pod.container(ref.container)
        seen = state.containers.get(ref.container, UNSEEN)
        if container is None or ref.attempt < seen.attempt:
            return
        if ref.attempt > seen.attempt:
            # Learnt from the runtime after a restart of the agent.
            seen = replace(lifecycle.begin(seen), attempt=ref.attempt, quick_restarts=ref.attempt)
        match event:
            case Started():
                self._started(state, container, seen, event, effects)
            case Ended(exit=ended):
                if seen.busy:
                    _put(state, container.name, lifecycle.end(seen, ended))
                    if ended.reason in ("StartError", "ContainerCannotRun"):
                        message = f"Error: {ended.message}"
                        effects.append(RecordWarning(state.pod, "Failed", message))
            case Lost(at=at):
                _put(state, container.name, lifecycle.lose(seen, at))
            case StartBlocked():
                self._blocked(state, seen, event, effects, node)

    def _started(
        self,
        state: Active,
        container: Container,
        seen: ContainerSeen,
        event: Started,
        effects: Effects,
    ) -> None:
        if seen.stage != "starting" or seen.post_start_began:
            return
        if self._has_hook(container) and not reported_running(state.pod, event.ref):
            _put(state, container.name, replace(seen, post_start_began=True))
            attempt = event.ref.attempt
            effects.append(RunPostStart(state.pod, container, attempt, event.at))
        else:
            self._runs(state, container, seen, event.at, effects)

    def _has_hook(self, container: Container) -> bool:
        hooks = container.lifecycle
        return hooks is not None and hooks.post_start is not None and self._traits.runs_programs

    def _runs(
        self,
        state: Active,
        container: Container,
        seen: ContainerSeen,
        since: datetime,
        effects: Effects,
    ) -> None:
        """It has started, and its postStart hook, if any, is done."""
        state.pressures = 0
        running = lifecycle.run(
            seen,
            since,
            has_startup=container.startup_probe is not None,
            has_readiness=container.readiness_probe is not None,
        )
        _put(state, container.name, running)
        effects.append(ContainerRuns(state.pod, container, running.attempt))

    def _blocked(
        self,
        state: Active,
        seen: ContainerSeen,
        event: StartBlocked,
        effects: Effects,
        node: NodeNow,
    ) -> None:
        reason, message = event.reason, event.message
        delay = lifecycle.RETRY_BLOCKED
        if reason in PRESSURES:
            # It may pass at any moment.
            delay = min(_doubled(FIRST_RETRY, state.pressures), delay)
            state.pressures += 1
        blocked = Blocked(reason, message, node.now + delay)
        _put(state, event.ref.container, lifecycle.block(seen, blocked))
        if reason == "ContainerCreating":
            warning = RecordWarning(state.pod, "FailedMount", message)
        elif reason in PRESSURES:
            warning = RecordWarning(state.pod, "NodeUnderPressure", f"{reason}: {message}")
        else:
            warning = RecordWarning(state.pod, "Failed", f"Error: {message}")
        effects.append(warning)

    def _hook_done(self, state: Active, event: HookDone, node: NodeNow) -> Step:
        """The attempt may have ended or been stopped since."""
        seen = state.containers.get(event.container, UNSEEN)
        container = state.pod.container(event.container)
        current = (
            seen.post_start_began and seen.stage == "starting" and seen.attempt == event.attempt
        )
        if container is None or not current:
            return state, []
        state = copy(state)
        effects: Effects = []
        if event.ok:
            self._runs(state, container, seen, event.started_at, effects)
        else:
            _put(state, event.container, replace(seen, unhealthy=True))
        effects.append(_RECONCILE_SOON)
        return state, effects

    def _probed(self, state: Active, event: Probed, node: NodeNow) -> Step:
        seen = state.containers.get(event.container, UNSEEN)
        if seen.stage != "running" or seen.attempt != event.attempt:
            return state, []
        state = copy(state)
        found = replace(
            seen,
            started=seen.started if event.started is None else event.started,
            ready=seen.ready if event.ready is None else event.ready,
            unhealthy=seen.unhealthy if event.unhealthy is None else event.unhealthy,
        )
        _put(state, event.container, found)
        return state, [_RECONCILE_SOON]

    # --- while it runs here: what is done

    def _reconcile(self, state: Active, event: Reconcile, node: NodeNow) -> Step:
        state = copy(state)
        effects: Effects = []
        return self._compare(state, effects, node), effects

    def _compare(self, state: Active, effects: Effects, node: NodeNow) -> PodState:
        """Plan, ask the runtime, report."""
        now = node.now
        state.deadline_from = min(state.deadline_from, now)
        if state.containers:
            state.containers = {
                name: by_this_clock(seen, now) for name, seen in state.containers.items()
            }
        plan = plan_pod(
            state.pod,
            state.containers,
            now,
            state.deadline_from,
            node_leaves=node.leaving,
            at_once=node.at_once,
        )
        self._start_and_stop(state, plan, effects)
        if plan.backing_off:
            _record_back_offs(state, plan, effects)
        if plan.look_again_at is not None:
            effects.append(SetTimer(plan.look_again_at))
        # An attempt that was just asked for is answered in a moment; its status is written then.
        if not any(
            seen.stage == "starting" and not seen.post_start_began
            for seen in state.containers.values()
        ):
            self._report(state, plan, now)
        self._write(state, effects)
        if plan.over and not plan.busy:
            state.phase = "finishing"
            if not state.in_flight:
                return self._end(state, effects)
        return state

    def _start_and_stop(self, state: Active, plan: PodPlan, effects: Effects) -> None:
        for start in plan.start:
            container = state.pod.container(start.container)
            assert container is not None, "a plan starts only containers of its Pod"
            seen = state.containers.get(start.container, UNSEEN)
            _put(state, start.container, lifecycle.begin(seen))
            effects.append(StartContainer(state.pod, container, start.attempt))
        for stop in plan.stop:
            seen = state.containers[stop.container]
            stopping = replace(seen, stopping=True, stop_grace_seconds=stop.grace_seconds)
            _put(state, stop.container, stopping)
            effects.append(
                StopContainer(state.pod, stop.container, seen.attempt, stop.grace_seconds)
            )

    def _report(self, state: Active, plan: PodPlan, now: datetime) -> None:
        status = report(
            state.pod,
            state.containers,
            plan,
            now=now,
            started_at=state.started_at,
            facts=self._facts,
            before=state.conditions,
        )
        if status == state.reported or state.pod.terminal:
            return
        state.reported = status
        state.conditions = {
            **state.conditions,
            **{condition.type: condition for condition in status.conditions},
        }
        if self._traits.every_status:
            state.unwritten = (*state.unwritten, status)
        else:
            state.unwritten = (status,)

    def _write(self, state: Active, effects: Effects) -> None:
        while state.unwritten and len(state.in_flight) < MOST_IN_FLIGHT:
            status, *later = state.unwritten
            state.unwritten = tuple(later)
            state.in_flight = (*state.in_flight, status)
            effects.append(WriteStatus(state.pod, status))

    def _write_again(self, state: Active, event: Reconcile, node: NodeNow) -> Step:
        state = copy(state)
        effects: Effects = []
        self._write(state, effects)
        return state, effects

    def _status_written(self, state: Active, event: StatusWritten, node: NodeNow) -> Step:
        state = copy(state)
        state.in_flight = state.in_flight[1:]
        state.refusals = 0
        state.known_revision = max(state.known_revision, event.revision)
        effects: Effects = []
        return self._answered(state, effects), effects

    def _status_refused(self, state: Active, event: StatusRefused, node: NodeNow) -> Step:
        state = copy(state)
        refused, state.in_flight = state.in_flight[0], state.in_flight[1:]
        if event.gone:
            # Deleted, or replaced by a namesake; the watch will say so.
            state.known_revision = _NO_MORE_REVISIONS
            message = f"{state.pod.key}: there is no Pod for its status: {event.message}"
            effects: Effects = [LogProblem(message)]
            return self._answered(state, effects), effects
        message = f"{state.pod.key}: the API refused its status, trying again: {event.message}"
        effects = [LogProblem(message)]
        if state.in_flight:
            # The next one says more, and would be overtaken by this one.
            return state, effects
        # Until it is on record, nobody may forget what has run.
        if not state.unwritten or self._traits.every_status:
            state.unwritten = (refused, *state.unwritten)
        effects.append(
            SetTimer(node.now + min(_doubled(FIRST_RETRY, state.refusals), LONGEST_RETRY))
        )
        state.refusals += 1
        self._read_unread(state, effects)
        return state, effects

    def _answered(self, state: Active, effects: Effects) -> PodState:
        if not state.in_flight:
            self._read_unread(state, effects)
        self._write(state, effects)
        if state.phase == "finishing" and not state.in_flight:
            return self._end(state, effects)
        return state

    def _end(self, state: Active, effects: Effects) -> PodState:
        """It is over and that is on record."""
        pod = state.pod
        if pod.metadata.deleting:
            effects.append(DeletePod(pod.key, pod.metadata))
        effects += [EndWork(), FreeRoom(state.demand), ReleasePod()]
        return Done(state.known_revision)

    # --- after its end

    def _observe_after_end(self, state: Done, event: PodSeen, node: NodeNow) -> Step:
        if event.observed.revision < state.revision:
            return state, []
        return self._discover(UNKNOWN, event, node)


def _put(state: Active, container: str, seen: ContainerSeen) -> None:
    state.containers = {**state.containers, container: seen}


def _read(observed: ObservedPod, effects: Effects) -> NodePod | None:
    try:
        return observed.read()
    except ValueError as error:
        effects.append(LogProblem(f"{observed.key}: this Pod cannot be read: {error}"))
        return None


def _may_lack_records(state: Active, *, rebooted: bool) -> bool:
    """Whether containers may have run that the runtime does not know. A reboot may take the last
    records with it, and the containers of a Pod begin together."""
    if not state.containers:
        return rebooted or has_run(state.pod)
    return rebooted and any(c.name in state.containers for c in state.pod.spec.containers)


def _says_something_new(state: Active, observed: ObservedPod) -> bool:
    """Our own write shows a deletion that was faster than it, so it must not hide that one."""
    return observed.revision > state.known_revision or _is_deleted_sooner(state, observed)


def _is_deleted_sooner(state: Active, observed: ObservedPod) -> bool:
    metadata = state.pod.metadata
    return observed.deleting and (
        not metadata.deleting
        or observed.grace_seconds < (metadata.deletion_grace_period_seconds or 0)
    )


def _record_back_offs(state: Active, plan: PodPlan, effects: Effects) -> None:
    """Once per attempt that failed, as long as it is waited after it."""
    for name in plan.backing_off or ():
        attempt = state.containers[name].attempt
        if state.back_offs.get(name) != attempt:
            state.back_offs = {**state.back_offs, name: attempt}
            meta = state.pod.metadata
            place = f"{meta.name}_{meta.namespace}({meta.uid})"
            message = f"Back-off restarting failed container {name} in pod {place}"
            effects.append(RecordWarning(state.pod, "BackOff", message))


def _doubled(delay: timedelta, times: int) -> timedelta:
    return delay * (1 << min(times, 16))
