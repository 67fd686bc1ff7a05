"""Scheduler of one node: binds pending Pods while resources last, and accounts for their use."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from onejob.client.events import EventRecorder
from onejob.clock import Clock
from onejob.node.agent.unplaced import PendingPodReporter, Why
from onejob.node.agent.writer import Writer
from onejob.objects.pod_spec import NodePod
from onejob.planning.pod.demand import demand_of
from onejob.planning.pod.placement import (
    LONG_AGO,
    Amounts,
    Candidate,
    NodeView,
    SchedulingQueue,
    misfit,
)
from onejob.planning.pod.room import NodeRoom, is_ours_to_place
from onejob.wire.quantity import InvalidQuantity

if TYPE_CHECKING:
    from onejob.node.agent.claims import ClaimHolds
    from onejob.node.agent.gangs import GangSource


class Binder:
    """Queue of pending Pods for one node. Calls `place` with each Pod to bind and the amounts
    reserved for it."""

    def __init__(
        self,
        node: NodeView,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        place: Callable[[NodePod, Amounts], None],
        gangs: "GangSource | None" = None,
        make_claims: "Callable[[], ClaimHolds] | None" = None,
    ) -> None:
        """`gangs`, with the feature gate GenericWorkload, holds Pods back until their gang fits;
        the result of `make_claims`, called for the first Pod with claims, does until these are
        bound."""
        self._make_claims = make_claims
        self._claims: ClaimHolds | None = None
        #: Waiting Pods that their claims hold back, by UID: only these concern changes of claims.
        self._held_back: set[str] = set()
        self._claims_due = False
        self._unplaced = PendingPodReporter(writer, recorder, clock, self._reasons)
        self._place = place
        self._queue = SchedulingQueue() if gangs is None else gangs.queue
        if gangs is not None:
            gangs.on_change(self._gangs_changed)
        self.room = NodeRoom(node, self._queue, self._released, groups_wait=gangs is not None)
        #: Called whenever amounts of the node become free, or its capacity changes.
        self.on_release: Callable[[], None] = _nothing
        #: All Pods without a node, by UID, including Pods that do not fit the node in its present
        #: state.
        self._waiting: dict[str, tuple[NodePod, Candidate]] = {}
        self._due = False
        self._closed = False

    def close(self) -> None:
        """Stop binding Pods: the node is shutting down."""
        self._closed = True
        if self._claims is not None:
            self._claims.close()
        self.room.close()
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

    def drop(self, uid: str) -> None:
        """Forget a Pod that is not bound."""
        self._queue.drop(uid)
        self._held_back.discard(uid)
        if (waiting := self._waiting.pop(uid, None)) is not None:
            self._unplaced.drop(waiting[0])

    def node_changed(self, node: NodeView) -> None:
        """Re-evaluate all pending Pods against the changed node."""
        self.room.node = node
        for pod, candidate in list(self._waiting.values()):
            self._enqueue(pod, candidate)
        self._unplaced.review_soon()
        self._released()

    def _released(self) -> None:
        self.on_release()
        self.consider_soon()

    def _gangs_changed(self) -> None:
        self._unplaced.review_soon()
        self.consider_soon()

    def _claims_changed(self) -> None:
        """Re-evaluate the Pods that are held back, once for all changes of this moment."""
        if self._held_back and not self._claims_due:
            self._claims_due = True
            asyncio.get_running_loop().call_soon(self._review_held)

    def _review_held(self) -> None:
        self._claims_due = False
        if self._closed:
            return
        for uid in list(self._held_back):
            self._enqueue(*self._waiting[uid])
        self._unplaced.review_soon()
        self.consider_soon()

    def _held(self, pod: NodePod) -> str:
        """Return why the Pod's claims do not let it start; "" if they do."""
        if self._make_claims is None or not pod.spec.claim_volumes:
            return ""
        if self._claims is None:
            self._claims = self._make_claims()
            self._claims.on_change(self._claims_changed)
        reason = self._claims.hold(pod)
        if reason:
            self._held_back.add(pod.uid)
        else:
            self._held_back.discard(pod.uid)
        return reason

    def consider_soon(self) -> None:
        if not self._due and self._queue:
            self._due = True
            asyncio.get_running_loop().call_soon(self._bind_queued)

    def _bind_queued(self) -> None:
        """Bind queued Pods that fit."""
        self._due = False
        if self._closed:
            return
        for candidate in self._queue.take(self.room.left):
            pod, _ = self._waiting[candidate.uid]
            if self._held(pod):
                # Another Pod that was just placed uses its claim.
                continue
            del self._waiting[candidate.uid]
            if self._claims is not None and pod.spec.claim_volumes:
                self._claims.placed(pod)
            self._unplaced.drop(pod)
            self._reserve_and_place(pod, candidate.demand)

    def _enqueue(self, pod: NodePod, candidate: Candidate) -> None:
        """Queue a Pod for room, or report why it never fits the node."""
        why = misfit(candidate, self.room.node)
        if why or self._held(pod):
            self._queue.drop(pod.uid)
        else:
            self._queue.add(candidate)
        self._unplaced.add(pod, why)

    def _reasons(self) -> Why:
        """Return a function that returns why a Pod waits, evaluated for the free resources of now;
        "" for a Pod that does not."""
        node, free = self.room.node, self.room.left

        explain = self._queue.explanation(node, free)

        def why(uid: str) -> str:
            if self._closed or (waiting := self._waiting.get(uid)) is None:
                return ""
            return misfit(waiting[1], node) or self._held(waiting[0]) or explain(waiting[1])

        return why

    def _reserve_and_place(self, pod: NodePod, demand: Amounts) -> None:
        self.room.occupy(demand)
        self._place(pod, demand)


def _nothing() -> None: ...


def _candidate(pod: NodePod) -> Candidate:
    """Return the Pod as a scheduling candidate. Raises InvalidQuantity."""
    created_at = pod.metadata.creation_timestamp or LONG_AGO
    demand = demand_of(pod.spec)
    return Candidate(pod.uid, pod.spec, demand, created_at, pod.metadata.namespace)
