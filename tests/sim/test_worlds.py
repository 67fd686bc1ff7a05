"""The smaller worlds: a few seeds of each, and their mutants."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.known import KNOWN
from sim.mutants import BY_WORLD
from sim.worlds import WORLDS, Simulate

_ROOT = Path(__file__).parents[2]
_SMALL = [world for world in WORLDS if world != "plane"]


def simulated(world: str, *seeds: int) -> list[str]:
    """Run seeds in a process of their own, as the hash seed determines their events."""
    lines = []
    for seed in seeds:
        ended = subprocess.run(
            [sys.executable, "-m", "sim", "--world", world, "--replay", str(seed)],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
        lines.append(ended.stdout)
    return lines


@pytest.mark.parametrize("world", _SMALL)
def test_world_breaks_no_promise_and_repeats_exactly(world: str) -> None:
    first, again = simulated(world, 3, 3)
    assert first == again


@pytest.mark.nightly
@pytest.mark.parametrize("world", KNOWN)
def test_world_finds_the_bugs_planted_for_it(world: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "sim.known", world],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_known_seeds_are_of_planted_bugs() -> None:
    for world, seeds in KNOWN.items():
        assert seeds.keys() <= BY_WORLD[world].keys()
        simulate: Simulate = WORLDS[world]
        assert callable(simulate)
