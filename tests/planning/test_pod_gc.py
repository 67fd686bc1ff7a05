"""Pod GC: which Pods go by force, and in which order."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from onejob.objects.pod import Pod, read_pod
from onejob.planning.pod_gc import (
    Ended,
    Quarantine,
    Removal,
    ended,
    failed_status,
    stranded,
    stuck,
    too_many_ended,
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


def memory_of(*pods: Pod) -> dict[Any, Ended]:
    return {memory.key: memory for memory in map(ended, pods) if memory is not None}


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
    assert (ended(a_pod("p", phase)) is not None) is has_ended


def test_beyond_the_limit_evicted_pods_go_first_then_the_oldest_then_by_name() -> None:
    memory = memory_of(
        a_pod("young", "Succeeded", hour=9),
        a_pod("old-b", "Succeeded", hour=1),
        a_pod("old-a", "Failed", hour=1),
        a_pod("evicted", "Failed", hour=8, reason="Evicted"),
        a_pod("newest", "Failed", hour=10),
        a_pod("running"),
    )
    names = [removal.key.name for removal in too_many_ended(memory, 2)]
    assert names == ["evicted", "old-a", "old-b"]
    assert [removal.reason for removal in too_many_ended(memory, 4)] == ["terminated"]


@pytest.mark.parametrize("limit", [5, 6, 0, -1])
def test_at_the_limit_or_without_one_none_goes(limit: int) -> None:
    memory = memory_of(*(a_pod(f"p{i}", "Succeeded") for i in range(5)))
    assert list(too_many_ended(memory, limit)) == []


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
    removals = stranded([running, other], memory_of(done).values(), frozenset({"gone"}))
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
