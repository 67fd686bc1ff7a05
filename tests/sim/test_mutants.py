"""Detection of mutants. `make mutants` searches from the first seed on.

Here each mutant is searched for with seeds that are known to find it, so that it takes seconds.
`make test` searches for a sample, `make nightly` for all.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.mutants import BY_WORLD, MUTANTS, node, planted, rare
from sim.world import simulate

_ROOT = Path(__file__).parents[2]
#: Unrelated changes shift the events of a seed: then one of the next finds it.
_SEEDS = 80
#: Faults that expose a mutant, if they are rare: which seed has them differs from change to change.
_OFTEN = {
    "two Pods for an index after a lost answer": ("lost answer", "late watch"),
    "only one group dropped by a rollback": ("failed commit", "slow commit"),
    "gone Pods kept by the relist": ("expired watch", "late watch"),
    "asked Pods not sent again to a new supervisor": ("supervisor killed",),
    "Pod without trace launched again": ("reboot",),
    "running claim asked for twice runs twice": ("repeated request",),
    "verdict of a FailJob rule lost": ("late watch", "refused write"),
    "forbidden write given up": ("right taken away",),
    "lack of memory forgotten": ("out of memory",),
    "slot on record that did not run": ("refused write",),
}
#: First seed that finds it at present, if that is not among the first ones.
_FIRST = {
    "FailJob rules overlooked": 12,
    "Ignore rules overlooked": 12,
    "index retried once too often": 12,
    "one failed index too many allowed": 85,
    "suspended Job starts Pods": 10,
    "active deadline a second early": 48,
    "queue lets all Jobs go": 7,
    "lack of memory forgotten": 34,
}
#: Mutants of the production supervisor.
_PROCESSES = frozenset(node.MUTANTS)
#: Mutants that need the scripted machine: the simulated kernel has no memory limits.
_MACHINE = frozenset({"lack of memory forgotten"})


#: One of the Job controller, a cache, the queue, the store and the supervisor.
_SAMPLE = frozenset(
    {
        "count twice after a restart",
        "dropped watch event",
        "queue lets all Jobs go",
        "shared commit acknowledged before it is durable",
        "running claim asked for twice runs twice",
    }
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _SAMPLE else pytest.mark.nightly)
        for name in BY_WORLD["plane"]
    ],
)
def test_a_planted_bug_is_found(name: str) -> None:
    """In a process of its own: the hash seed determines the events of a seed."""
    often = [f"--often={fault}" for fault in _OFTEN.get(name, ())]
    if name in _PROCESSES:
        often.append("--node=processes")
    if name in rare.WITH_GATES:
        often.append("--gates")
    if name in rare.WITH_RARE_DEEDS:
        often.append("--rare")
    if name in _MACHINE:
        often.append("--node=machine")
    found = subprocess.run(
        [
            *(sys.executable, "-m", "sim", "--mutant", name, f"--seeds={_SEEDS}"),
            *(f"--first={_FIRST.get(name, 0)}", *often),
        ],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{name}: found" in found.stdout


def test_a_planted_bug_is_gone_afterwards() -> None:
    with planted("shared commit acknowledged before it is durable"):
        assert simulate(0).problems
    assert not simulate(0).problems


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_fits_the_code_it_changes(name: str) -> None:
    """Planting raises an error once the text that a mutant replaces is gone."""
    with planted(name):
        pass
