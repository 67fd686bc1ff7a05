"""Simulated worlds with faults and a limit on the running Jobs."""

import pytest

from sim.world import simulate


@pytest.mark.parametrize("seed", range(4))
def test_queue_keeps_limit_and_order_under_faults(seed: int) -> None:
    verdict = simulate(seed, job_limit=1)
    assert [str(problem) for problem in verdict.problems] == []
