"""Executor of `pod_machine`: holds the state of each Pod, feeds events in, carries effects out.

Events come from the API watch, the runtime, probes, hooks and timers; effects become requests to
them.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from onejob.client import base as client_base
from onejob.client.base import Delete, Patch, Result, Written
from onejob.client.events import EventRecorder, about
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.node.agent.binder import Binder
from onejob.node.agent.limit_changes import LimitChanges
from onejob.node.agent.observed_pod import ObservedPod
from onejob.node.agent.pod_events import (
    Adopted,
    Bind,
    BindingRefused,
    BindingWritten,
    ChangeLimits,
    ConsiderResize,
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
    PodEvent,
    PodSeen,
    Reconcile,
    ReconcileSoon,
    RecordNormal,
    RecordWarning,
    RefreshVolumes,
    ReleasePod,
    RequestStatusWrite,
    RunPostStart,
    SetTimer,
    StartContainer,
    StatusRefused,
    StatusTaken,
    StatusWritten,
    StopContainer,
    TakeRoom,
)
from onejob.node.agent.pod_machine import PodMachine, is_echo
from onejob.node.agent.pod_state import UNKNOWN, Active, Done, NodeNow, PodState
from onejob.node.agent.writer import Writer
from onejob.node.probing.hooks import Hooks
from onejob.node.probing.probes import Prober
from onejob.node.runtime import AttemptRef, RecoveredState, Runtime, RuntimeEvent
from onejob.node.setup.volume_refresh import VolumeRefresh
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.objects.pod_spec import NodePod
from onejob.objects.pod_status import PodPrecondition, PodStatusPatch
from onejob.planning.pod.placement import LONG_AGO, Amounts, NodeView
from onejob.planning.pod.status import NodeFacts
from onejob.wire.errors import ApiError, Conflict, NotFound

if TYPE_CHECKING:
    from onejob.node.agent.claims import ClaimHolds
    from onejob.node.agent.gangs import GangSource

log = logging.getLogger(__name__)

#: Pods reconciled between two yields to the event loop.
_PODS_PER_TURN = 200
#: Phases in which the node is responsible for a Pod whose final status is not written yet.
_BUSY = frozenset({"binding", "running", "finishing"})
_RECONCILE = Reconcile()
_STATUS_TAKEN = StatusTaken()
#: For steps that ignore the time: reading the clock takes as long as the step itself.
_ANY_TIME = NodeNow(LONG_AGO)


class _Startup:
    """Events collected before `begin`: adopting containers needs the complete Pod list and all
    runtime records."""

    def __init__(self) -> None:
        self.pods: dict[str, ObservedPod] = {}
        #: UIDs of Pods that ended here and are kept; usually the majority of all Pods.
        self.ended: set[str] = set()
        self.events: list[RuntimeEvent] = []


class PodDriver:
    """Driver of all Pods on a node: dispatches events to `PodMachine` and executes its effects.

    Guarantees: events before `begin` are collected and processed by it, so that containers of an
    earlier run are adopted rather than started again. Pods are reconciled in batches, with the
    event loop running in between.

    Concurrency: all methods are synchronous and are called on the event loop's thread.
    """

    def __init__(
        self,
        runtime: Runtime,
        writer: Writer,
        recorder: EventRecorder,
        scheduler_recorder: EventRecorder,
        clock: Clock,
        *,
        node_name: str,
        ip: str,
        node: NodeView,
        pods: Informer[Pod],
        gangs: "GangSource | None" = None,
        make_claims: "Callable[[], ClaimHolds] | None" = None,
    ) -> None:
        self._runtime = runtime
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._node_name = node_name
        self._pods = pods
        self._machine = PodMachine(node_name, NodeFacts(runtime.name, ip), runtime.traits)
        self._states: dict[str, PodState] = {}
        self._busy = 0
        self.binder = Binder(
            node, writer, scheduler_recorder, clock, self._place, gangs, make_claims
        )
        self.volumes = VolumeRefresh(runtime, self.warn)
        self._prober = Prober(runtime, clock, self._is_current, self._dispatch, self.warn)
        self._hooks = Hooks(runtime, clock, self.warn)
        self._limit_changes = LimitChanges(
            runtime, self.binder.room, self._states, lambda uid, event: self._dispatch(uid, event)
        )
        self.binder.on_release = self._limit_changes.room_freed
        self._startup: _Startup | None = _Startup()
        #: Pods to reconcile, in this order: by UID, the runtime events to note before.
        self._due: dict[str, list[RuntimeEvent]] = {}
        self._turn_scheduled = False
        #: Above 0 while events are processed or effects executed; no turn is scheduled meanwhile.
        self._depth = 0
        self._timers: list[tuple[float, int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._order = itertools.count()
        #: Set during shutdown; completed when the last Pod has ended.
        self._emptied: asyncio.Future[None] | None = None
        self._at_once = False
        self._carry_out: Mapping[type, Callable[[str, Any], None]] = {
            Bind: self._bind,
            RequestStatusWrite: self._request_status_write,
            DeletePod: self._delete,
            RecordWarning: lambda uid, e: self.warn(e.pod, e.reason, e.message),
            RecordNormal: self._record_normal,
            Enqueue: lambda uid, e: self.binder.add(e.pod),
            Dequeue: lambda uid, e: self.binder.drop(uid),
            TakeRoom: lambda uid, e: self.binder.room.claim(uid, e.demand),
            FreeRoom: lambda uid, e: self.binder.room.release(e.demand),
            ConsiderResize: lambda uid, e: self._limit_changes.consider(uid),
            FollowVolumes: lambda uid, e: self.volumes.follow(e.pod),
            PodChanged: lambda uid, e: self.volumes.pod_changed(e.pod),
            RefreshVolumes: lambda uid, e: self.volumes.refresh(uid),
            StartContainer: lambda uid, e: runtime.launch(e.pod, e.container, e.attempt),
            StopContainer: self._stop_container,
            ChangeLimits: self._limit_changes.change,
            RunPostStart: self._run_post_start,
            ContainerRuns: self._container_runs,
            EndWork: self._end_work,
            ReleasePod: lambda uid, e: runtime.release(uid),
            DiscardPod: lambda uid, e: runtime.discard(uid),
            SetTimer: self._set_timer,
            ReconcileSoon: self._reconcile_soon,
            LogProblem: lambda uid, e: log.warning("%s", e.message),
        }

    # --- start-up and shutdown of the agent

    def begin(self, inherited: RecoveredState) -> None:
        """Match the runtime's records with the API's Pods, once the initial list is complete."""
        startup, self._startup = self._startup or _Startup(), None
        known: dict[str, list[RuntimeEvent]] = {}
        for event in (*inherited.attempts, *startup.events):
            known.setdefault(event.ref.uid, []).append(event)
        ended = startup.ended
        for uid, observed in startup.pods.items():
            self._dispatch(uid, PodSeen(observed))
            if isinstance(self._states.get(uid), Active):
                self._dispatch(uid, Adopted(known.pop(uid, ()), inherited.rebooted))
            elif observed.terminal and observed.node_name == self._node_name:
                ended.add(uid)
        for uid in known:
            if uid in ended:
                # The agent died between the last status and the release; the Pod's logs must stay
                # readable.
                self._runtime.release(uid)
            else:
                self._runtime.discard(uid)
        self.binder.room.open()

    @property
    def has_due_pods(self) -> bool:
        """Return whether any Pod still has to be reconciled."""
        return bool(self._due)

    @property
    def active(self) -> Set[str]:
        """UIDs of Pods that run here, or whose final status is not written yet."""
        return {uid for uid, state in self._states.items() if isinstance(state, Active)}

    def not_on_record(self, uids: Set[str]) -> Set[str]:
        """Return the Pods among `uids` whose newest status is not written yet."""
        found = ((uid, self._states.get(uid)) for uid in uids)
        return {
            uid
            for uid, state in found
            if isinstance(state, Active) and (state.unwritten or state.in_flight)
        }

    @property
    def busy(self) -> int:
        """Number of Pods that are being bound, run, or have an unwritten final status."""
        return self._busy

    def stop_taking(self) -> None:
        """Stop binding Pods and probing containers: the node is shutting down."""
        self.binder.close()
        self._prober.stop()

    def leave(self) -> "asyncio.Future[None]":
        """Begin to terminate all Pods; the returned future completes when the last one has
        ended."""
        self._emptied = asyncio.get_running_loop().create_future()
        self._reconcile_all()
        self._check_emptied()
        return self._emptied

    def longest_grace(self) -> int:
        """Return the longest grace period of a running Pod, in seconds."""
        graces = (
            state.pod.spec.termination_grace_period_seconds
            for state in self._states.values()
            if isinstance(state, Active)
        )
        return max(graces, default=0)

    def kill(self) -> None:
        """Drop the grace period of Pods that are being terminated."""
        self._at_once = True
        if self._emptied is not None:
            self._reconcile_all()

    def close(self) -> None:
        """Cancel hooks, changes of limits and the refresh of volumes; containers are not
        stopped."""
        self._hooks.close()
        self._limit_changes.close()
        self.volumes.close()

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def clock_jumped(self) -> None:
        """Reconcile all Pods that wait for a timer: the wall clock was set."""
        for _, _, uid in self._timers:
            self._schedule_reconcile(uid)
        self._timers.clear()
        self._start_timer(asyncio.get_running_loop())
        self.volumes.clock_jumped()

    def warn(self, pod: NodePod, reason: str, message: str) -> None:
        """Record a Warning Event about the Pod."""
        self._recorder.record(about("v1", "Pod", pod.metadata), "Warning", reason, message)

    def _record_normal(self, uid: str, effect: RecordNormal) -> None:
        what = about("v1", "Pod", effect.pod.metadata)
        self._recorder.record(what, "Normal", effect.reason, effect.message)

    # --- events

    def pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Dispatch changes of Pods to their state machines."""
        node = self._node_now()
        for delta in deltas:
            old, new = delta.old, delta.new
            if new is not None:
                self._on_pod(new, delta.document, node)
            elif old is not None:
                self._on_deleted(old)

    def pods_listed(self, pods: Mapping[Key, Pod]) -> None:
        """Handle a complete list, which does not report Pods deleted before this node saw them."""
        uids = {pod.metadata.uid for pod in pods.values()}
        self.binder.room.cancel_absent(uids, self._pods.cache.listed_revision)

    def _on_pod(self, pod: Pod, document: bytes, node: NodeNow) -> None:
        uid = pod.metadata.uid
        state = self._states.get(uid)
        if state is not None:
            if is_echo(state, pod):
                if type(state) is Done and pod.metadata.revision >= state.revision:
                    del self._states[uid]
                return
        elif (
            pod.spec.node_name not in ("", self._node_name)
            # The most frequent change: other clients' writes to Pods that have ended.
            or (pod.terminal and pod.metadata.deletion_timestamp is None and self._startup is None)
        ):
            self.binder.room.cancel(uid)
            return
        if self._startup is not None:
            self._on_pod_at_startup(self._startup, pod, document)
            return
        self._dispatch(uid, PodSeen(ObservedPod(pod, document)), node)
        if state is None:
            # A no-op for a Pod that this node runs now.
            self.binder.room.cancel(uid)

    def _on_pod_at_startup(self, startup: _Startup, pod: Pod, document: bytes) -> None:
        """Collect a Pod in `startup`, or note that it has ended."""
        uid = pod.metadata.uid
        if not pod.terminal or pod.metadata.deletion_timestamp is not None:
            startup.pods[uid] = ObservedPod(pod, document)
        else:
            startup.pods.pop(uid, None)
            if pod.spec.node_name == self._node_name:
                startup.ended.add(uid)

    def _on_deleted(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self._startup is not None:
            self._startup.pods.pop(uid, None)
            self._startup.ended.discard(uid)
        else:
            self._dispatch(uid, PodDeleted(pod.spec.node_name == self._node_name))
            self.binder.room.cancel(uid)

    def runtime_events(self, events: Sequence[RuntimeEvent]) -> None:
        if self._startup is not None:
            self._startup.events.extend(events)
            return
        due = self._due
        for event in events:
            uid = event.ref.uid
            if uid in due:
                due[uid].append(event)
            else:
                due[uid] = [event]
        if not self._depth:
            self._process_due()

    def _place(self, pod: NodePod, demand: Amounts) -> None:
        """Have a Pod that fits the node bound."""
        self._dispatch(pod.uid, PlacedHere(pod, demand))

    def _is_current(self, ref: AttemptRef) -> bool:
        """Return whether this attempt is running, according to the last events."""
        state = self._states.get(ref.uid)
        if not isinstance(state, Active):
            return False
        seen = state.containers.get(ref.container)
        return seen is not None and seen.attempt == ref.attempt and seen.stage == "running"

    # --- steps

    def _node_now(self) -> NodeNow:
        return NodeNow(self._clock.now(), self._emptied is not None, self._at_once)

    def _dispatch(self, uid: str, event: PodEvent, node: NodeNow | None = None) -> None:
        """Run one step. `node` is shared by events that arrive together, to read the clock once."""
        state = self._states.get(uid, UNKNOWN)
        self._depth += 1
        try:
            following, effects = self._machine.step(state, event, node or self._node_now())
            if following.phase != state.phase:
                self._change_phase(uid, state, following)
            elif following is not state:
                self._states[uid] = following
            for effect in effects:
                self._carry_out[type(effect)](uid, effect)
        except Exception:
            # Isolate Pods: a bug in handling one must not stop the node.
            log.exception("%s: unexpected error, Pod is stuck", uid)
        finally:
            self._depth -= 1
        if self._due and not self._depth:
            self._schedule_turn()

    def _change_phase(self, uid: str, state: PodState, following: PodState) -> None:
        """Replace a Pod's state, or forget a Pod that is done."""
        phase = following.phase
        if phase == "unknown" or (
            type(following) is Done and self._pods.caught_up_to(following.revision)
        ):
            self._states.pop(uid, None)
        else:
            self._states[uid] = following
        change = (phase in _BUSY) - (state.phase in _BUSY)
        if change:
            self._busy += change
            if self._emptied is not None:
                self._check_emptied()

    def _check_emptied(self) -> None:
        if self._emptied is not None and not self._busy and not self._emptied.done():
            self._emptied.set_result(None)

    def _reconcile_all(self) -> None:
        for uid, state in self._states.items():
            if isinstance(state, Active):
                self._schedule_reconcile(uid)

    def _reconcile_soon(self, uid: str, effect: ReconcileSoon) -> None:
        # Effects run within a step; `_dispatch` schedules a turn for due Pods after it.
        self._due.setdefault(uid, [])

    def _schedule_reconcile(self, uid: str) -> None:
        self._due.setdefault(uid, [])
        if not self._depth:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if self._due and not self._turn_scheduled:
            self._turn_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled_turn)

    def _run_scheduled_turn(self) -> None:
        self._turn_scheduled = False
        self._process_due()

    def _process_due(self) -> None:
        """Process due Pods, at most `_PODS_PER_TURN` of them."""
        node = self._node_now()
        self._depth += 1
        for uid in list(itertools.islice(self._due, _PODS_PER_TURN)):
            events = self._due.pop(uid)
            self._dispatch(uid, Reconcile(events) if events else _RECONCILE, node)
        self._depth -= 1
        self._schedule_turn()
        self._runtime.send_starts()

    # --- timers

    def _set_timer(self, uid: str, effect: SetTimer) -> None:
        """Reconcile the Pod again at a time."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max((effect.at - self._clock.now()).total_seconds(), 0)
        entry = (due, next(self._order), uid)
        heapq.heappush(self._timers, entry)
        if self._timers[0] is entry:
            self._start_timer(loop)

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._timers[0][0], self._fire_timers) if self._timers else None

    def _fire_timers(self) -> None:
        loop = asyncio.get_running_loop()
        while self._timers and self._timers[0][0] <= loop.time():
            self._schedule_reconcile(heapq.heappop(self._timers)[2])
        self._start_timer(loop)

    # --- effects

    def _bind(self, uid: str, effect: Bind) -> None:
        """Write the binding, and dispatch its result."""
        pod = effect.pod

        def answered(result: Result) -> None:
            if not isinstance(result, ApiError):
                self._dispatch(uid, BindingWritten(result.revision))
                return
            retry = not isinstance(result, NotFound | Conflict)
            if retry:
                log.warning("%s: cannot bind, retrying: %s", pod.key, result)
            self._dispatch(uid, BindingRefused(retry))

        binding = client_base.Bind(pod.key, self._node_name, uid)
        self._writer.submit(binding, answered, pod.metadata)

    def _request_status_write(self, uid: str, effect: RequestStatusWrite) -> None:
        """Queue the write of the Pod's status, in the version of the moment in which it is sent."""
        state = self._states[uid]
        assert type(state) is Active, "only Pods that run here have a status to write"

        def take() -> Patch | None:
            state = self._states.get(uid)
            if type(state) is not Active or state.unwritten is None:
                # The Pod has been deleted.
                return None
            self._dispatch(uid, _STATUS_TAKEN, _ANY_TIME)
            patch = PodStatusPatch(metadata=PodPrecondition(uid=uid), status=state.unwritten)
            return Patch(state.pod.key, patch, subresource="status")

        def answered(result: Result) -> None:
            if type(result) is Written:
                self._dispatch(uid, StatusWritten(result.revision), _ANY_TIME)
            else:
                gone = isinstance(result, NotFound | Conflict)
                self._dispatch(uid, StatusRefused(str(result), gone))

        self._writer.submit_newest(take, answered, state.pod.metadata)

    def _delete(self, uid: str, effect: DeletePod) -> None:
        """Delete the Pod's object at once; errors are logged."""
        self._writer.submit(Delete(effect.key, grace_seconds=0, uid=uid), _log, effect.metadata)

    def _stop_container(self, uid: str, effect: StopContainer) -> None:
        ref = AttemptRef(uid, effect.container, effect.attempt)
        self._hooks.stop(effect.pod, ref, effect.grace_seconds)

    def _run_post_start(self, uid: str, effect: RunPostStart) -> None:
        """Run the postStart hook, and dispatch its result."""
        name, attempt, started_at = effect.container.name, effect.attempt, effect.started_at

        def done(ok: bool) -> None:
            self._dispatch(uid, HookDone(name, attempt, started_at, ok))

        ref = AttemptRef(uid, name, attempt)
        self._hooks.run_post_start(effect.pod, effect.container, ref, done)

    def _container_runs(self, uid: str, effect: ContainerRuns) -> None:
        self.volumes.container_started(uid)
        self._prober.begin(effect.pod, effect.container, effect.attempt)

    def _end_work(self, uid: str, effect: EndWork) -> None:
        self._prober.forget(uid)
        self._hooks.forget(uid)
        self.volumes.forget(uid)


def _log(result: Result) -> None:
    """Log the error of a write, if it is one."""
    if isinstance(result, ApiError):
        # A Pod that was changed or deleted meanwhile is reconciled anyway.
        expected = isinstance(result, Conflict | NotFound)
        log.log(logging.INFO if expected else logging.WARNING, "%s", result)
