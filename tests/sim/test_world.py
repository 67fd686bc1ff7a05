"""A few short lives on each commit; `make sim` lives many more."""

import pytest

from sim.world import simulate


@pytest.mark.parametrize("seed", range(1000, 1016))
def test_no_history_breaks_a_promise(seed: int) -> None:
    verdict = simulate(seed)
    assert not verdict.problems, verdict.story


def test_the_same_seed_lives_the_same_life() -> None:
    assert simulate(5) == simulate(5)
