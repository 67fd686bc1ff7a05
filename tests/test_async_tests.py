"""The plugin for coroutine tests, in a test session of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SESSION = """
import asyncio
import pytest
from hypothesis import given, strategies
from onejob.virtual_time import VirtualTimeLoop

@pytest.fixture
def number():
    return 3

async def test_passes(number):
    await asyncio.sleep(0)
    assert number == 3
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)

async def test_fails():
    await asyncio.sleep(0)
    assert False

@pytest.mark.virtual_time
@pytest.mark.parametrize("years", [1, 2])
async def test_passes_in_virtual_time(years):
    await asyncio.sleep(years * 365 * 24 * 3600)

@pytest.mark.virtual_time
@given(strategies.integers())
async def test_passes_as_a_property(number):
    await asyncio.sleep(3600)

@given(strategies.integers())
async def test_fails_as_a_property(number):
    await asyncio.sleep(0)
    assert number != 0
"""


def test_coroutines_run_in_the_loop_their_marker_asks_for(tmp_path: Path) -> None:
    (tmp_path / "test_session.py").write_text(SESSION)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = virtual_time\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.async_tests"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        timeout=120,
        check=False,
    )
    outcomes = [
        line.split(" - ")[0].replace("test_session.py::", "")
        for line in done.stdout.splitlines()
        if line.startswith(("PASSED", "FAILED"))
    ]
    assert sorted(outcomes) == [
        "FAILED test_fails",
        "FAILED test_fails_as_a_property",
        "PASSED test_passes",
        "PASSED test_passes_as_a_property",
        "PASSED test_passes_in_virtual_time[1]",
        "PASSED test_passes_in_virtual_time[2]",
    ], done.stdout
