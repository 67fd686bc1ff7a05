"""Job of three thousand Pods, with a concurrent small one; `make big-job` runs 100,000."""

from pathlib import Path

import pytest

from onejob.virtual_time import run_virtual
from tests.job.big_job import problems, run_big_job


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_big_job_is_counted_exactly_without_starving_others(tmp_path: Path, mode: str) -> None:
    witness = run_virtual(run_big_job(tmp_path, completions=3000, parallelism=1000, mode=mode))
    assert problems(witness, 3000, 1000) == []
    assert witness.turns_of_small <= 30, "the small Job waited for a few turns of the big one"
    if mode == "NonIndexed":
        assert witness.most_uids > 100, "many Pods end together, so the bound was tried"
    else:
        assert witness.most_uids == 0, "an index needs no UID"
