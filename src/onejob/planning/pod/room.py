"""Capacity of one node, shared by its scheduler and by the admission of new Pods."""

from collections.abc import Callable, Container, Sized
from functools import lru_cache
from typing import Final

from onejob.objects.pod_spec import NodePodSpec, read_node_pod_spec
from onejob.planning.pod.demand import demand_of
from onejob.planning.pod.placement import (
    LONG_AGO,
    Amounts,
    Candidate,
    NodeView,
    misfit,
    room_left,
)
from onejob.wire.quantity import InvalidQuantity

#: Pods with another `schedulerName` belong to other schedulers.
OUR_SCHEDULER: Final = "default-scheduler"
#: Number of distinct specs whose demand is cached, and bytes of one: all Pods of a Job share one.
_CACHED_SPECS: Final = 256
_MAX_CACHED_BYTES: Final = 16 * 1024


class NodeRoom:
    """Amounts in use on one node, and reservations for Pods that the node has not seen yet.

    A Pod that fits at once is assigned to the node by the write that creates it. Its amounts are
    reserved until the node sees the Pod and takes them over with `claim`, which happens after the
    write is durable.

    Requirements: the node keeps `node` current, calls `open` once its existing Pods are accounted
    for, and calls `claim` or `cancel` for every Pod that it sees for the first time.
    """

    def __init__(
        self,
        node: NodeView,
        queue: Sized,
        on_release: Callable[[], None],
        *,
        groups_wait: bool = False,
    ) -> None:
        """`queue` contains the Pods that wait for room; new ones must not overtake them.

        `on_release` is called whenever amounts become free. With `groups_wait`, Pods of a PodGroup
        always wait in the queue.
        """
        self._groups_wait = groups_wait
        self.node = node
        self._queue = queue
        self._on_release = on_release
        self._used: dict[str, int] = {}
        self._is_open = False
        #: By UID: revision of the write that creates the Pod, and its amounts.
        self._reserved: dict[str, tuple[int, Amounts]] = {}
        #: The last Pod and node that were found to match; compared by identity.
        self._suited: tuple[Candidate | None, NodeView] = (None, node)
        self._candidates = lru_cache(maxsize=_CACHED_SPECS)(_read_candidate)

    def open(self) -> None:
        """Begin to admit new Pods."""
        self._is_open = True

    def close(self) -> None:
        """Admit no more new Pods: the node is shutting down."""
        self._is_open = False

    def demand_if_free(self, spec: bytes) -> Amounts | None:
        """Return the demand of a new Pod with this spec if it fits now; None if it has to wait.

        Priorities only order waiting Pods: with an empty queue they are irrelevant.
        """
        if not self._is_open or self._queue:
            return None
        read = self._candidates if len(spec) <= _MAX_CACHED_BYTES else _read_candidate
        candidate = read(spec)
        if candidate is None or not self._suits(candidate):
            return None
        allocatable, used = self.node.allocatable, self._used
        for name, amount in candidate.demand.items():
            if amount and used.get(name, 0) + amount > allocatable.get(name, 0):
                return None
        return candidate.demand

    def _suits(self, candidate: Candidate) -> bool:
        """Return whether the Pod may start alone and would fit the node if it were empty."""
        if self._groups_wait and candidate.spec.scheduling_group is not None:
            return False
        if candidate.spec.volumes and candidate.spec.claim_volumes:
            # The scheduler waits until the claims are bound.
            return False
        if self._suited[0] is not candidate or self._suited[1] is not self.node:
            if misfit(candidate, self.node):
                return False
            self._suited = (candidate, self.node)
        return True

    def reserve(self, uid: str, demand: Amounts, revision: int) -> None:
        """Reserve the amounts of a Pod that is created with this node at `revision`."""
        self._reserved[uid] = (revision, demand)
        self.occupy(demand)

    def claim(self, uid: str, demand: Amounts) -> None:
        """Account for a Pod that runs on the node, in place of its reservation if it has one."""
        reserved = self._reserved.pop(uid, None)
        if reserved is None:
            self.occupy(demand)
        elif reserved[1] != demand:
            self.occupy(demand)
            self.release(reserved[1])

    def cancel(self, uid: str) -> None:
        """Release the reservation of a Pod, if there is one."""
        if uid in self._reserved:
            self.release(self._reserved.pop(uid)[1])

    def cancel_after(self, revision: int) -> None:
        """Release the reservations made after `revision`: these writes were rolled back."""
        for uid in [uid for uid, (made_at, _) in self._reserved.items() if made_at > revision]:
            self.cancel(uid)

    def cancel_absent(self, uids: Container[str], revision: int) -> None:
        """Release the reservations made up to `revision` for Pods that are not among `uids`.

        Called with a complete list of Pods at `revision`: the others were deleted unseen.
        """
        for uid in [uid for uid, (made_at, _) in self._reserved.items() if made_at <= revision]:
            if uid not in uids:
                self.cancel(uid)

    def occupy(self, demand: Amounts) -> None:
        """Subtract the demand from the free resources."""
        for name, amount in demand.items():
            self._used[name] = self._used.get(name, 0) + amount

    def release(self, demand: Amounts) -> None:
        """Free the resources of a Pod, and report that."""
        for name, amount in demand.items():
            self._used[name] -= amount
        self._on_release()

    @property
    def used(self) -> Amounts:
        """Return the amounts that Pods hold or have reserved."""
        return self._used

    @property
    def left(self) -> dict[str, int]:
        """Return the free resources."""
        return room_left(self.node, self._used)


def is_ours_to_place(spec: NodePodSpec) -> bool:
    return not spec.scheduling_gates and spec.scheduler_name == OUR_SCHEDULER


def _read_candidate(text: bytes) -> Candidate | None:
    """Return None for a Pod that is bound already, belongs to another scheduler, has scheduling
    gates, or has an invalid spec, which the scheduler reports once the Pod exists."""
    try:
        spec = read_node_pod_spec(text)
        demand = demand_of(spec)
    except (ValueError, InvalidQuantity):
        return None
    if spec.node_name or not is_ours_to_place(spec):
        return None
    return Candidate("", spec, demand, LONG_AGO)
