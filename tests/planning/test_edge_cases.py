"""Typical errors of re-implementations, by their numbers in the behavioural specification."""

from datetime import timedelta

import msgspec
import pytest

from onejob.objects.job import Job, UncountedPods
from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.counting import JobPods
from onejob.planning.job.indexes import IndexFormatError, IndexSet, parse_indexes, validate_indexes
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.per_index import failure_count
from onejob.planning.job.plan import Observed, PodOutcomes, PodSeed, RemovalOutcomes
from onejob.planning.job.planner import account, settle
from onejob.planning.job.pod_template import PodFactory, generate_name_with_index
from onejob.planning.job.routing import may_release_finalizer, route_pod_change
from onejob.planning.job.status import status_document
from onejob.planning.names import FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION
from tests.planning.build import (
    JOB_UID,
    NOON,
    a_job,
    a_pod,
    an_indexed_job,
    carried_out,
    indexed_pods,
    plan,
    settled,
    some_pods,
    stamp,
    sync,
)

STARTED = {"startTime": stamp(NOON - timedelta(minutes=5))}
FAILING = {"type": "FailureTarget", "status": "True", "reason": "Why", "message": "Because"}
SUCCEEDING = {"type": "SuccessCriteriaMet", "status": "True", "reason": "Why", "message": "So"}


@pytest.mark.edge_case(7)
def test_parallelism_zero_starts_nothing_and_ends_nothing() -> None:
    planned, accounting, settlement = sync(a_job(parallelism=0, completions=3), [])
    assert planned.creations == ()
    assert accounting.write is not None
    assert accounting.write.status.start_time == NOON
    assert settlement.write is None


@pytest.mark.edge_case(8)
def test_deadline_zero_fails_the_job_before_any_pod() -> None:
    planned, _, settlement = sync(a_job(activeDeadlineSeconds=0), [])
    assert planned.creations == ()
    assert settlement.write is not None
    status = settlement.write.status
    assert [c.type for c in status.conditions] == ["FailureTarget", "Failed"]
    assert status.conditions[1].reason == "DeadlineExceeded"
    assert status.failed == 0


@pytest.mark.edge_case(8)
def test_a_deadline_added_later_counts_the_running_pods_as_failed() -> None:
    job = a_job(completions=2, parallelism=2, activeDeadlineSeconds=60, status=STARTED)
    planned, accounting, settlement = sync(job, some_pods("R R"))
    assert len(planned.deletions) == 2
    assert not any(deletion.remove_finalizer_first for deletion in planned.deletions)
    assert accounting.write is not None
    assert accounting.write.status.uncounted_terminated_pods == UncountedPods(
        failed=("pod-0", "pod-1")
    )
    assert settlement.write is not None
    assert settlement.write.status.failed == 2
    assert not settlement.write.finishes, "the Pods are still ending"


@pytest.mark.edge_case(9)
def test_a_suspended_job_with_nothing_to_do_completes_unstarted() -> None:
    _, _, settlement = sync(a_job(suspend=True, completions=0), [])
    assert settlement.write is not None
    assert settlement.write.finishes
    assert settlement.write.status.start_time is None


@pytest.mark.parametrize("conditions", [[], [{"type": "Suspended", "status": "True"}]])
@pytest.mark.edge_case(9)
def test_a_job_found_done_while_suspended_gets_the_start_time_it_lacks(
    conditions: list[dict[str, str]],
) -> None:
    job = a_job(suspend=True, status={"conditions": conditions})
    _, _, settlement = sync(job, some_pods("S"))
    assert settlement.write is not None
    assert settlement.write.finishes
    assert settlement.write.status.start_time == NOON


@pytest.mark.parametrize("kind", ["SuccessCriteriaMet", "FailureTarget"])
@pytest.mark.edge_case(10)
def test_a_verdict_with_status_false_is_ignored_and_preserved(kind: str) -> None:
    by_hand = {"type": kind, "status": "False", "reason": "Manual", "message": "m"}
    planned, accounting, _ = sync(a_job(status={"conditions": [by_hand]}), some_pods("R"))
    assert planned.fate is None
    assert accounting.write is not None
    (condition,) = accounting.write.status.conditions
    assert (condition.type, condition.status, condition.reason) == (kind, "False", "Manual")


