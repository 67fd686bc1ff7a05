"""A few worlds on each commit; `make sim` lives through many more."""

import pytest

from sim.world import simulate


@pytest.mark.parametrize("seed", range(100000, 100008))
def test_no_history_breaks_a_promise(seed: int) -> None:
    verdict = simulate(seed)
    assert not verdict.problems


def test_the_same_seed_lives_the_same_life() -> None:
    one, other = simulate(5), simulate(5)
    assert (one.trace, one.versions) == (other.trace, other.versions)
