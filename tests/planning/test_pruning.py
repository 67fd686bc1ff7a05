"""spec.failedPodsLimit: failed Pods beyond the limit are deleted, oldest first, once counted."""

from datetime import timedelta
from typing import Any

import pytest

from onejob.objects.pod import Pod
from onejob.planning.job.operator_settings import Settings
from onejob.planning.names import FAILED_PODS_LIMIT_ANNOTATION
from tests.planning.build import NOON, a_job, a_pod, plan

ON_FAILURE = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c"}]}}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


def counted_failures(number: int) -> list[Pod]:
    """Return Pods f0, f1, …: f0 ended last."""
    return [
        a_pod(f"f{n}", "F", tracked=False, ended_at=NOON - timedelta(minutes=n))
        for n in range(number)
    ]


def pruned(pods: list[Pod], settings: Settings | None = None, **fields: Any) -> list[str]:
    planned = plan(a_job(completions=9, **fields), pods, settings=settings)
    return [pod.name for pod in planned.prunings]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, []), (3, []), (2, ["f2"]), (1, ["f2", "f1"]), (0, ["f2", "f1", "f0"])],
)
def test_the_oldest_go_first(limit: int | None, expected: list[str]) -> None:
    assert pruned(counted_failures(3), failedPodsLimit=limit) == expected


def test_the_annotation_stands_in_for_the_field_and_a_setting_for_both() -> None:
    pods = counted_failures(3)
    annotated = {"annotations": {FAILED_PODS_LIMIT_ANNOTATION: "2"}}
    seed_like = Settings(default_failed_pods_limit=1)
    assert pruned(pods, metadata=annotated) == ["f2"]
    assert pruned(pods, failedPodsLimit=3, metadata=annotated) == []
    assert pruned(pods, seed_like) == ["f2", "f1"]
    assert pruned(pods, seed_like, metadata=annotated) == ["f2"]


def test_pods_not_accounted_for_are_neither_pruned_nor_counted_as_kept() -> None:
    held = a_pod("held", "F", ended_at=NOON - timedelta(days=1))
    assert pruned([held, *counted_failures(1)], failedPodsLimit=1) == []


def test_other_pods_stay() -> None:
    others = [a_pod("s", "S", tracked=False), a_pod("r", "R")]
    assert pruned(others, failedPodsLimit=0) == []


def test_a_finished_job_is_still_pruned() -> None:
    assert pruned(counted_failures(2), failedPodsLimit=1, status=COMPLETE) == ["f1"]


def test_in_place_restarts_and_foreign_jobs_are_left_alone() -> None:
    pods = counted_failures(2)
    assert pruned(pods, failedPodsLimit=0, template=ON_FAILURE) == []
    assert pruned(pods, failedPodsLimit=0, managedBy="acme.io/x", status=COMPLETE) == []


def test_counters_do_not_follow_pruned_pods() -> None:
    job = a_job(failedPodsLimit=0, backoffLimit=5, status={"failed": 5})
    planned = plan(job, counted_failures(5))
    assert len(planned.prunings) == 5
    assert planned.ledger.tally.failed == 5