@pytest.mark.parametrize(
    ("limit", "failed", "fails"), [(2, 2, False), (2, 3, True), (0, 0, False), (0, 1, True)]
)
@pytest.mark.edge_case(11)
def test_failed_above_limit_is_strict(limit: int, failed: int, fails: bool) -> None:
    job = a_job(backoffLimit=limit, status={"failed": failed})
    assert (plan(job, []).fate is not None) == fails


@pytest.mark.parametrize(
    ("limit", "restarts", "fails"),
    [(2, 1, False), (2, 2, True), (2, 3, True), (0, 0, False), (0, 1, True)],
)
@pytest.mark.edge_case(11)
def test_restarts_at_limit_fail_and_limit_zero_needs_one(
    limit: int, restarts: int, fails: bool
) -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c"}]}}
    pod = a_pod(status={"containerStatuses": [{"name": "c", "restartCount": restarts}]})
    assert (plan(a_job(backoffLimit=limit, template=template), [pod]).fate is not None) == fails


@pytest.mark.edge_case(11)
def test_restarts_of_init_containers_and_pending_pods_count() -> None:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c"}]}}
    restarted = [{"name": "c", "restartCount": 1}]
    pods = [
        a_pod("a", "P", status={"initContainerStatuses": restarted}),
        a_pod("b", "R", status={"containerStatuses": restarted}),
        a_pod("c", "F", status={"containerStatuses": [{"name": "c", "restartCount": 50}]}),
    ]
    assert plan(a_job(backoffLimit=3, template=template), pods).fate is None
    assert plan(a_job(backoffLimit=2, template=template), pods).fate is not None


def everything_at_once(**without: object) -> dict[str, object]:
    """Return the spec of a Job for which every reason to end holds at the same time."""
    spec: dict[str, object] = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 0,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 0,
        "activeDeadlineSeconds": 1,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            ]
        },
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "status": STARTED,
    }
    return {**spec, **without}


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ({}, "PodFailurePolicy"),
        ({"podFailurePolicy": None}, "BackoffLimitExceeded"),
        ({"podFailurePolicy": None, "backoffLimit": 6}, "DeadlineExceeded"),
        (
            {"podFailurePolicy": None, "backoffLimit": 6, "activeDeadlineSeconds": None},
            "MaxFailedIndexesExceeded",
        ),
        (
            {
                "podFailurePolicy": None,
                "backoffLimit": 6,
                "activeDeadlineSeconds": None,
                "maxFailedIndexes": None,
            },
            "FailedIndexes",
        ),
        (
            {
                "podFailurePolicy": None,
                "backoffLimit": 6,
                "activeDeadlineSeconds": None,
                "maxFailedIndexes": None,
                "backoffLimitPerIndex": None,
            },
            "SuccessPolicy",
        ),
        ({"status": {**STARTED, "conditions": [SUCCEEDING]}}, "Why"),
        ({"status": {**STARTED, "conditions": [FAILING]}}, "Why"),
    ],
)
@pytest.mark.edge_case(12)
def test_the_first_reason_wins(without: dict[str, object], reason: str) -> None:
    pods = [a_pod("ok", "S", index=0), a_pod("bad", "F", index=1, exit_code=42)]
    fate = plan(a_job(**everything_at_once(**without)), pods).fate
    assert fate is not None
    assert fate.reason == reason


@pytest.mark.edge_case(13)
def test_no_verdict_while_a_pod_could_not_be_deleted() -> None:
    planned = plan(a_job(backoffLimit=0, parallelism=2, status={"failed": 1}), some_pods("R R"))
    accounting = account(planned, PodOutcomes(deleted=frozenset({"pod-0"}), error="no"))
    assert accounting.fate is None
    assert accounting.write is not None
    assert accounting.write.status.conditions == ()
    assert accounting.write.status.active == 1
    assert accounting.removals == ()
    assert settled(accounting).error == "no"


