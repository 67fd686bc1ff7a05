"""Rows of Pods, and failures grouped by cause."""

import json
from typing import Any

from onejob.dashboard.job_pods import PodView as View
from onejob.dashboard.job_pods import failures_of, newest, pod_indexes, read_pod_view, row_of


def a_pod(name: str, phase: str, *, index: int | None = None, **end: Any) -> View:
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
    if phase == "Running":
        state = {"running": {"startedAt": "2030-01-01T00:00:05Z"}}
    elif phase in ("Succeeded", "Failed"):
        state = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": "2030-01-01T00:00:05Z",
                "finishedAt": "2030-01-01T00:00:09Z",
                **end,
            }
        }
    document = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "annotations": annotations,
        },
        "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]},
    }
    return read_pod_view(json.dumps(document).encode())


def test_the_row_of_a_pod_that_failed() -> None:
    row = row_of(a_pod("p", "Failed", index=4, exitCode=3, reason="Error"))
    assert (row.index, row.exit_code, row.reason) == (4, 3, "Error")
    assert row.started_at is not None
    assert row.ended_at is not None
    assert (row.ended_at - row.started_at).total_seconds() == 4


def test_the_row_of_a_pod_that_waits() -> None:
    row = row_of(a_pod("p", "Pending"))
    assert (row.reason, row.started_at, row.ended_at) == ("ContainerCreating", None, None)


def test_failures_are_grouped_by_their_cause_the_most_frequent_first() -> None:
    pods = [a_pod(f"a{n}", "Failed", exitCode=1, reason="Error") for n in range(7)]
    pods += [a_pod("b", "Failed", exitCode=137, reason="OOMKilled", message="too\n big")]
    pods += [a_pod("c", "Succeeded"), a_pod("d", "Running")]
    first, second = failures_of(pods)
    assert (first.exit_code, first.count, len(first.pods)) == (1, 7, 5)
    assert (second.exit_code, second.reason, second.message) == (137, "OOMKilled", "too big")


def test_a_pod_that_was_deleted_has_a_cause_without_exit_code() -> None:
    text = b'{"metadata":{"name":"p"},"status":{"phase":"Failed","reason":"Evicted"}}'
    (failure,) = failures_of([read_pod_view(text)])
    assert (failure.exit_code, failure.reason) == (None, "Evicted")


def test_indexes_are_grouped_by_pod_state() -> None:
    pods = [a_pod(f"r{n}", "Running", index=n) for n in (0, 1, 2, 7)]
    pods += [a_pod("w", "Pending", index=9), a_pod("s", "Succeeded", index=3)]
    pods += [a_pod(f"f{n}", "Failed", index=n, exitCode=1) for n in (4, 5, 7, 9)]
    found = pod_indexes(pods)
    assert (found.running, found.pending, found.failed) == ("0-2,7", "9", "4,5")


def test_newest_ended_pods_are_selected_by_end_time() -> None:
    pods = [
        a_pod("early", "Failed", exitCode=1, finishedAt="2030-01-01T00:00:06Z"),
        a_pod("late", "Failed", exitCode=1, finishedAt="2030-01-01T00:00:08Z"),
        a_pod("other", "Succeeded"),
    ]
    assert [pod.metadata.name for pod in newest(pods, "Failed", 1)] == ["late"]
