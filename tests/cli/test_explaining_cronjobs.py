"""Explanation why a CronJob starts a Job or none: one row per situation."""

from typing import Any

import pytest

from onejob.diagnosis.cronjobs import explain_cronjob
from onejob.diagnosis.explanation import Explanation
from tests.cli.build import NOON, after, finished, job_document, stamp


def explain(
    *jobs: dict[str, Any],
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    at: float = 0.0,
) -> Explanation:
    document = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {
            "name": "nightly",
            "namespace": "default",
            "uid": "uid-of-nightly",
            "creationTimestamp": stamp(NOON),
            **(metadata or {}),
        },
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {}}, **(spec or {})},
        "status": status or {},
    }
    return explain_cronjob(document, jobs, after(at), local_zone="UTC")


def test_it_waits_for_the_next_time() -> None:
    answer = explain(at=60)
    assert answer.state == "cronjob/nightly is waiting for the next time of its schedule."
    assert answer.cause == ("no time of its schedule is due",)
    assert answer.evidence == (
        "schedule '0 * * * *', in time zone UTC",
        "it has not started any Job yet",
    )
    assert answer.next == ("the next Job is started at 13:00:00 UTC (in 59m00s)",)


def test_suspended_cronjob_explanation_has_missed_slots_and_next_start() -> None:
    writer = {
        "manager": "kubectl-patch",
        "time": "2026-01-01T12:30:00Z",
        "fieldsV1": {"f:spec": {"f:suspend": {}}},
    }
    answer = explain(spec={"suspend": True}, metadata={"managedFields": [writer]}, at=2.5 * 3600)
    assert answer.state == "cronjob/nightly is suspended."
    assert answer.cause == ("spec.suspend is true, set by kubectl-patch at 2026-01-01T12:30:00Z",)
    assert "2 times of its schedule have passed since then without a Job" in answer.evidence
    first, second, third = answer.next
    assert first == "nothing until resumed with onejob resume cronjob/nightly"
    assert second.startswith("then job/nightly-")
    assert second.endswith("is started now for the time 2026-01-01 14:00:00 UTC (30m00s ago)")
    assert third == "then the next Job is started at 15:00:00 UTC (in 30m00s)"


def test_a_time_past_its_deadline_is_missed() -> None:
    answer = explain(spec={"startingDeadlineSeconds": 60, "suspend": True}, at=1.5 * 3600)
    assert "1 time of its schedule has passed since then without a Job" in answer.evidence
    assert answer.next == (
        "nothing until resumed with onejob resume cronjob/nightly",
        "then the next Job is started at 14:00:00 UTC (in 30m00s)",
    )


def test_a_running_job_forbids_the_next() -> None:
    job = job_document("nightly-1", metadata={"uid": "u1"})
    reference = {"kind": "Job", "name": "nightly-1", "namespace": "default", "uid": "u1"}
    answer = explain(
        job,
        spec={"concurrencyPolicy": "Forbid"},
        status={"active": [reference], "lastScheduleTime": stamp(after(3600))},
        at=2 * 3600 + 1,
    )
    assert answer.state == "cronjob/nightly has 1 Job running."
    assert answer.cause[0] == "the previous Job is still running"
    assert "job/nightly-1 is running" in answer.evidence
    assert answer.next == (
        "the next Job is started at 15:00:00 UTC (in 59m59s), unless another one is still "
        "running (concurrencyPolicy Forbid)",
    )


def test_its_last_jobs_are_shown_with_their_ends() -> None:
    jobs = [
        job_document(f"nightly-{n}", status={"startTime": stamp(after(n)), **end})
        for n, end in enumerate(
            (
                finished("Complete", "x"),
                finished("Complete", "x", at=after(10)),
                finished("Failed", "BackoffLimitExceeded", at=after(20)),
                finished("Complete", "x", at=after(30)),
            )
        )
    ]
    assert explain(*jobs, at=40).evidence[-3:] == (
        "job/nightly-1 is Complete, 30s ago",
        "job/nightly-2 is Failed, 20s ago: BackoffLimitExceeded",
        "job/nightly-3 is Complete, 10s ago",
    )


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"schedule": "61 * * * *"}, "unparseable schedule"),
        ({"timeZone": "Mars/Base"}, "invalid timeZone"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_named(spec: dict[str, Any], cause: str) -> None:
    answer = explain(spec=spec)
    assert answer.state == "cronjob/nightly starts no Jobs: its schedule is invalid."
    assert len(answer.cause) == 1
    assert cause in answer.cause[0]
    assert answer.next == ("nothing until spec.schedule or spec.timeZone is corrected",)


def test_many_missed_times_are_not_counted_one_by_one() -> None:
    answer = explain(spec={"schedule": "* * * * *"}, at=200 * 60)
    assert answer.state.startswith("cronjob/nightly is about to start job/nightly-")
    assert any(cause.startswith("TooManyMissedTimes: ") for cause in answer.cause)
    assert (
        "more than 100 times of its schedule have passed since then without a Job"
    ) in answer.evidence


def test_deleted_cronjob_explanation_names_finalizers() -> None:
    metadata = {"deletionTimestamp": stamp(NOON), "finalizers": ["example.org/hold"]}
    answer = explain(metadata=metadata)
    assert answer.state == "cronjob/nightly is being deleted."
    assert answer.cause == ("finalizer example.org/hold prevents the deletion",)