@pytest.mark.edge_case(13)
def test_a_pod_that_fails_the_job_is_not_counted_before_that_is_on_record() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    job = a_job(parallelism=2, completions=4, podFailurePolicy={"rules": [rule]})
    pods = [a_pod("bad", "F", exit_code=42), a_pod("other", "R"), a_pod("good", "S")]
    accounting = account(plan(job, pods), PodOutcomes(error="no"))
    assert accounting.fate is None
    # Once it is counted it is not evaluated again, and the Job would go on.
    assert [pod.name for pod in accounting.removals] == ["good"]
    assert accounting.write is not None
    assert accounting.write.status.uncounted_terminated_pods == UncountedPods(succeeded=("good",))


@pytest.mark.edge_case(14)
def test_the_terminal_condition_waits_for_terminating_pods() -> None:
    job = a_job(status={"conditions": [FAILING], **STARTED})
    ending = a_pod("slow", "R", deleting=True, tracked=False)
    _, accounting, settlement = sync(job, [ending])
    assert accounting.terminating == 1
    assert settlement.write is None
    _, _, after = sync(job, [])
    assert after.write is not None
    assert after.write.finishes
    assert after.write.status.conditions[-1].type == "Failed"


@pytest.mark.parametrize(("succeeds", "failed"), [(True, 0), (False, 2)])
@pytest.mark.edge_case(15)
def test_pods_stopped_by_failure_count_as_failed_those_by_success_do_not(
    succeeds: bool, failed: int
) -> None:
    verdict = SUCCEEDING if succeeds else FAILING
    job = a_job(parallelism=2, completions=5, status={"conditions": [verdict], **STARTED})
    _, accounting, settlement = sync(job, some_pods("R R"))
    assert len(accounting.removals) == 2
    stored = settlement.write or accounting.write
    assert stored is not None
    assert stored.status.failed == failed


@pytest.mark.edge_case(16)
def test_the_true_active_count_is_reported_while_waiting_in_backoff() -> None:
    job = a_job(parallelism=3, completions=3, status={"active": 2, **STARTED})
    observed = Observed(backoff=BackoffRecord(1, NOON))
    planned, accounting, _ = sync(job, some_pods("R R"), observed=observed)
    assert planned.creations == ()
    assert planned.look_again_at == NOON + timedelta(seconds=10)
    assert (accounting.status.active, accounting.status.ready) == (2, 2)


@pytest.mark.edge_case(17)
def test_a_deleted_pod_is_no_longer_ready_but_terminating() -> None:
    job = a_job(parallelism=1, completions=5, status=STARTED)
    pods = [a_pod("ready", "R"), a_pod("pending", "P", nodeName="")]
    planned, accounting, _ = sync(job, pods)
    assert [deletion.name for deletion in planned.deletions] == ["pending"]
    status = accounting.status
    assert (status.active, status.ready, status.terminating) == (1, 1, 1)


@pytest.mark.edge_case(18)
def test_ready_and_terminating_are_printed_when_zero() -> None:
    _, accounting, _ = sync(a_job(), [])
    assert accounting.write is not None
    document = status_document(accounting.write.status)
    assert document["ready"] == 0
    assert document["terminating"] == 0
    assert "failed" not in document


@pytest.mark.edge_case(20)
def test_a_deleting_new_pod_is_not_active() -> None:
    census = JobPods([a_pod("new", "P", deleting=True)])
    assert not census.active
    assert list(census.ending) == ["new"]


@pytest.mark.edge_case(21)
def test_a_namesake_does_not_get_the_pods_of_the_first() -> None:
    namesake = a_job(metadata={"uid": "another"})

    def no_jobs(namespace: str) -> list[Job]:
        return []

    assert route_pod_change(None, a_pod(), lambda key: namesake, no_jobs).jobs == ()
    assert route_pod_change(None, a_pod(), lambda key: a_job(), no_jobs).jobs == (a_job().key,)


@pytest.mark.edge_case(22)
def test_a_job_just_finished_is_not_synced_again() -> None:
    planned = plan(a_job(), some_pods("S"), observed=Observed(finish_pending=True))
    assert planned.skipped is not None
    assert planned.creations == ()


