"""The built wheel in an empty environment, with no other step."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow_spec
def test_the_wheel_runs_a_job_in_an_empty_environment(tmp_path: Path) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-w", "wheels")
    (wheel,) = (tmp_path / "wheels").iterdir()
    run(sys.executable, "-m", "venv", "empty")
    run("empty/bin/pip", "install", str(wheel))
    printed = run("empty/bin/onejob", "run", "--data-dir", str(tmp_path / "d"), "--", "echo", "hi")
    assert "] hi" in printed
    assert "Complete" in printed
