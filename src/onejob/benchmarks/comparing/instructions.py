"""Instruction counts of a probe: more reliable than any clock on a noisy machine.

Counted by the processor's performance counters if `perf` has access, else by valgrind, which takes
a hundred times as long. Start-up takes instructions as well, so a probe runs at two sizes, and the
difference is the result.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onejob.benchmarks.comparing.trees import Tree
from onejob.benchmarks.subprocesses import run_probe

_PROBE = "control_plane:one_job"
_PARALLELISM = 20


@dataclass(frozen=True, slots=True)
class Counter:
    name: str
    #: Command prefix, given the file to write the count into.
    before: Callable[[Path], list[str]]
    pattern: re.Pattern[str]
    #: The smaller of the two sizes, in Pods.
    pods: int


_PERF = Counter(
    "perf",
    lambda file: ["perf", "stat", "-x", ",", "-e", "instructions:u", "-o", str(file)],
    re.compile(r"^(\d+),", re.MULTILINE),
    1_000,
)
_VALGRIND = Counter(
    "valgrind",
    lambda file: [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        f"--log-file={file}",
    ],
    re.compile(r"Collected : (\d+)"),
    100,
)


def find_counter() -> Counter | None:
    """Return an available counter; None if there is neither perf nor valgrind."""
    if shutil.which("perf") and _count(_PERF, ["true"]) is not None:
        return _PERF
    return _VALGRIND if shutil.which("valgrind") else None


def per_pod(tree: Tree, counter: Counter) -> float:
    """Return the instructions per Pod of one Job at parallelism 20 on the simulated node."""
    small, large = counter.pods, 2 * counter.pods
    return (_of_job(tree, counter, large) - _of_job(tree, counter, small)) / (large - small)


def _of_job(tree: Tree, counter: Counter, pods: int) -> int:
    sizes: Mapping[str, int] = {"completions": pods, "parallelism": _PARALLELISM}
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        file = Path(folder) / "count"
        run_probe(_PROBE, sizes, before=counter.before(file), environment=tree.environment())
        counted = counter.pattern.search(file.read_text())
    if counted is None:
        raise ValueError(f"{counter.name} counted nothing")
    return int(counted[1])


def _count(counter: Counter, command: list[str]) -> int | None:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        file = Path(folder) / "count"
        words = [*counter.before(file), *command]
        done = subprocess.run(words, capture_output=True, check=False)
        counted = None if done.returncode else counter.pattern.search(file.read_text())
    return None if counted is None else int(counted[1])