@pytest.mark.parametrize("left", ["missing", "without finalizer"])
@pytest.mark.edge_case(24)
def test_uids_leave_the_list_when_the_pod_is_gone_or_free(left: str) -> None:
    uncounted = {"failed": ["pod-0"], "succeeded": ["pod-9"]}
    job = a_job(completions=5, status={"uncountedTerminatedPods": uncounted, **STARTED})
    pods = [] if left == "missing" else some_pods("F", tracked=False)
    _, accounting, _ = sync(job, pods)
    assert (accounting.status.failed, accounting.status.succeeded) == (1, 1)
    assert accounting.status.uncounted_terminated_pods == UncountedPods()


@pytest.mark.edge_case(25)
def test_a_pod_listed_as_failed_stays_failed_though_it_succeeds() -> None:
    uncounted = {"failed": ["pod-0"]}
    job = a_job(completions=5, status={"uncountedTerminatedPods": uncounted, **STARTED})
    planned, accounting, settlement = sync(job, some_pods("S"))
    assert planned.ledger.tally.succeeded == 0
    assert accounting.status.uncounted_terminated_pods == UncountedPods(failed=("pod-0",))
    assert settlement.write is not None
    assert (settlement.write.status.failed, settlement.write.status.succeeded) == (1, 0)


@pytest.mark.edge_case(26)
def test_at_the_cap_no_terminal_condition_yet() -> None:
    job = a_job(completions=500, parallelism=1, status=STARTED)
    _, accounting, settlement = sync(job, some_pods(" ".join("S" * 501)))
    assert accounting.capped
    assert len(accounting.removals) == 500
    assert settlement.write is not None
    assert settlement.write.status.uncounted_terminated_pods == UncountedPods()
    assert not settlement.write.finishes


@pytest.mark.edge_case(27)
def test_partial_progress_is_written_before_the_retry() -> None:
    job = a_job(completions=5, status=STARTED)
    accounting = carried_out(plan(job, some_pods("F S")))
    outcomes = RemovalOutcomes(removed=frozenset({"pod-1"}), error="no")
    settlement = settle(accounting, outcomes)
    assert settlement.error == "no"
    assert settlement.write is not None
    status = settlement.write.status
    assert (status.succeeded, status.failed) == (1, 0)
    assert status.uncounted_terminated_pods == UncountedPods(failed=("pod-0",))


@pytest.mark.edge_case(28)
def test_an_indexed_success_needs_one_write_and_no_uid() -> None:
    job = an_indexed_job(completions=5, parallelism=2, status={"active": 1, "ready": 1, **STARTED})
    _, accounting, settlement = sync(job, indexed_pods("0:S 1:R"))
    assert accounting.write is not None
    assert accounting.write.status.completed_indexes == "0"
    assert accounting.write.status.uncounted_terminated_pods == UncountedPods()
    assert settlement.write is None


@pytest.mark.edge_case(29)
def test_two_successes_of_an_index_count_once_and_both_are_freed() -> None:
    job = an_indexed_job(completions=5, parallelism=1, status=STARTED)
    _, accounting, _ = sync(job, indexed_pods("0:S 0:S"))
    assert accounting.status.succeeded == 1
    assert len(accounting.removals) == 2


@pytest.mark.parametrize("index", [None, "-1", "x", " 1", "１", "7"])
@pytest.mark.edge_case(30)
def test_pods_without_valid_index_are_stopped_or_freed_uncounted(
    index: str | None,
) -> None:
    job = an_indexed_job(completions=5, parallelism=1, status=STARTED)
    planned = plan(job, [a_pod("stray", "R", index=index), a_pod("good", "R", index=0)])
    assert [deletion.name for deletion in planned.deletions] == ["stray"]
    for phase in "SF":
        _, accounting, _ = sync(job, [a_pod("stray", phase, index=index)])
        assert [removal.name for removal in accounting.removals] == ["stray"]
        assert (accounting.status.succeeded, accounting.status.failed) == (0, 0)
        assert accounting.status.uncounted_terminated_pods == UncountedPods()


