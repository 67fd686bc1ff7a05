"""Recorded times that lie in the future because the clock was set back."""

from datetime import timedelta

import pytest

from onejob.planning.future_times import NO_FUTURE_TIMES
from onejob.planning.job.backoff import BackoffRecord
from onejob.planning.job.plan import Observed
from onejob.planning.names import FAILURE_COUNT_ANNOTATION
from onejob.planning.pod.lifecycle import (
    RETRY_BLOCKED,
    UNSEEN,
    Blocked,
    Exit,
    begin,
    block,
    by_this_clock,
    end,
    restart_at,
)
from tests.planning.build import NOON, a_job, a_pod, an_indexed_job, plan, stamp

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
STARTED = {"startTime": stamp(NOON)}


def test_past_times_count_unchanged() -> None:
    future_times = NO_FUTURE_TIMES.after([NOON, None], NOON)
    assert future_times == NO_FUTURE_TIMES
    assert future_times.counts_from(NOON) == NOON


def test_future_times_count_from_first_observation() -> None:
    ahead = NOON + HOUR
    future_times = NO_FUTURE_TIMES.after([ahead], NOON)
    assert future_times.counts_from(ahead) == NOON
    assert future_times.after([ahead], NOON + MINUTE).counts_from(ahead) == NOON
    assert future_times.after([ahead], NOON - MINUTE).counts_from(ahead) == NOON - MINUTE
    assert future_times.after([ahead], ahead).counts_from(ahead) == ahead
    assert future_times.after([], NOON) == NO_FUTURE_TIMES


def test_a_job_waits_after_a_failure_in_the_future_for_as_long_as_is_meant() -> None:
    job = a_job(status={**STARTED, "failed": 1})
    observed = Observed(backoff=BackoffRecord(1, NOON + HOUR))
    first = plan(job, [], observed=observed, now=NOON)
    assert not first.creations
    assert first.look_again_at == NOON + 10 * SECOND
    later = Observed(backoff=first.backoff, future_times=first.future_times)
    assert not plan(job, [], observed=later, now=NOON + 9 * SECOND).creations
    assert len(plan(job, [], observed=later, now=NOON + 10 * SECOND).creations) == 1


def test_a_deadline_after_a_start_in_the_future_is_kept() -> None:
    job = a_job(activeDeadlineSeconds=60, status={"startTime": stamp(NOON + HOUR)})
    first = plan(job, [], now=NOON)
    assert first.fate is None
    assert first.look_again_at == NOON + MINUTE
    second = plan(job, [], observed=Observed(future_times=first.future_times), now=NOON + MINUTE)
    assert second.fate is not None
    assert second.fate.reason == "DeadlineExceeded"
    assert second.start_time == NOON + HOUR, "what was recorded stays"


@pytest.mark.parametrize("order", [1, -1])
def test_of_an_indexs_failed_pods_the_one_with_the_highest_count_is_kept(order: int) -> None:
    """Even if it ended earlier by the clock: otherwise its retries would have no delay."""
    job = an_indexed_job(completions=1, parallelism=1, backoffLimitPerIndex=5, status=STARTED)
    pods = [
        a_pod(
            f"p{count}",
            index=0,
            phase="F",
            ended_at=NOON + HOUR - count * MINUTE,
            annotations={FAILURE_COUNT_ANNOTATION: str(count)},
        )
        for count in range(3)
    ]
    planned = plan(job, pods[::order], now=NOON)
    assert planned.ledger.tally.retained[0].metadata.name == "p2"


def test_a_container_waits_for_its_restart_for_as_long_as_is_meant() -> None:
    ended = end(begin(end(begin(UNSEEN), Exit(1, NOON))), Exit(1, NOON + HOUR))
    assert by_this_clock(ended, NOON + HOUR) == ended
    back = by_this_clock(ended, NOON)
    assert restart_at(back) == NOON + 10 * SECOND
    assert by_this_clock(back, NOON + 9 * SECOND) == back
    assert restart_at(by_this_clock(back, NOON - MINUTE)) == NOON - MINUTE + 10 * SECOND
    assert back.exit == ended.exit, "what was recorded stays"
    assert restart_at(end(begin(back), Exit(1, NOON))) == NOON + 20 * SECOND


def test_a_container_that_could_not_be_made_is_tried_again_as_soon_as_is_meant() -> None:
    blocked = block(begin(UNSEEN), Blocked("ErrImagePull", "why", NOON + HOUR))
    back = by_this_clock(blocked, NOON)
    assert back.blocked is not None
    assert back.blocked.retry_at == NOON + RETRY_BLOCKED
