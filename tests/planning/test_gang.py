"""Gang scheduling: all Pods of a PodGroup start together, or none."""

from datetime import UTC, datetime, timedelta

import pytest

from onejob.objects.pod_spec import NodePodSpec, SchedulingGroup
from onejob.planning.pod.gang import Gang, GangQueue, gang_problem, members_to_place
from onejob.planning.pod.placement import Candidate, NodeView

G = ("default", "g")
START = datetime(2026, 1, 1, tzinfo=UTC)


def candidate(
    name: str, cpu: int = 1, *, group: str = "", priority: int = 0, second: int = 0
) -> Candidate:
    spec = NodePodSpec(
        priority=priority, scheduling_group=SchedulingGroup(group) if group else None
    )
    demand = {"cpu": cpu, "pods": 1}
    return Candidate(name, spec, demand, START + timedelta(seconds=second), "default")


def gang(min_count: int | None, waiting: int, *, placed: int = 0, cpu: int = 1) -> Gang:
    return Gang(min_count, placed, [candidate(f"p{i}", cpu, group="g") for i in range(waiting)])


def room(cpu: int, pods: int = 100) -> dict[str, int]:
    return {"cpu": cpu, "pods": pods}


def uids(candidates: list[Candidate]) -> list[str]:
    return [one.uid for one in candidates]


@pytest.mark.parametrize(
    ("it", "free", "placed"),
    [
        (gang(3, 3), room(3), 3),
        (gang(3, 3), room(2), 0),
        (gang(3, 3), room(9, pods=2), 0),
        (gang(3, 2), room(9), 0),
        (gang(2, 4), room(3), 3),
        (gang(2, 4), room(1), 0),
        (gang(3, 1, placed=2), room(1), 1),
        (gang(3, 2, placed=1), room(1), 0),
        (gang(3, 2, placed=3), room(1), 1),
        (gang(0, 3), room(1), 1),
        (gang(None, 3), room(9), 0),
    ],
    ids=lambda value: None,
)
def test_gang_starts_with_its_quorum_or_not_at_all(
    it: Gang, free: dict[str, int], placed: int
) -> None:
    assert len(members_to_place(it, free)) == placed


def test_gang_of_different_sizes_starts_if_a_quorum_of_small_ones_fits() -> None:
    sizes = {"large": 8, "a": 1, "b": 1}
    members = [candidate(name, cpu, group="g") for name, cpu in sizes.items()]
    assert uids(members_to_place(Gang(2, 0, members), room(3))) == ["a", "b"]
    assert members_to_place(Gang(3, 0, members), room(3)) == []


@pytest.mark.parametrize(
    ("it", "free", "text"),
    [
        (gang(None, 1), room(4), 'waiting for the PodGroup "g" to exist'),
        (gang(3, 2), room(4), "needs 3 Pods at once, but only 2 exist that fit the node"),
        (gang(3, 3), room(2), "needs 3 Pods at once, but there is room for 2"),
        (gang(5, 5), room(2), "needs 5 Pods at once, but the node can never run more than 4"),
        (gang(3, 3), room(3), ""),
        (gang(3, 1, placed=3), room(0), ""),
    ],
    ids=lambda value: None,
)
def test_gang_problem_names_what_is_missing(it: Gang, free: dict[str, int], text: str) -> None:
    problem = gang_problem("g", it, free, room(4))
    assert text in problem
    assert bool(problem) is bool(text)


def a_queue(*candidates: Candidate, min_count: int | None = 2) -> GangQueue:
    queue = GangQueue()
    if min_count is not None:
        queue.set_groups({G: min_count})
    for one in candidates:
        queue.add(one)
    return queue


def test_queue_holds_members_until_the_gang_is_complete() -> None:
    queue = a_queue(candidate("a", group="g"))
    assert queue.take(room(9)) == []
    assert len(queue) == 1
    assert "a" in queue
    queue.add(candidate("b", group="g", second=1))
    assert uids(queue.take(room(9))) == ["a", "b"]
    assert len(queue) == 0


def test_queue_gives_a_replacement_room_without_a_second_quorum() -> None:
    queue = a_queue(candidate("a", group="g"), candidate("b", group="g"))
    assert len(queue.take(room(2))) == 2
    queue.add(candidate("c", group="g"))
    assert uids(queue.take(room(1))) == ["c"]


def test_queue_counts_a_deleted_pod_no_longer() -> None:
    queue = a_queue(candidate("a", group="g"), candidate("b", group="g"))
    queue.take(room(2))
    queue.forget_placed(G, "a")
    queue.add(candidate("c", group="g", cpu=5))
    assert queue.take(room(1)) == []


def test_queue_counts_a_pod_whose_binding_failed_as_waiting() -> None:
    queue = a_queue(candidate("a", group="g"), candidate("b", group="g"))
    queue.take(room(2))
    queue.add(candidate("b", group="g"))
    assert queue.take(room(0)) == []
    assert uids(queue.take(room(1))) == ["b"]


def test_queue_lets_others_pass_a_gang_that_does_not_fit() -> None:
    queue = a_queue(candidate("a", group="g"), candidate("b", group="g"), candidate("single"))
    assert uids(queue.take(room(1))) == ["single"]
    assert len(queue) == 2


def test_queue_serves_pods_of_higher_priority_before_a_gang() -> None:
    first = candidate("first", priority=1, second=9)
    queue = a_queue(candidate("a", group="g"), candidate("b", group="g"), first)
    assert uids(queue.take(room(2))) == ["first"]


def test_queue_completes_an_interrupted_gang_before_anything_else() -> None:
    """A server that dies while it binds a gang leaves some Pods bound."""
    queue = a_queue(candidate("first", priority=9), candidate("b", group="g"))
    queue.note_placed(G, "a")
    assert uids(queue.take(room(1))) == ["b"]


def test_queue_explains_a_member_by_its_gang() -> None:
    queue = a_queue(candidate("a", group="g"))
    node = NodeView("node", allocatable=room(4))
    explain = queue.explanation(node, room(4))
    assert "only 1 exist" in explain(candidate("a", group="g"))
    assert explain(candidate("single", 9)) == "0/1 nodes are available: 1 Insufficient cpu."


def test_queue_places_pods_of_a_basic_group_one_by_one() -> None:
    queue = a_queue(candidate("a", group="g"), candidate("b", group="g"), min_count=0)
    assert len(queue.take(room(1))) == 1
