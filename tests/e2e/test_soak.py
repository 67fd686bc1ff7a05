"""Detection of growth by the soak test; `make soak` runs it for hours."""

import pytest

from tests.e2e.soak import Sample, judge_disk, judge_life

MIB = 1 << 20


@pytest.mark.parametrize(
    ("last", "problems"),
    [
        (Sample(100 * MIB, 20), 0),
        (Sample(110 * MIB, 25), 0),
        (Sample(130 * MIB, 20), 1),
        (Sample(100 * MIB, 60), 1),
    ],
)
def test_growth_between_restarts_is_detected(last: Sample, problems: int) -> None:
    first, middle = [Sample(50 * MIB, 10)] * 5, [Sample(100 * MIB, 20)] * 5
    assert len(judge_life([*first, *middle, *[last] * 5])) == problems


@pytest.mark.parametrize(("last", "problems"), [(21 * MIB, 0), (60 * MIB, 1)])
def test_data_dir_growth_across_restarts_is_detected(last: int, problems: int) -> None:
    assert len(judge_disk([5 * MIB, 20 * MIB, 20 * MIB, last])) == problems
