"""Events, metrics and notes of a sync."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import astuple

from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Event, Increment, Observed, Plan, PodOutcomes
from onejob.planning.job.planner import account
from onejob.planning.job.reporting import (
    pod_create_failed,
    pod_created,
    pod_delete_failed,
    pod_deleted,
)
from tests.planning.build import (
    NOON,
    a_job,
    a_pod,
    an_indexed_job,
    indexed_pods,
    plan,
    some_pods,
    stamp,
    sync,
)

STARTED = {"startTime": stamp(NOON)}
QUIET = Settings(lifecycle_events=False)


def told(increments: Iterable[Increment]) -> dict[str, int]:
    """Return the amounts by label set: `{"PodsFinished Indexed succeeded": 1}`."""
    return {
        " ".join([type(one.labels).__name__, *astuple(one.labels)]): one.amount
        for one in increments
    }


def finish(pods: str, settings: Settings | None = None, **fields: Any) -> list[Event]:
    _, _, settlement = sync(a_job(status=STARTED, **fields), some_pods(pods), settings=settings)
    assert settlement.write is not None
    return list(settlement.write.events)


def test_completion_records_event() -> None:
    assert finish("S", QUIET) == [Event("Normal", "Completed", "Job completed")]
    assert finish("S")[-1] == Event(
        "Normal", "JobFinish", "CompletionsReached: Reached expected number of succeeded pods"
    )


def test_too_many_successes_are_reported_first() -> None:
    reasons = [event.reason for event in finish("S S", QUIET)]
    assert reasons == ["TooManySucceededPods", "Completed"]


def test_failure_event_has_reason() -> None:
    message = "Job has reached the specified backoff limit"
    assert finish("F", backoffLimit=0) == [
        Event("Warning", "BackoffLimitExceeded", message),
        Event("Warning", "JobFinish", f"BackoffLimitExceeded: {message}"),
    ]


def test_start_event_is_recorded_once_and_can_be_disabled() -> None:
    for settings, expected in ((Settings(), ["JobStart"]), (QUIET, [])):
        _, accounting, _ = sync(a_job(), [], settings=settings)
        assert accounting.write is not None
        assert [event.reason for event in accounting.write.events] == expected
    _, accounting, _ = sync(a_job(status=STARTED), [])
    assert accounting.write is not None
    assert accounting.write.events == ()


def test_suspension_change_records_event() -> None:
    _, accounting, _ = sync(a_job(suspend=True), [])
    assert accounting.write is not None
    assert accounting.write.events == (Event("Normal", "Suspended", "Job suspended"),)


def test_unknown_completion_mode_records_event_and_is_not_synced() -> None:
    planned = plan(a_job(completionMode="Sideways"), some_pods("R"))
    assert planned.skipped is not None
    (event,) = planned.events
    assert (event.type, event.reason) == ("Warning", "UnknownCompletionMode")


def test_texts_about_single_pods() -> None:
    assert pod_created("p") == Event("Normal", "SuccessfulCreate", "Created pod: p")
    assert pod_create_failed("e") == Event("Warning", "FailedCreate", "Error creating: e")
    assert pod_deleted("p") == Event("Normal", "SuccessfulDelete", "Deleted pod: p")
    assert pod_delete_failed("e") == Event("Warning", "FailedDelete", "Error deleting: e")


def test_metrics_of_a_nonindexed_job_follow_the_counters() -> None:
    _, accounting, settlement = sync(a_job(completions=2, backoffLimit=9), some_pods("S S F"))
    assert accounting.write is not None
    assert accounting.write.metrics == ()
    assert settlement.write is not None
    assert told(settlement.write.metrics) == {
        "PodsFinished NonIndexed succeeded": 2,
        "PodsFinished NonIndexed failed": 1,
        "JobFinished NonIndexed succeeded CompletionsReached": 1,
    }


def test_metrics_of_an_indexed_job_count_indexes_with_the_first_write() -> None:
    job = an_indexed_job(completions=3, parallelism=3, backoffLimitPerIndex=0)
    _, accounting, settlement = sync(job, indexed_pods("0:S 1:F 2:R"))
    assert accounting.write is not None
    assert told(accounting.write.metrics) == {
        "IndexesFinished succeeded perIndex": 1,
        "IndexesFinished failed perIndex": 1,
        "PodsFinished Indexed succeeded": 1,
    }
    assert settlement.write is not None
    assert told(settlement.write.metrics) == {"PodsFinished Indexed failed": 1}


def test_scaling_down_never_takes_a_metric_back() -> None:
    status = {**STARTED, "completedIndexes": "0-4", "succeeded": 5}
    job = an_indexed_job(completions=2, parallelism=2, status=status)
    _, accounting, _ = sync(job, [])
    assert accounting.write is not None
    assert accounting.write.status.succeeded == 2
    assert told(accounting.write.metrics) == {}


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({}, {}, "new"),
        ({}, {"failed": 1}, "recreate_terminating_or_failed"),
        ({"podReplacementPolicy": "Failed"}, {"failed": 1}, "recreate_failed"),
        ({"podReplacementPolicy": "Failed"}, {}, "new"),
    ],
)
def test_creations_are_counted_by_reason_and_result(
    fields: dict[str, Any], status: dict[str, Any], reason: str
) -> None:
    planned = plan(a_job(completions=5, parallelism=3, status=status, **fields), [])
    accounting = account(planned, PodOutcomes(created=2, create_failures=1, error="no"))
    assert told(accounting.metrics) == {
        f"PodCreation {reason} succeeded": 2,
        f"PodCreation {reason} failed": 1,
    }


def test_rulings_of_the_failure_policy_are_counted_once_they_are_stored() -> None:
    rules = [
        {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}
        for code, action in ((1, "Ignore"), (2, "Count"))
    ]
    pods = [a_pod(f"p{code}", "F", exit_code=code) for code in (1, 2, 3)]
    _, accounting, _ = sync(a_job(completions=9, podFailurePolicy={"rules": rules}), pods)
    assert accounting.write is not None
    assert told(accounting.write.metrics) == {
        "FailurePolicyMatch Ignore": 1,
        "FailurePolicyMatch Count": 1,
    }


@pytest.mark.parametrize(
    ("fields", "pods", "observed", "action"),
    [
        ({"backoffLimit": 0}, "F", Observed(), "reconciling"),
        ({}, "R", Observed(), "tracking"),
        ({}, "", Observed(), "pods_created"),
        ({}, "", Observed(backoff=BackoffRecord(1, NOON)), "pods_created"),
        ({"parallelism": 0}, "R", Observed(), "pods_deleted"),
        ({"suspend": True}, "", Observed(), "pods_deleted"),
    ],
)
def test_the_action_a_sync_is_labelled_with(
    fields: dict[str, Any], pods: str, observed: Observed, action: str
) -> None:
    assert plan(a_job(**fields), some_pods(pods), observed=observed).action == action


def kinds(planned: Plan) -> list[str]:
    return [note.kind for note in planned.notes]


def test_notes_name_awaited_condition() -> None:
    assert kinds(plan(a_job(suspend=True), [])) == ["suspended"]
    waiting = plan(a_job(), [], observed=Observed(backoff=BackoffRecord(2, NOON)))
    (note,) = waiting.notes
    assert (note.kind, note.until) == ("backoff", NOON + timedelta(seconds=20))
    assert "2 failures" in note.text


def test_notes_name_waiting_index_and_blocked_replacements() -> None:
    job = an_indexed_job(completions=2, parallelism=1, backoffLimitPerIndex=3, status=STARTED)
    (note,) = plan(job, [a_pod("bad", "F", index=0, ended_at=NOON)]).notes
    assert note.kind == "index-backoff"
    assert note.text.startswith("index 0 waits")
    ending = [a_pod("slow", "R", deleting=True)]
    (note,) = plan(a_job(podReplacementPolicy="Failed"), ending).notes
    assert (note.kind, note.until) == ("waiting-for-pods", None)
    (note,) = plan(a_job(parallelism=0), []).notes
    assert note.kind == "no-parallelism"


def test_the_earliest_reason_to_look_again_wins() -> None:
    observed = Observed(backoff=BackoffRecord(2, NOON))
    for deadline, expected in ((5, 5), (300, 20)):
        planned = plan(a_job(activeDeadlineSeconds=deadline), [], observed=observed)
        assert planned.look_again_at == NOON + timedelta(seconds=expected)
    assert plan(a_job(), some_pods("R")).look_again_at is None


def test_a_deadline_beyond_the_calendar_is_none() -> None:
    assert plan(a_job(activeDeadlineSeconds=2**62), []).look_again_at is None


def test_notes_name_the_rule_that_matched_and_the_fate() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}
    pods = [a_pod("bad", "F", exit_code=1), a_pod("slow", "R", deleting=True)]
    planned = plan(a_job(podFailurePolicy={"rules": [rule]}), pods)
    assert kinds(planned) == ["failure-policy", "fate", "waiting-for-pods"]
    assert "Pod bad matched rule 0: FailJob" in planned.notes[0].text
