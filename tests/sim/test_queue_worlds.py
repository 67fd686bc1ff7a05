"""Worlds with faults in which only so many Jobs may run at once."""

from collections.abc import Sequence

import pytest

from onejob.planning.queue.line import Line
from sim.checks.queue import LIMIT
from sim.world import simulate


@pytest.mark.parametrize("seed", range(4))
def test_the_queue_keeps_limit_and_order_whatever_fails(seed: int) -> None:
    verdict = simulate(seed, job_limit=1)
    assert [str(problem) for problem in verdict.problems] == []


def test_a_queue_that_lets_all_go_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_all(line: Line) -> Sequence[str]:
        waiting = dict(line._waiting)
        for uid, (_, scopes) in waiting.items():
            line.put_running(uid, scopes)
        return list(waiting)

    monkeypatch.setattr(Line, "start", start_all)
    found = {problem.check for seed in range(3) for problem in simulate(seed, job_limit=1).problems}
    assert LIMIT in found
