"""Pod GC: Pods deleted by force, and their order."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.objects.pod import Pod, read_pod
from onejob.planning.pod.gc import (
    EndedPods,
    Quarantine,
    Removal,
    ended,
    failed_status,
    stranded,
    stuck,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_pod(
    name: str,
    phase: str = "Running",
    *,
    node: str = "",
    hour: int = 0,
    deleting: bool = False,
    **status: Any,
) -> Pod:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "n",
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T{hour:02}:00:00Z",
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document = {
        "metadata": metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **status},
    }
    return read_pod(msgspec.json.encode(document))


def memory_of(*pods: Pod) -> EndedPods:
    memory = EndedPods()
    for pod in pods:
        if (end := ended(pod.key, pod, None)) is not None:
            memory.put(end)
    return memory


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
    ],
)
def test_which_phases_are_an_end(phase: str, has_ended: bool) -> None:
    pod = a_pod("p", phase)
    assert (ended(pod.key, pod, None) is not None) is has_ended


def test_ended_pod_record_is_kept_until_end_changes() -> None:
    pod = a_pod("p", "Failed", node="a")
    known = ended(pod.key, pod, None)
    assert known is not None
    assert ended(pod.key, pod, known) is known
    evicted = ended(pod.key, a_pod("p", "Failed", node="a", reason="Evicted"), known)
    assert evicted is not None
    assert evicted.evicted
    moved = ended(pod.key, a_pod("p", "Failed", node="b"), known)
    assert moved is not None
    assert moved.node == "b"
    assert ended(pod.key, a_pod("p", "Failed", node="a", deleting=True), known) is None
    other = msgspec.structs.replace(known, uid="of-a-namesake")
    assert ended(pod.key, pod, other) == known


def test_beyond_the_limit_evicted_pods_go_first_then_the_oldest_then_by_name() -> None:
    memory = memory_of(
        a_pod("young", "Succeeded", hour=9),
        a_pod("old-b", "Succeeded", hour=1),
        a_pod("old-a", "Failed", hour=1),
        a_pod("evicted", "Failed", hour=8, reason="Evicted"),
        a_pod("newest", "Failed", hour=10),
        a_pod("running"),
    )
    names = [removal.key.name for removal in memory.beyond(2)]
    assert names == ["evicted", "old-a", "old-b"]
    assert [removal.reason for removal in memory.beyond(4)] == ["terminated"]


@pytest.mark.parametrize("limit", [5, 6, 0, -1])
def test_at_the_limit_or_without_one_none_goes(limit: int) -> None:
    memory = memory_of(*(a_pod(f"p{i}", "Succeeded") for i in range(5)))
    assert list(memory.beyond(limit)) == []


def test_a_pod_that_is_gone_or_changed_is_no_longer_in_the_way_of_others() -> None:
    memory = memory_of(
        a_pod("gone", "Succeeded", hour=1),
        a_pod("replaced", "Succeeded", hour=2),
        a_pod("replaced", "Succeeded", hour=9),
        a_pod("other", "Succeeded", hour=3),
    )
    memory.drop(a_pod("gone").key)
    memory.drop(a_pod("never was").key)
    assert len(memory) == 2
    assert [removal.key.name for removal in memory.beyond(1)] == ["other"]


def test_pods_may_be_dropped_while_they_are_removed_without_others_taking_their_place() -> None:
    memory = memory_of(*(a_pod(f"p{i}", "Succeeded", hour=i // 2) for i in range(10)))
    names = []
    for removal in memory.beyond(4):
        names.append(removal.key.name)
        memory.drop(removal.key)
        memory.drop(a_pod("p5").key)
    assert names == ["p0", "p1", "p2", "p3", "p4", "p5"]


@pytest.mark.parametrize("seed", range(20))
def test_pods_beyond_limit_are_oldest_first(seed: int) -> None:
    rng = Random(seed)
    pods = [
        a_pod(f"p{rng.randrange(30)}", "Failed", hour=rng.randrange(5), reason=reason)
        for reason in rng.choices(["Evicted", ""], k=40)
    ]
    memory = memory_of(*pods)
    last = {pod.key: pod for pod in pods}.values()
    order = sorted(
        last,
        key=lambda pod: (
            pod.status.reason != "Evicted",
            pod.metadata.creation_timestamp,
            pod.metadata.name,
        ),
    )
    limit = rng.randrange(1, 10)
    expected = [pod.key for pod in order[: len(order) - limit]]
    assert [removal.key for removal in memory.beyond(limit)] == expected


def test_a_deleted_pod_that_no_node_will_report_on_goes_by_force() -> None:
    pods = [
        a_pod("unbound", "Pending", deleting=True),
        a_pod("unbound-alive", "Pending"),
        a_pod("dead-node", node="dead", deleting=True),
        a_pod("dead-node-alive", node="dead"),
        a_pod("fine", node="good", deleting=True),
        a_pod("held", "Failed", node="dead", deleting=True),
    ]
    found = [(r.key.name, r.reason, r.mark_failed) for r in stuck(pods, frozenset({"dead"}))]
    assert found == [
        ("unbound", "unscheduled", True),
        ("dead-node", "out-of-service", True),
        ("held", "out-of-service", False),
    ]


def test_pods_of_a_node_that_is_gone_are_stranded() -> None:
    running, other = a_pod("running", node="gone"), a_pod("other", node="here")
    done = a_pod("done", "Succeeded", node="gone")
    memory = memory_of(done).get(done.key)
    assert memory is not None
    removals = stranded([running, other], [memory], frozenset({"gone"}))
    found = [(r.key.name, r.reason, r.mark_failed) for r in removals]
    assert found == [("running", "orphaned", True), ("done", "orphaned", False)]


def test_a_node_is_given_up_only_after_its_quarantine() -> None:
    quarantine = Quarantine()
    used, here = frozenset({"a", "b"}), frozenset({"b"})
    assert quarantine.over(used, here, 0.0) == frozenset()
    assert quarantine.over(used, here, 39.9) == frozenset()
    assert quarantine.over(used, here, 40.0) == {"a"}
    assert quarantine.over(used, used, 41.0) == frozenset()
    assert quarantine.over(used, here, 42.0) == frozenset()  # it came back: a new count begins
    assert quarantine.over(used, here, 82.0) == {"a"}


def test_a_pod_whose_node_is_gone_fails_with_the_reason_for_policies() -> None:
    orphaned = Removal(a_pod("p").key, "uid-p", "orphaned", mark_failed=True)
    assert msgspec.json.decode(failed_status(orphaned, NOON)) == {
        "metadata": {"uid": "uid-p"},
        "status": {
            "phase": "Failed",
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                }
            ],
        },
    }
    other = Removal(a_pod("p").key, "uid-p", "unscheduled", mark_failed=True)
    assert msgspec.json.decode(failed_status(other, NOON))["status"] == {"phase": "Failed"}
