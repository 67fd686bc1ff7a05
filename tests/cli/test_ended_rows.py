"""Table rows of finished runs."""

from typing import Any

import pytest

from onejob.cli.display.describing import describe
from onejob.cli.display.ended_rows import ended_cells
from onejob.cli.kept_runs import Run, RunEnd, RunJob
from tests.cli.build import NOON, after, finished, job_document, pod_document, stamp

END = RunEnd(
    "Lost", after(90), "killed", Run("run", NOON, (RunJob("default", "e", "no such Secret"),))
)
STARTED = {"startTime": stamp(NOON)}


def job_row(name: str = "pi", **status: Any) -> list[Any]:
    document = job_document(name, status={**STARTED, **status})
    columns = ["Name", "Status", "Completions", "Duration", "Age"]
    cells = [name, "Running", "0/1", "7d", "8d"]
    return ended_cells(document, columns, cells, END)


def test_a_job_that_did_not_end_is_lost_and_its_duration_stands() -> None:
    assert job_row() == ["pi", "Lost", "0/1", "90s", "8d"]
    assert job_row("e")[1] == "Blocked"


def test_a_failed_job_keeps_its_status_and_ends_when_it_failed() -> None:
    row = job_row(**finished("Failed", "x", at=after(20)))
    assert (row[1], row[3]) == ("Running", "20s")


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        ("Running", "", ["Lost", "0/1"]),
        ("Pending", "", ["Lost", "0/1"]),
        ("Failed", "Terminated", ["Stopped", "1/1"]),
        ("Failed", "", ["as it was", "1/1"]),
        ("Succeeded", "", ["as it was", "1/1"]),
    ],
)
def test_pods_that_did_not_end_do_not_run(phase: str, reason: str, expected: list[str]) -> None:
    pod = pod_document(phase=phase)
    pod["status"]["reason"] = reason
    assert ended_cells(pod, ["Status", "Ready"], ["as it was", "1/1"], END) == expected


def test_other_objects_are_shown_as_they_are() -> None:
    config = {"kind": "ConfigMap", "metadata": {"name": "x"}}
    assert ended_cells(config, ["Name"], ["x"], END) == ["x"]


def test_describe_shows_lost_job_without_active_pods() -> None:
    job = job_document(status={**STARTED, "active": 2, "ready": 2})
    job["spec"]["template"] = {"spec": {"containers": []}}
    text = "\n".join(describe(job, (), after(3600), END))
    assert "Status:           Lost at Thu, 01 Jan 2026 12:01:30 +0000: killed" in text
    assert "Duration:         90s" in text
    assert "0 Active (0 Ready)" in text
    pod = "\n".join(describe(pod_document(), (), after(3600), END))
    assert "Lost at Thu, 01 Jan 2026 12:01:30 +0000: killed" in pod
