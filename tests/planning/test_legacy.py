"""Jobs counted by the existing Pods, under the gates of the tracking design's early days."""

from typing import Any

import msgspec
import pytest

from onejob.gates import FeatureGates
from onejob.objects.job import UncountedPods
from onejob.planning.job.legacy import drop_annotation_patch
from onejob.planning.job.operator_settings import Settings, tracks_with_finalizers
from onejob.planning.job.plan import PodOutcomes
from onejob.planning.job.planner import account
from onejob.planning.job.status import with_status
from onejob.planning.names import TRACKING, TRACKING_AS_PROPOSED
from tests.planning.build import a_job, a_pod, an_indexed_job, plan, some_pods, sync

OFF = Settings(track_with_finalizers=False)
BY_ANNOTATION = Settings(tracking_needs_annotation=True)


@pytest.mark.parametrize(
    ("gates", "annotation", "tracked"),
    [
        ({}, None, True),
        ({}, TRACKING, True),
        ({"JobTrackingWithFinalizers": False}, TRACKING, False),
        ({"JobTrackingAnnotation": True}, None, False),
        ({"JobTrackingAnnotation": True}, TRACKING, True),
        ({"JobTrackingAnnotation": True}, TRACKING_AS_PROPOSED, True),
        ({"JobTrackingAnnotation": True, "JobTrackingWithFinalizers": False}, TRACKING, False),
    ],
)
def test_jobs_tracked_with_finalizers(
    gates: dict[str, bool], annotation: str | None, tracked: bool
) -> None:
    job = a_job(metadata={"annotations": {annotation: ""} if annotation else {}})
    assert tracks_with_finalizers(job, Settings.under(FeatureGates(gates))) == tracked


def counted(phases: str, **fields: Any) -> tuple[int, int, int]:
    pods = some_pods(phases, tracked=False)
    _, accounting, _ = sync(a_job(completions=9, **fields), pods, settings=OFF)
    status = accounting.status
    return status.succeeded, status.failed, status.active


def test_counters_are_the_pods_there_are() -> None:
    assert counted("S S F R", parallelism=1) == (2, 1, 1)


def test_a_deleting_pod_has_not_failed() -> None:
    job = a_job(completions=9)
    pods = [a_pod("going", "R", deleting=True)]
    planned, accounting, _ = sync(job, pods, settings=OFF)
    assert accounting.status.failed == 0
    assert len(planned.creations) == 1


def test_pods_with_finalizer_stay_listed() -> None:
    """The next server may track with finalizers: it would count the Pod again."""
    status = {"succeeded": 1, "uncountedTerminatedPods": {"failed": ["x"]}}
    planned, accounting, settlement = sync(
        a_job(completions=9, status=status), some_pods("S F R"), settings=OFF
    )
    assert planned.legacy
    assert {removal.name for removal in accounting.removals} == {"pod-0", "pod-1", "pod-2"}
    assert accounting.write is not None
    written = accounting.write.status
    assert written.uncounted_terminated_pods == UncountedPods(("pod-0",), ("pod-1",))
    assert (written.succeeded, written.failed) == (1, 1), "x is gone, and counted"
    assert settlement.write is not None
    written = settlement.write.status
    assert written.uncounted_terminated_pods is None
    assert (written.succeeded, written.failed) == (2, 2)


def test_uncounted_pods_beyond_the_cap_wait_for_the_next_sync() -> None:
    capped = msgspec.structs.replace(OFF, max_uncounted=3)
    job = a_job(
        completions=9, parallelism=0, status={"uncountedTerminatedPods": {"failed": ["pod-4"]}}
    )
    pods = some_pods("S S F F F R")
    _, accounting, settlement = sync(job, pods, settings=capped)
    written = accounting.status
    assert written.uncounted_terminated_pods == UncountedPods(("pod-0", "pod-1"), ("pod-4",))
    assert (written.succeeded, written.failed) == (0, 0)
    assert {removal.name for removal in accounting.removals} == {"pod-0", "pod-1", "pod-4", "pod-5"}
    assert settlement.write is not None
    settled = settlement.write.status
    assert settled.uncounted_terminated_pods is None
    assert (settled.succeeded, settled.failed) == (2, 1)
    # The next sync: the listed Pods have no finalizer any more.
    left = [
        *some_pods("S S", tracked=False),
        *some_pods("S S F F")[2:],
        *some_pods("S S F F F R", tracked=False)[4:],
    ]
    _, accounting, settlement = sync(with_status(job, settled, "8"), left, settings=capped)
    assert accounting.status.uncounted_terminated_pods == UncountedPods((), ("pod-2", "pod-3"))
    assert settlement.write is not None
    assert (settlement.write.status.succeeded, settlement.write.status.failed) == (2, 3)


def test_uncounted_pods_beyond_the_cap_keep_a_failed_job_from_finishing() -> None:
    capped = msgspec.structs.replace(OFF, max_uncounted=3)
    job = a_job(backoffLimit=0, parallelism=8, completions=8)
    planned, accounting, settlement = sync(job, some_pods("F R R R R R R R"), settings=capped)
    assert len(planned.deletions) == 7
    assert accounting.write is not None
    lists = accounting.write.status.uncounted_terminated_pods
    assert lists is not None
    assert len(lists.failed) == len(accounting.removals) == 3
    assert not accounting.write.finishes
    assert settlement.write is not None
    assert not settlement.write.finishes
    assert settlement.write.status.failed == 3


