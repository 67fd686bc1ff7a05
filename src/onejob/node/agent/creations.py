"""Binding Pods in the write that creates them, if there is room at once.

The binder does at staging time the work that a scheduler would do a moment later. No container of
such a Pod starts before that write is durable; if the write is rolled back, the reserved resources
are released.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache

import msgspec

from onejob.node.agent.binder import LONG_AGO, Binder, is_ours_to_place
from onejob.node.agent.capacity import demand_of
from onejob.node.agent.pod_events import BindingRefused, BindingWritten, PodEvent
from onejob.objects.pod_spec import NodePod, NodePodSpec, read_created_pod, read_node_pod_spec
from onejob.planning.pod.placement import Amounts, Candidate, NodeView, misfit, need_of
from onejob.wire.errors import ApiError
from onejob.wire.quantity import InvalidQuantity

#: Size of the cache of parsed specs: all Pods of a Job share one.
_REMEMBERED = 256
#: Answers processed between two yields to the event loop.
_ANSWERS_PER_TURN = 100

Taken = Callable[[NodePod, Amounts, int], None]
Dispatch = Callable[[str, PodEvent], None]


class Creations:
    def __init__(
        self,
        node_name: str,
        binder: Binder,
        taken: Taken,
        dispatch: Dispatch,
        act: Callable[[], None],
    ) -> None:
        """Create a placer that is still closed.

        `taken` is called for each Pod staged with this node, with its reserved amounts and the
        revision of the write. `dispatch` is called when that write succeeds or fails, and `act`
        after each batch of such results.
        """
        self._node_name = node_name
        self._binder = binder
        self._on_taken = taken
        self._dispatch = dispatch
        self._act = act
        self._places = lru_cache(maxsize=_REMEMBERED)(self._place)
        self._open = False
        self._staged: list[tuple[str, int]] = []
        self._wake = asyncio.Event()

    def open(self) -> None:
        """Start placing Pods. Call once the Pods of earlier runs are accounted for."""
        self._open = True

    def find_place(self, spec: bytes) -> "PlaceHere | None":
        """Implement `client.local.Placer`: return a place on this node, or None."""
        if not self._open:
            return None
        place = self._places(spec)
        if place is None or not place.suits(self._binder.node):
            return None
        return place if self._binder.has_room_now(place.need) else None

    def await_creation(self, uid: str, revision: int) -> None:
        if not self._staged:
            self._wake.set()
        self._staged.append((uid, revision))

    async def run(self, durable: Callable[[int], Awaitable[None]]) -> None:
        """Dispatch the outcome of staged creations, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._staged:
                staged, self._staged = self._staged, []
                await self._settle(staged, durable)

    async def _settle(
        self, staged: list[tuple[str, int]], durable: Callable[[int], Awaitable[None]]
    ) -> None:
        for number, (uid, revision) in enumerate(staged):
            try:
                # Most creations were staged together: only the first of a batch has to wait.
                await durable(revision)
            except ApiError:
                self._dispatch(uid, BindingRefused(retry=False))
            else:
                self._dispatch(uid, BindingWritten(revision))
            if number % _ANSWERS_PER_TURN == _ANSWERS_PER_TURN - 1:
                self._act()
                await asyncio.sleep(0)
        self._act()

    def _place(self, text: bytes) -> "PlaceHere | None":
        """Return None for a Pod that is bound already, belongs to another scheduler, has scheduling
        gates, or has an invalid spec."""
        try:
            spec = read_node_pod_spec(text)
            demand = demand_of(spec)
        except (ValueError, InvalidQuantity):
            # The binder reports the error once the Pod exists.
            return None
        if spec.node_name or not is_ours_to_place(spec):
            return None
        return PlaceHere(self._node_name, spec, demand, self._taken)

    def _taken(self, pod: NodePod, demand: Amounts, revision: int) -> None:
        self._binder.occupy(demand)
        self._on_taken(pod, demand, revision)


class PlaceHere:
    """Implementation of `client.local.Place` for any number of Pods with the same spec."""

    def __init__(
        self,
        node: str,
        spec: NodePodSpec,
        demand: Amounts,
        taken: Taken,
    ) -> None:
        self.node = node
        # These Pods have no UID and no place in the queue yet.
        self._candidate = Candidate("", spec, demand, LONG_AGO)
        self.need = need_of(self._candidate)
        #: The node view last found suitable; compared by identity, as a changed node is a new
        #: object.
        self._suited: NodeView | None = None
        self._spec = msgspec.structs.replace(spec, node_name=node)
        self._taken = taken

    def suits(self, node: NodeView) -> bool:
        """Return whether the node would fit a Pod of this spec if it were empty."""
        if self._suited is not node:
            self._suited = None if misfit(self._candidate, node) else node
        return self._suited is not None

    def take(self, document: bytes, revision: int) -> None:
        self._taken(read_created_pod(document, self._spec), self._candidate.demand, revision)