@pytest.mark.edge_case(31)
def test_pairs_print_with_a_comma_and_no_failed_index_is_not_null() -> None:
    assert str(IndexSet([(0, 1)])) == "0,1"
    assert str(IndexSet([(0, 2), (4, 5)])) == "0-2,4,5"
    _, accounting, _ = sync(an_indexed_job(completions=3, backoffLimitPerIndex=1), [])
    assert status_document(accounting.status)["failedIndexes"] == ""
    _, accounting, _ = sync(an_indexed_job(completions=3), [])
    assert "failedIndexes" not in status_document(accounting.status)


@pytest.mark.parametrize("text", [" 1", "1_0", "１", "+1", "1 ", "9" * 5000])
@pytest.mark.edge_case(32)
def test_only_ascii_digits_are_an_index(text: str) -> None:
    assert len(parse_indexes(text, 20)) == 0
    with pytest.raises(IndexFormatError):
        validate_indexes(text, 20)


@pytest.mark.edge_case(33)
def test_deletion_first_and_no_creation_in_the_same_sync() -> None:
    job = an_indexed_job(completions=5, parallelism=3, status=STARTED)
    planned = plan(job, indexed_pods("0:R 0:R"))
    assert len(planned.deletions) == 1
    assert planned.creations == ()


@pytest.mark.edge_case(34)
def test_scale_down_frees_before_it_deletes() -> None:
    planned = plan(a_job(parallelism=1, completions=5, status=STARTED), some_pods("R R R"))
    assert len(planned.deletions) == 2
    assert all(deletion.remove_finalizer_first for deletion in planned.deletions)


@pytest.mark.edge_case(35)
def test_scale_down_prefers_unscheduled_pending_unready_and_young() -> None:
    older = {"creationTimestamp": stamp(NOON - timedelta(hours=1))}
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    pods = [
        a_pod("old", "R", metadata=older),
        a_pod("young", "R"),
        a_pod("unready", "R", status=unready),
        a_pod("pending", "P"),
        a_pod("unscheduled", "P", nodeName=""),
    ]
    order = []
    for parallelism in (4, 3, 2, 1):
        planned = plan(a_job(parallelism=parallelism, completions=9, status=STARTED), pods)
        (gone,) = (deletion.name for deletion in planned.deletions)
        pods = [pod for pod in pods if pod.metadata.name != gone]
        order.append(gone)
    assert order == ["unscheduled", "pending", "unready", "young"]


@pytest.mark.parametrize("parallelism", [1, 5])
@pytest.mark.edge_case(36)
def test_after_its_first_success_a_work_queue_is_left_alone(parallelism: int) -> None:
    job = a_job(completions=None, parallelism=parallelism, status=STARTED)
    planned, _, settlement = sync(job, some_pods("S R R"))
    assert (planned.deletions, planned.creations) == ((), ())
    assert settlement.write is not None
    assert not settlement.write.finishes
    _, _, settlement = sync(job, some_pods("S F"))
    assert settlement.write is not None
    assert settlement.write.finishes


@pytest.mark.edge_case(37)
def test_a_deleting_pod_has_failed_unless_only_failed_pods_are_replaced() -> None:
    pods = [a_pod("going", "R", deleting=True)]
    spec = {"parallelism": 1, "completions": 5, "backoffSeconds": 0, "status": STARTED}
    planned, accounting, _ = sync(a_job(**spec), pods)
    assert len(planned.creations) == 1
    assert accounting.status.uncounted_terminated_pods == UncountedPods(failed=("going",))
    planned, accounting, _ = sync(a_job(**spec, podReplacementPolicy="Failed"), pods)
    assert planned.creations == ()
    assert accounting.removals == ()
    assert accounting.status.uncounted_terminated_pods == UncountedPods()


@pytest.mark.edge_case(37)
def test_under_policy_failed_an_index_that_is_ending_is_not_started_again() -> None:
    job = an_indexed_job(
        completions=3, parallelism=3, podReplacementPolicy="Failed", status=STARTED
    )
    planned = plan(job, [a_pod("going", "R", index=0, deleting=True)])
    assert [seed.index for seed in planned.creations] == [1, 2]


