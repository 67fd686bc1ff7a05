"""Scheduler of one node: binds pending Pods while resources last, and accounts for their use."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.node.agent.capacity import demand_of
from onejob.node.agent.unplaced import PendingPodReporter, Why
from onejob.node.agent.writer import Writer
from onejob.objects.pod_spec import NodePod, NodePodSpec
from onejob.planning.pod.placement import (
    Amounts,
    Candidate,
    Need,
    NodeView,
    SchedulingQueue,
    misfit,
    room_left,
    shortage,
)
from onejob.wire.quantity import InvalidQuantity

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
#: Pods with another `schedulerName` belong to other schedulers.
_OUR_SCHEDULER = "default-scheduler"


class Binder:
    """Queue of pending Pods for one node. Calls `place` with each Pod to bind and the amounts
    reserved for it."""

    def __init__(
        self,
        node: Callable[[], NodeView],
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        place: Callable[[NodePod, Amounts], None],
    ) -> None:
        self._node = node
        self._unplaced = PendingPodReporter(writer, recorder, clock, self._reasons)
        self._place = place
        self._room = SchedulingQueue()
        #: All Pods without a node, by UID, including Pods that do not fit the node in its present
        #: state.
        self._waiting: dict[str, tuple[NodePod, Candidate]] = {}
        self._used: dict[str, int] = {}
        self._due = False
        self._closed = False

    def close(self) -> None:
        """Stop binding Pods: the node is shutting down."""
        self._closed = True
        self._unplaced.close()

    def add(self, pod: NodePod) -> None:
        """Queue a new or changed Pod that has no node."""
        if pod.metadata.deleting or not is_ours_to_place(pod.spec):
            self.drop(pod.uid)
            return
        try:
            candidate = _candidate(pod)
        except InvalidQuantity as error:
            self._unplaced.report(pod, f"0/1 nodes are available: {error}.")
            return
        self._waiting[pod.uid] = (pod, candidate)
        self._enqueue(pod, candidate)
        self.consider_soon()

    @property
    def node(self) -> NodeView:
        return self._node()

    def has_room_now(self, need: Need) -> bool:
        """Return whether a Pod that is about to be created, with this need, can be placed without
        waiting.

        A Pod that cannot is queued after its creation. Priorities only order queued Pods, so that
        an empty queue makes them irrelevant here.
        """
        if self._closed or self._room:
            return False
        allocatable, used = self._node().allocatable, self._used
        # A plain loop takes a third of the time, and it runs for every Pod of a Job.
        for name, amount in need:  # noqa: SIM110
            if used.get(name, 0) + amount > allocatable.get(name, 0):
                return False
        return True

    def drop(self, uid: str) -> None:
        self._room.drop(uid)
        if (waiting := self._waiting.pop(uid, None)) is not None:
            self._unplaced.drop(waiting[0])

    def occupy(self, demand: Amounts) -> None:
        for name, amount in demand.items():
            self._used[name] = self._used.get(name, 0) + amount

    def release(self, demand: Amounts) -> None:
        for name, amount in demand.items():
            self._used[name] -= amount
        self.consider_soon()

    def node_changed(self) -> None:
        """Re-evaluate all pending Pods against the changed node."""
        for pod, candidate in list(self._waiting.values()):
            self._enqueue(pod, candidate)
        self._unplaced.review_soon()
        self.consider_soon()

    def consider_soon(self) -> None:
        if not self._due and self._room:
            self._due = True
            asyncio.get_running_loop().call_soon(self._consider)

    def _consider(self) -> None:
        self._due = False
        if self._closed:
            return
        for candidate in self._room.take(room_left(self._node(), self._used)):
            pod, _ = self._waiting.pop(candidate.uid)
            self._unplaced.drop(pod)
            self._take(pod, candidate.demand)

    def _enqueue(self, pod: NodePod, candidate: Candidate) -> None:
        why = misfit(candidate, self._node())
        if why:
            self._room.drop(pod.uid)
        else:
            self._room.add(candidate)
        self._unplaced.add(pod, why)

    def _reasons(self) -> Why:
        node = self._node()
        free = room_left(node, self._used)

        def why(uid: str) -> str:
            if self._closed or (waiting := self._waiting.get(uid)) is None:
                return ""
            candidate = waiting[1]
            return misfit(candidate, node) or shortage(candidate, free)

        return why

    def _take(self, pod: NodePod, demand: Amounts) -> None:
        self.occupy(demand)
        self._place(pod, demand)


def is_ours_to_place(spec: NodePodSpec) -> bool:
    return not spec.scheduling_gates and spec.scheduler_name == _OUR_SCHEDULER


def _candidate(pod: NodePod) -> Candidate:
    """Return the Pod as a scheduling candidate. Raises InvalidQuantity."""
    created_at = pod.metadata.creation_timestamp or LONG_AGO
    return Candidate(pod.uid, pod.spec, demand_of(pod.spec), created_at)
