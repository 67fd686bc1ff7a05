"""Placement: waiting Pods that a node takes, and messages for Pods that never fit."""

from datetime import timedelta
from typing import Any

import pytest

from onejob.objects.pod_spec import (
    Affinity,
    NodeAffinity,
    NodePodSpec,
    NodeRequirement,
    NodeTerm,
    NodeTerms,
    Toleration,
)
from onejob.planning.pod.placement import (
    Candidate,
    NodeView,
    SchedulingQueue,
    Taint,
    misfit,
    pod_demand,
    room_left,
)
from onejob.virtual_time import NOON

NODE = NodeView(
    "here",
    {"kubernetes.io/hostname": "here", "cores": "8"},
    allocatable={"cpu": 1000, "memory": 100, "pods": 3},
)


def a_candidate(uid: str = "u", age: int = 0, priority: int = 0, **demand: int) -> Candidate:
    spec = NodePodSpec(priority=priority)
    return Candidate(uid, spec, {"pods": 1, **demand}, NOON - timedelta(seconds=age))


def taken(*candidates: Candidate, **used: int) -> list[str]:
    room = SchedulingQueue()
    for candidate in candidates:
        room.add(candidate)
    return [candidate.uid for candidate in room.take(room_left(NODE, used))]


@pytest.mark.parametrize(
    ("candidates", "used", "expected"),
    [
        ([a_candidate("young"), a_candidate("old", age=9)], {}, ["old", "young"]),
        ([a_candidate("old", age=9), a_candidate("vip", priority=1)], {}, ["vip", "old"]),
        ([a_candidate(f"p{n}", age=9 - n) for n in range(5)], {}, ["p0", "p1", "p2"]),
        ([a_candidate("a", cpu=600), a_candidate("b", cpu=600)], {}, ["a"]),
        ([a_candidate("a", cpu=600)], {"cpu": 500}, []),
        ([a_candidate("big", age=9, cpu=900), a_candidate("small", cpu=100)], {"cpu": 200},
         ["small"]),
        ([a_candidate("gpu", **{"example.com/gpu": 1})], {}, []),
    ],
)  # fmt: skip
def test_pods_are_taken_by_priority_and_age_while_there_is_room(
    candidates: list[Candidate], used: dict[str, int], expected: list[str]
) -> None:
    assert taken(*candidates, **used) == expected


def test_one_that_was_dropped_or_changed_is_not_taken_as_it_was() -> None:
    room = SchedulingQueue()
    room.add(a_candidate("a", cpu=900))
    room.add(a_candidate("a", cpu=100))
    room.add(a_candidate("b"))
    room.drop("b")
    assert [c.demand["cpu"] for c in room.take(room_left(NODE, {}))] == [100]
    assert len(room) == 0


def refused(spec: NodePodSpec, node: NodeView = NODE, **demand: int) -> str:
    return misfit(Candidate("u", spec, {"pods": 1, **demand}, NOON), node)


def requiring(*requirements: NodeRequirement, **fields: Any) -> NodePodSpec:
    term = NodeTerm(match_expressions=requirements, **fields)
    required = NodeTerms(node_selector_terms=(term,))
    return NodePodSpec(affinity=Affinity(node_affinity=NodeAffinity(required=required)))


def expression(operator: str, *values: str, key: str = "cores") -> NodeRequirement:
    return NodeRequirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (NodePodSpec(), True),
        (NodePodSpec(node_selector={"kubernetes.io/hostname": "here"}), True),
        (NodePodSpec(node_selector={"kubernetes.io/hostname": "there"}), False),
        (requiring(expression("In", "4", "8")), True),
        (requiring(expression("In", "4")), False),
        (requiring(expression("NotIn", "4")), True),
        (requiring(expression("Exists")), True),
        (requiring(expression("DoesNotExist")), False),
        (requiring(expression("Gt", "7")), True),
        (requiring(expression("Lt", "8")), False),
        (requiring(expression("Lt", "x")), False),
        (requiring(expression("In", "8"), expression("In", "4")), False),
        (requiring(match_fields=(expression("In", "here", key="metadata.name"),)), True),
        (requiring(match_fields=(expression("In", "there", key="metadata.name"),)), False),
        (requiring(), False),
    ],
)
def test_selectors_and_required_affinity_decide_whether_a_pod_may_come(
    spec: NodePodSpec, fits: bool
) -> None:
    why = refused(spec)
    assert (why == "") is fits
    if not fits:
        assert why == (
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        )


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (None, False),
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
    ],
)
def test_untolerated_taint_rejects_pod(toleration: Toleration | None, tolerated: bool) -> None:
    spec = NodePodSpec(tolerations=(toleration,) if toleration else ())
    tainted = NodeView("here", {}, (Taint("k", "v"),), allocatable={"pods": 1})
    assert (refused(spec, tainted) == "") is tolerated


def test_prefer_no_schedule_taint_rejects_no_pod() -> None:
    tainted = NodeView("here", {}, (Taint("k", "v", "PreferNoSchedule"),), False, {"pods": 1})
    assert refused(NodePodSpec(), tainted) == ""


def test_cordoned_node_accepts_only_tolerating_pods() -> None:
    cordoned = NodeView("here", unschedulable=True, allocatable={"pods": 1})
    assert "unschedulable" in refused(NodePodSpec(), cordoned)
    tolerant = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists")
    assert refused(NodePodSpec(tolerations=(tolerant,)), cordoned) == ""


def test_pod_larger_than_node_names_missing_resources() -> None:
    why = refused(NodePodSpec(), cpu=2000, memory=101)
    assert why == "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."


@pytest.mark.parametrize(
    ("containers", "inits", "expected"),
    [
        ([{"cpu": 1}, {"cpu": 2}], [], 3),
        ([{"cpu": 1}], [({"cpu": 5}, False)], 5),
        ([{"cpu": 4}], [({"cpu": 5}, False), ({"cpu": 2}, True)], 6),
        ([{"cpu": 1}], [({"cpu": 2}, True), ({"cpu": 5}, False)], 7),
    ],
)
def test_pod_demand_is_maximum_over_phases(
    containers: list[dict[str, int]], inits: list[tuple[dict[str, int], bool]], expected: int
) -> None:
    assert pod_demand(containers, inits, {})["cpu"] == expected
    assert pod_demand(containers, inits, {"cpu": 10})["cpu"] == expected + 10