def ignoring(code: int) -> dict[str, object]:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [code]}}
    return {"rules": [rule]}


@pytest.mark.edge_case(39)
def test_an_ignored_failure_is_freed_uncounted_and_still_delays() -> None:
    job = a_job(podFailurePolicy=ignoring(3), backoffLimit=0, status=STARTED)
    pod = a_pod("bad", "F", exit_code=3, ended_at=NOON)
    planned, accounting, settlement = sync(job, [pod])
    assert planned.fate is None
    assert planned.look_again_at == NOON + timedelta(seconds=10)
    assert [removal.name for removal in accounting.removals] == ["bad"]
    assert accounting.status.uncounted_terminated_pods == UncountedPods()
    assert settlement.write is None


@pytest.mark.edge_case(40)
def test_not_in_never_matches_exit_code_zero_nor_what_is_still_running() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}
    job = a_job(podFailurePolicy={"rules": [rule]}, podReplacementPolicy="Failed", status=STARTED)
    assert plan(job, [a_pod("zero", "F", exit_code=0)]).fate is None
    last_state = {"name": "c", "lastState": {"terminated": {"exitCode": 2}}, "state": {}}
    running = a_pod("running", "F", status={"containerStatuses": [last_state]})
    assert plan(job, [running]).fate is None
    assert plan(job, [a_pod("two", "F", exit_code=2)]).fate is not None


@pytest.mark.edge_case(41)
def test_the_verdict_is_written_before_its_evidence_is_freed() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    job = a_job(podFailurePolicy={"rules": [rule]}, status=STARTED)
    _, accounting, _ = sync(job, [a_pod("bad", "F", exit_code=42)])
    assert accounting.write is not None
    (condition,) = accounting.write.status.conditions
    assert condition.type == "FailureTarget"
    assert condition.message == (
        "Container c for pod default/bad failed with exit code 42 matching FailJob rule at index 0"
    )
    assert [removal.name for removal in accounting.removals] == ["bad"]


@pytest.mark.parametrize("deleted_by_hand", [False, True])
@pytest.mark.edge_case(42)
def test_the_last_failed_pod_of_an_idle_index_is_kept_uncounted(
    deleted_by_hand: bool,
) -> None:
    job = an_indexed_job(completions=2, parallelism=1, backoffLimitPerIndex=3, status=STARTED)
    failed = a_pod(
        "bad",
        "F",
        index=0,
        ended_at=NOON,
        deleting=deleted_by_hand,
        annotations={FAILURE_COUNT_ANNOTATION: "1"},
    )
    _, accounting, _ = sync(job, [failed, a_pod("other", "R", index=1)])
    assert accounting.removals == ()
    assert accounting.status.uncounted_terminated_pods == UncountedPods()
    later = plan(job, [failed], now=NOON + timedelta(hours=1))
    assert later.creations == (PodSeed(0, 2, 0),)


@pytest.mark.parametrize("why", ["active", "completed", "failed"])
@pytest.mark.edge_case(43)
def test_failed_pod_of_finished_index_is_counted(why: str) -> None:
    status = {
        **STARTED,
        "completedIndexes": "0" if why == "completed" else "",
        "failedIndexes": "0" if why == "failed" else "",
    }
    job = an_indexed_job(completions=3, parallelism=1, backoffLimitPerIndex=3, status=status)
    pods = [a_pod("bad", "F", index=0), a_pod("new", "R", index=0 if why == "active" else 1)]
    _, accounting, _ = sync(job, pods)
    assert [removal.name for removal in accounting.removals] == ["bad"]
    assert accounting.status.uncounted_terminated_pods == UncountedPods(failed=("bad",))


@pytest.mark.parametrize("text", ["", "-1", "x", "2147483648", "９", " 1", "1" * 5000])
@pytest.mark.edge_case(44)
def test_an_invalid_failure_count_reads_as_zero(text: str) -> None:
    assert failure_count(a_pod(annotations={FAILURE_COUNT_ANNOTATION: text})) == 0


