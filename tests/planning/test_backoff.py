"""Backoff delay before a failed Pod is replaced."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord, backoff_policy
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import Observed, PodSeed
from onejob.planning.job.pod_facts import finish_time
from onejob.planning.names import BACKOFF_SECONDS_ANNOTATION, FAILURE_COUNT_ANNOTATION
from tests.planning.build import NOON, a_job, a_pod, an_indexed_job, carried_out, plan, stamp

STARTED = {"startTime": stamp(NOON)}


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("failures", "delay"),
    [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (10**9, 600)],
)
def test_the_delay_doubles_up_to_ten_minutes(failures: int, delay: int) -> None:
    policy = backoff_policy(a_job(), Settings())
    assert policy.remaining(failures, NOON, NOON) == seconds(delay)
    assert policy.remaining(failures, NOON, NOON + seconds(7)) == max(
        seconds(delay - 7), seconds(0)
    )


def test_no_wait_is_longer_than_is_meant() -> None:
    """Not even after a failure in the future, because the clock was set back."""
    policy = backoff_policy(a_job(), Settings())
    assert policy.remaining(2, NOON + seconds(3600), NOON) == seconds(20)


@pytest.mark.parametrize(
    ("field", "annotation", "delays"),
    [
        (None, None, [10, 20, 40]),
        (3, None, [3, 6, 12]),
        (3, "50", [3, 6, 12]),  # the field wins
        (None, "50", [50, 100, 200]),
        (None, "nonsense", [10, 20, 40]),
        (0, None, [0, 0, 0]),
        (900, None, [900, 900, 900]),  # above the common ceiling: its own ceiling
        (2**63 - 1, None, [3153600000] * 3),  # practically forever, and no overflow
    ],
)
def test_a_job_may_have_its_own_base(
    field: int | None, annotation: str | None, delays: list[int]
) -> None:
    annotations = {} if annotation is None else {BACKOFF_SECONDS_ANNOTATION: annotation}
    job = a_job(backoffSeconds=field, metadata={"annotations": annotations})
    policy = backoff_policy(job, Settings())
    assert [policy.remaining(n, NOON, NOON) for n in (1, 2, 3)] == [seconds(d) for d in delays]
    assert policy.remaining(10**9, NOON, NOON) == policy.ceiling * bool(delays[0])


@pytest.mark.parametrize("given", ["field", "annotation"])
def test_a_base_is_ignored_where_containers_are_restarted_in_place(given: str) -> None:
    fields: dict[str, Any] = {"backoffSeconds": 60}
    if given == "annotation":
        fields = {"metadata": {"annotations": {BACKOFF_SECONDS_ANNOTATION: "60"}}}
    template = {"spec": {"restartPolicy": "OnFailure"}}
    policy = backoff_policy(a_job(template=template, **fields), Settings())
    assert policy.remaining(1, NOON, NOON) == seconds(10)


@pytest.mark.parametrize(
    ("succeeded", "failed", "expected"),
    [
        ([], [], BackoffRecord(2, NOON)),
        ([], [5, 3], BackoffRecord(4, NOON + seconds(5))),
        ([4], [], BackoffRecord(0, None)),
        ([4], [3, 4], BackoffRecord(0, None)),
        ([4], [3, 5, 6], BackoffRecord(2, NOON + seconds(6))),
    ],
)
def test_a_success_forgives_the_failures_before_it(
    succeeded: list[int], failed: list[int], expected: BackoffRecord
) -> None:
    record = BackoffRecord(2, NOON).after(
        [NOON + seconds(n) for n in succeeded], [NOON + seconds(n) for n in failed]
    )
    assert record == expected


def test_the_record_is_committed_with_the_write_that_counts_its_failures() -> None:
    planned = plan(a_job(status=STARTED), [a_pod("bad", "F", ended_at=NOON)])
    accounting = carried_out(planned)
    assert accounting.write is not None
    assert accounting.write.backoff == BackoffRecord(1, NOON)


def test_a_wait_shorter_than_a_second_is_rounded_up() -> None:
    observed = Observed(backoff=BackoffRecord(1, NOON - seconds(9.9)))
    planned = plan(a_job(status=STARTED), [], observed=observed)
    assert planned.creations == ()
    assert planned.look_again_at == NOON + seconds(1)


def test_without_a_remembered_failure_nothing_waits() -> None:
    planned = plan(a_job(status={"failed": 3, **STARTED}), [], observed=Observed())
    assert planned.backoff == NO_FAILURES
    assert len(planned.creations) == 1


def test_each_index_waits_on_its_own() -> None:
    job = an_indexed_job(completions=3, parallelism=3, backoffLimitPerIndex=9, status=STARTED)
    failed = a_pod("bad", "F", index=0, ended_at=NOON, annotations={FAILURE_COUNT_ANNOTATION: "2"})
    planned = plan(job, [failed])
    assert planned.creations == (PodSeed(1, 0), PodSeed(2, 0))
    rest = [failed, a_pod("b", "R", index=1), a_pod("c", "R", index=2)]
    assert plan(job, rest).look_again_at == NOON + seconds(40)
    assert plan(job, rest, now=NOON + seconds(40)).creations == (PodSeed(0, 3),)


def test_a_time_at_the_dawn_of_the_calendar_does_not_overflow() -> None:
    dawn = datetime(1, 1, 1, 0, 0, 1, tzinfo=UTC)
    metadata = {"deletionTimestamp": stamp(dawn), "deletionGracePeriodSeconds": 30}
    assert finish_time(a_pod("old", "R", metadata=metadata)) < dawn


def test_nor_does_a_grace_that_is_longer_than_the_calendar() -> None:
    metadata = {
        "deletionTimestamp": "9999-12-31T23:59:59Z",
        "deletionGracePeriodSeconds": 2**63 - 1,
    }
    assert finish_time(a_pod("held", "R", metadata=metadata)) < NOON