def test_lists_are_cleared_in_one_write_without_finalizers() -> None:
    status = {"uncountedTerminatedPods": {"failed": ["x"]}}
    pods = some_pods("S R", tracked=False)
    _, accounting, settlement = sync(a_job(completions=9, status=status), pods, settings=OFF)
    assert accounting.write is not None
    assert accounting.write.status.uncounted_terminated_pods is None
    assert settlement.write is None


@pytest.mark.parametrize("guarded", [True, False])
def test_pods_that_a_failure_stopped_stay_counted_when_they_are_gone(guarded: bool) -> None:
    target = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}
    job = a_job(completions=9, status={"failed": 2, "conditions": [target]})
    settings = Settings(track_with_finalizers=False, respect_managed_by=guarded)
    _, accounting, _ = sync(job, some_pods("F", tracked=False), settings=settings)
    assert accounting.write is not None
    assert accounting.write.finishes
    assert accounting.write.status.failed == 2


def test_a_forgotten_success_is_done_again_but_a_counter_the_api_guards_does_not_fall() -> None:
    job = a_job(completions=3, parallelism=3, status={"succeeded": 2, "failed": 1})
    planned, accounting, _ = sync(job, [], settings=OFF)
    assert len(planned.creations) == 3
    assert (accounting.status.succeeded, accounting.status.failed) == (2, 1)
    unguarded = Settings(track_with_finalizers=False, respect_managed_by=False)
    _, accounting, _ = sync(job, [], settings=unguarded)
    assert (accounting.status.succeeded, accounting.status.failed) == (0, 0)


def test_indexes_are_counted_from_the_pods_alone() -> None:
    job = an_indexed_job(completions=5, parallelism=5, status={"completedIndexes": "4"})
    pods = [a_pod("a", "S", index=1, tracked=False), a_pod("b", "R", index=2, tracked=False)]
    planned, accounting, _ = sync(job, pods, settings=OFF)
    assert accounting.status.completed_indexes == "1"
    assert [seed.index for seed in planned.creations] == [0, 3, 4]


@pytest.mark.parametrize(
    ("stored", "active", "fails"),
    [(1, "R", True), (2, "R", False), (1, "R R", False)],
)
def test_only_a_new_failure_not_yet_replaced_is_held_against_the_limit(
    stored: int, active: str, fails: bool
) -> None:
    job = a_job(completions=9, parallelism=2, backoffLimit=1, status={"failed": stored})
    planned = plan(job, some_pods(f"F F {active}", tracked=False), settings=OFF)
    assert (planned.fate is not None) == fails


def test_pods_stopped_by_failure_are_counted_at_once() -> None:
    job = a_job(completions=9, parallelism=2, backoffLimit=0)
    planned, accounting, settlement = sync(job, some_pods("F R", tracked=False), settings=OFF)
    assert len(planned.deletions) == 1
    assert accounting.write is not None
    assert accounting.write.status.failed == 2
    assert [c.type for c in accounting.write.status.conditions] == ["FailureTarget"]
    assert not accounting.write.finishes
    assert settlement.write is None


def test_a_job_with_nothing_left_running_ends_in_one_write() -> None:
    _, accounting, settlement = sync(a_job(), some_pods("S", tracked=False), settings=OFF)
    assert accounting.write is not None
    assert accounting.write.finishes
    types = [condition.type for condition in accounting.write.status.conditions]
    assert types == ["SuccessCriteriaMet", "Complete"]
    assert accounting.write.status.completion_time is not None
    assert [e.reason for e in accounting.write.events] == ["JobStart", "Completed", "JobFinish"]
    assert settlement.write is None


def test_nothing_is_written_when_nothing_changed() -> None:
    job = a_job(completions=9)
    _, accounting, _ = sync(job, some_pods("R", tracked=False), settings=OFF)
    again = msgspec.structs.replace(job, status=accounting.status)
    _, second, _ = sync(again, some_pods("R", tracked=False), settings=OFF)
    assert second.write is None
    assert second.removals == ()


def test_the_annotation_is_taken_off_a_job_that_is_no_longer_tracked() -> None:
    annotated = {"annotations": {TRACKING: ""}}
    assert plan(a_job(metadata=annotated), [], settings=OFF).drop_annotation
    assert not plan(a_job(), [], settings=OFF).drop_annotation
    assert not plan(a_job(metadata=annotated), [], settings=BY_ANNOTATION).drop_annotation
    dropped = a_job(metadata={**annotated, "resourceVersion": "7"})
    assert msgspec.json.decode(drop_annotation_patch(dropped))["metadata"] == {
        "resourceVersion": "7",
        "annotations": {TRACKING: None, TRACKING_AS_PROPOSED: None},
    }


def test_a_failed_deletion_keeps_the_verdict_back_here_too() -> None:
    planned = plan(a_job(backoffLimit=0, parallelism=2), some_pods("F R"), settings=OFF)
    accounting = account(planned, PodOutcomes(error="no"))
    assert accounting.status.conditions == ()
    assert accounting.error == "no"