@pytest.mark.edge_case(45)
def test_suspension_records_no_event_without_pods() -> None:
    job = a_job(suspend=True, metadata={"deletionTimestamp": stamp(NOON)}, status=STARTED)
    _, accounting, _ = sync(job, some_pods("R"))
    assert accounting.status.conditions == ()


@pytest.mark.edge_case(45)
def test_resuming_restarts_the_clock() -> None:
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    job = a_job(status={"conditions": [suspended], **STARTED})
    _, accounting, _ = sync(job, [])
    assert accounting.write is not None
    assert accounting.write.status.start_time == NOON
    (condition,) = accounting.write.status.conditions
    assert (condition.status, condition.reason) == ("False", "JobResumed")
    assert [event.reason for event in accounting.write.events] == ["Resumed", "JobStart"]


@pytest.mark.edge_case(45)
def test_a_deadline_that_passed_while_the_job_was_suspended_does_not_end_it() -> None:
    """Its start is still recorded if it was suspended while suspending kept it."""
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    job = a_job(activeDeadlineSeconds=60, status={"conditions": [suspended], **STARTED})
    planned, accounting, _ = sync(job, [])
    assert planned.fate is None
    assert planned.look_again_at == NOON + timedelta(seconds=60)
    assert accounting.status.start_time == NOON


@pytest.mark.edge_case(45)
def test_a_deadline_holds_for_a_deleting_job_that_is_still_called_suspended() -> None:
    """Its status is not changed any more, so it would be resumed forever."""
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    job = a_job(
        activeDeadlineSeconds=60,
        metadata={"deletionTimestamp": stamp(NOON)},
        status={"conditions": [suspended], **STARTED},
    )
    planned, _, _ = sync(job, [])
    assert planned.fate is not None
    assert planned.fate.reason == "DeadlineExceeded"


@pytest.mark.edge_case(45)
def test_a_job_that_ends_as_it_is_resumed_keeps_its_start() -> None:
    """The API accepts another one only together with the end of the suspension."""
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    status = {"conditions": [suspended], "failed": 1, **STARTED}
    job = a_job(backoffLimit=0, activeDeadlineSeconds=60, status=status)
    planned, accounting, _ = sync(job, [])
    assert planned.fate is not None
    assert planned.fate.reason == "BackoffLimitExceeded"
    assert accounting.status.start_time == job.status.start_time


@pytest.mark.edge_case(46)
def test_never_suspended_job_gets_no_resumed_condition() -> None:
    _, accounting, _ = sync(a_job(), [])
    assert accounting.status.conditions == ()


@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.edge_case(47)
def test_suspending_takes_the_start_time(clears: bool) -> None:
    settings = Settings(suspending_clears_start_time=clears)
    _, accounting, _ = sync(a_job(suspend=True, status=STARTED), [], settings=settings)
    assert (accounting.status.start_time is None) == clears


@pytest.mark.edge_case(48)
def test_deleting_job_releases_all_pods_and_counts_only_ended() -> None:
    job = a_job(
        completions=5,
        parallelism=5,
        suspend=True,
        metadata={"deletionTimestamp": stamp(NOON)},
        status=STARTED,
    )
    planned, accounting, settlement = sync(job, some_pods("R S F"))
    assert (planned.creations, planned.deletions) == ((), ())
    assert len(accounting.removals) == 3
    assert settlement.write is not None
    status = settlement.write.status
    assert (status.succeeded, status.failed, status.active) == (1, 1, 1)
    assert status.conditions == ()


@pytest.mark.parametrize(
    ("owner", "job_fields", "frees"),
    [
        ({}, {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, True),
        ({}, {}, False),
        (
            {},
            {
                "managedBy": "acme.io/x",
                "status": {"conditions": [{"type": "Complete", "status": "True"}]},
            },
            False,
        ),
        ({"apiVersion": "acme.io/v1"}, None, False),
        ({"uid": "another"}, {}, True),
        ({}, None, True),
    ],
)
@pytest.mark.edge_case(49)
def test_left_behind_pods_are_freed_with_exceptions(
    owner: dict[str, str], job_fields: dict[str, object] | None, frees: bool
) -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "demo", "uid": JOB_UID}
    pod = a_pod(metadata={"ownerReferences": [{**reference, "controller": True, **owner}]})
    job = None if job_fields is None else a_job(**job_fields)
    assert may_release_finalizer(pod, lambda key: job, Settings()) == frees


