"""Pods that get this node in the write that creates them, because there is room at once.

What a scheduler would do a moment later is done by the binder as the creation is staged. Nothing
of such a Pod starts before that write is durable; if it is rolled back, the room is free again.
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
from onejob.wire.quantity import BadQuantity

#: Specs whose meaning is remembered: all Pods of a Job have the same.
_REMEMBERED = 256
#: Answers handled before others on the event loop get their turn.
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
        """`taken` is called with each Pod that is staged with this node, the room that it has and
        the revision of that write; `dispatch` once it is known what became of that, and `act`
        after those of which it is known at the same time."""
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
        """From now on Pods are taken: what ran here before is known."""
        self._open = True

    def find_place(self, spec: bytes) -> "PlaceHere | None":
        """Implements `client.local.Placer`."""
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
        """Report which creations became durable, until cancelled."""
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
                # Most were staged together: of these only the first has to wait.
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
        """None for a Pod that is for others to place, or not yet."""
        try:
            spec = read_node_pod_spec(text)
            demand = demand_of(spec)
        except (ValueError, BadQuantity):
            # Reported once the Pod is there.
            return None
        if spec.node_name or not is_ours_to_place(spec):
            return None
        return PlaceHere(self._node_name, spec, demand, self._taken)

    def _taken(self, pod: NodePod, demand: Amounts, revision: int) -> None:
        self._binder.occupy(demand)
        self._on_taken(pod, demand, revision)


class PlaceHere:
    """Implements `client.local.Place`, for any number of Pods with the same spec."""

    def __init__(
        self,
        node: str,
        spec: NodePodSpec,
        demand: Amounts,
        taken: Taken,
    ) -> None:
        self.node = node
        # None of them has an identity yet, or waits in line.
        self._candidate = Candidate("", spec, demand, LONG_AGO)
        self.need = need_of(self._candidate)
        #: As it was when it was found to suit: a node that changes is another object.
        self._suited: NodeView | None = None
        self._spec = msgspec.structs.replace(spec, node_name=node)
        self._taken = taken

    def suits(self, node: NodeView) -> bool:
        """Whether the node, if it were empty, could take such a Pod."""
        if self._suited is not node:
            self._suited = None if misfit(self._candidate, node) else node
        return self._suited is not None

    def take(self, document: bytes, revision: int) -> None:
        self._taken(read_created_pod(document, self._spec), self._candidate.demand, revision)
