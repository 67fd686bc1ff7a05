"""Runs on a real Slurm, started by the tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import NEEDS_SLURM, SlurmCluster

pytestmark = NEEDS_SLURM


def onejob(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "onejob", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_run_uses_one_allocation_and_returns_it(real_slurm: SlurmCluster, tmp_path: Path) -> None:
    script = "echo $JOB_COMPLETION_INDEX in $SLURM_JOB_ID on $SLURMD_NODENAME"
    shown = onejob(
        "run", "--on", "slurm", "--data-dir", str(tmp_path), "--completions", "4",
        "--parallelism", "4", "--indexed", "--", "sh", "-c", script,
    )  # fmt: skip
    lines = [line.split() for line in shown.splitlines() if " in " in line and " on n" in line]
    assert sorted(line[1] for line in lines) == ["0", "1", "2", "3"]
    assert len({line[3] for line in lines}) == 1
    assert real_slurm.until(lambda: real_slurm.run("squeue", "--noheader") == "", 60)


@pytest.mark.parametrize(
    ("option", "expected"),
    [("partition=absent", "invalid partition"), ("constraint=absent", "feature")],
)
def test_a_rejected_allocation_is_reported_before_anything_is_submitted(
    real_slurm: SlurmCluster, tmp_path: Path, option: str, expected: str
) -> None:
    jobs = ("squeue", "--noheader", "--states=all", "--format=%i")
    before = real_slurm.run(*jobs)
    shown = onejob(
        "run", "--on", "slurm", "--data-dir", str(tmp_path), "--slurm", option, "--", "true", code=2
    )
    assert expected in shown.lower()
    assert len(shown.splitlines()) == 1
    assert set(real_slurm.run(*jobs).split()) <= set(before.split())