@pytest.mark.edge_case(50)
def test_managed_by_is_tested_in_the_sync() -> None:
    job = a_job(managedBy="acme.io/queue", suspend=True)
    planned = plan(job, some_pods("R S"))
    assert planned.skipped is not None
    assert planned.skipped.kind == "managed-elsewhere"
    assert "acme.io/queue" in planned.skipped.text
    assert (planned.events, planned.deletions, planned.prunings) == ((), (), ())
    ours = plan(job, [], settings=Settings(manager="acme.io/queue"))
    assert ours.skipped is None
    gate_off = plan(job, [], settings=Settings(respect_managed_by=False))
    assert gate_off.skipped is None


@pytest.mark.edge_case(62)
def test_end_is_reported_only_with_final_status_write() -> None:
    planned, accounting, settlement = sync(a_job(status=STARTED), some_pods("S"))
    assert planned.events == ()
    assert accounting.write is not None
    assert accounting.write.events == ()
    assert settlement.write is not None
    assert [event.reason for event in settlement.write.events] == ["Completed", "JobFinish"]


@pytest.mark.edge_case(64)
def test_a_users_index_variable_is_kept_and_long_names_are_cut() -> None:
    mine = {"name": "JOB_COMPLETION_INDEX", "value": "mine"}
    template = {"spec": {"containers": [{"name": "a", "env": [mine]}, {"name": "b"}]}}
    job = an_indexed_job(completions=3, template=template)
    document = msgspec.json.decode(PodFactory(job, Settings()).document(PodSeed(2)))
    first, second = document["spec"]["containers"]
    assert first["env"] == [mine]
    (added,) = second["env"]
    assert added["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INDEX_ANNOTATION}']"
    assert generate_name_with_index("n" * 63, 12345) == "n" * 51 + "-12345-"
    assert len(generate_name_with_index("n" * 63, 12345)) == 58


@pytest.mark.parametrize(
    ("recorded", "completed", "failed"),
    [({}, "0", ""), ({"completedIndexes": "0"}, "0", ""), ({"failedIndexes": "0"}, "", "0")],
    ids=["new", "completed before", "failed before"],
)
def test_an_index_whose_pods_ended_both_ways_is_either_completed_or_failed(
    recorded: dict[str, str], completed: str, failed: str
) -> None:
    """One succeeds while it is being deleted, and its replacement fails.

    A status with both is invalid: the Job could never be written again.
    """
    status = STARTED | {"failedIndexes": ""} | recorded
    job = an_indexed_job(completions=2, parallelism=1, backoffLimitPerIndex=0, status=status)
    _, accounting, settlement = sync(job, indexed_pods("0:S 0:F"))
    last = settlement.write or accounting.write
    assert last is not None
    assert last.status.completed_indexes == completed
    assert last.status.failed_indexes == failed
    assert last.status.succeeded == len(completed)


@pytest.mark.parametrize(("parallelism", "succeeded"), [(1, 1), (0, 3), (2, 3)])
def test_indexes_that_a_job_has_no_more_are_only_uncounted_where_that_may_be_written(
    parallelism: int, succeeded: int
) -> None:
    """The counter may decrease only for an elastic Job, whose parallelism equals its completions.

    It may have been elastic when it was scaled down.
    """
    status = STARTED | {"succeeded": 3, "completedIndexes": "0-2", "conditions": [SUCCEEDING]}
    job = an_indexed_job(completions=1, parallelism=parallelism, status=status)
    _, accounting, settlement = sync(job, [])
    last = settlement.write or accounting.write
    assert last is not None
    assert last.status.completed_indexes == "0"
    assert last.status.succeeded == succeeded
    assert last.finishes
