"""Two rounds of `tests.e2e.resume_rounds`; the long run is separate."""

import random
from pathlib import Path

from tests.e2e.resume_rounds import Tally, play, problems_in


def test_resume_runs_each_index_once_when_runs_are_killed_at_random(tmp_path: Path) -> None:
    tally = Tally()
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        play(folder, random.Random(seed), tally)
    assert tally.problems == []
    assert tally.rounds == 2


def test_problems_in_a_ledger_are_found() -> None:
    good = "".join(f"begin {index} 1\nend {index} 1\n" for index in range(12))
    assert problems_in(good, supervisor_killed=False) == []
    assert problems_in(good + "begin 3 2\n", supervisor_killed=True) == []
    bad = good.replace("end 5 1\n", "") + "doubled 4 2\nbegin 3 2\n"
    assert [problem.split(":")[0] for problem in problems_in(bad, supervisor_killed=False)] == [
        "doubled",
        "repeated",
        "lost",
    ]
