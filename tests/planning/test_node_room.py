"""Capacity of a node: admission of new Pods, reservations and their release."""

import msgspec
import pytest

from onejob.planning.pod.placement import NodeView, SchedulingQueue, Taint
from onejob.planning.pod.room import NodeRoom

ONE_POD = {"pods": 1}


class Room(NodeRoom):
    """Node with room for two Pods."""

    def __init__(self) -> None:
        self.queue = SchedulingQueue()
        self.releases = 0
        super().__init__(NodeView("node", allocatable={"pods": 2}), self.queue, self._released)
        self.open()

    def _released(self) -> None:
        self.releases += 1


def spec(**fields: object) -> bytes:
    return msgspec.json.encode({"containers": [{"name": "c", "image": "i"}], **fields})


def test_room_admits_pods_until_it_is_full() -> None:
    room = Room()
    for number in range(2):
        demand = room.demand_if_free(spec())
        assert demand == ONE_POD
        room.reserve(f"u{number}", demand, revision=number)
    assert room.demand_if_free(spec()) is None
    room.cancel("u0")
    assert room.demand_if_free(spec()) == ONE_POD
    assert room.releases == 1


def test_room_that_is_closed_admits_no_pod() -> None:
    room = Room()
    room.close()
    assert room.demand_if_free(spec()) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeName": "another"},
        {"schedulerName": "another"},
        {"schedulingGates": [{"name": "g"}]},
        {"nodeSelector": {"disk": "fast"}},
    ],
)
def test_room_admits_no_pod_that_it_must_not_place(fields: dict[str, object]) -> None:
    assert Room().demand_if_free(spec(**fields)) is None


def test_room_of_a_tainted_node_admits_no_pod_without_toleration() -> None:
    room = Room()
    assert room.demand_if_free(spec()) == ONE_POD
    room.node = msgspec.structs.replace(room.node, taints=(Taint("dedicated"),))
    assert room.demand_if_free(spec()) is None
    assert room.demand_if_free(spec(tolerations=[{"operator": "Exists"}])) == ONE_POD


def test_claim_replaces_the_reservation() -> None:
    room = Room()
    room.reserve("u", ONE_POD, revision=1)
    room.claim("u", ONE_POD)
    assert room.left == {"pods": 1}
    room.cancel("u")
    assert room.left == {"pods": 1}, "a claimed Pod has no reservation"


def test_rollback_cancels_reservations_that_are_not_durable() -> None:
    room = Room()
    room.reserve("durable", ONE_POD, revision=1)
    room.reserve("lost", ONE_POD, revision=2)
    room.cancel_after(1)
    assert room.left == {"pods": 1}
    room.claim("durable", ONE_POD)
    assert room.left == {"pods": 1}


def test_list_cancels_reservations_of_pods_deleted_unseen() -> None:
    room = Room()
    room.reserve("deleted", ONE_POD, revision=1)
    room.reserve("newer than the list", ONE_POD, revision=3)
    room.cancel_absent({"other"}, revision=2)
    assert room.left == {"pods": 1}
