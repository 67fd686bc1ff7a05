"""Progress lines, their sum and the estimated end."""

from datetime import UTC, datetime, timedelta

import pytest

from onejob.planning.progress import (
    JobProgress,
    PodProgress,
    parse_progress,
    progress_bar,
    sum_up,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", None),
        ("1/10", (1, 10, "")),
        ("1/10 first\n2/10 second\n", (2, 10, "second")),
        ("2/10 second\nnonsense\n", (2, 10, "second")),
        ("3/10 begun\n4/1", (1, 1, "")),
        (" 5 / 10   spaced  ", (5, 10, "spaced")),
        ("12/10 more than all", (10, 10, "more than all")),
        ("1/0", None),
        ("-1/10", None),
        ("9999999999999999/10", None),
        ("1/2 \x1b[2Jescape", (1, 2, "[2Jescape")),
        ("1/2 " + "x" * 500, (1, 2, "x" * 100)),
    ],
)
def test_parse_progress_returns_last_valid_line(
    content: str, found: tuple[int, int, str] | None
) -> None:
    assert parse_progress(content) == found


def pod(name: str, done: int, total: int, ago: float = 60) -> PodProgress:
    return PodProgress(
        pod=name, done=done, total=total, text=name, started_at=NOON - timedelta(seconds=ago)
    )


def test_sum_up_adds_pods_and_estimates_the_rest() -> None:
    found = sum_up([pod("a", 10, 20), pod("b", 20, 20)], NOON)
    assert (found.done, found.total, found.seconds_left) == (30, 40, 20)
    assert [each.pod for each in found.pods] == ["a", "b"]


def test_sum_up_knows_no_end_before_the_first_step() -> None:
    assert sum_up([pod("a", 0, 20)], NOON).seconds_left is None
    assert sum_up([], NOON) == JobProgress()


def test_sum_up_lists_least_advanced_pods_only() -> None:
    found = sum_up([pod(str(number), number, 500) for number in range(500)], NOON, shown=3)
    assert [each.pod for each in found.pods] == ["0", "1", "2"]
    assert found.total == 250_000


def test_progress_bar_shows_share_and_time() -> None:
    progress = JobProgress(done=5, total=20, seconds_left=75, text="epoch 5")
    assert progress_bar(progress, 8) == "██░░░░░░ 5/20 (25%, 0:01:15 left) epoch 5"
    assert progress_bar(JobProgress(done=4, total=4, seconds_left=0), 4) == "████ 4/4 (100%)"
    assert progress_bar(progress, 0) == "5/20 (25%, 0:01:15 left) epoch 5"
