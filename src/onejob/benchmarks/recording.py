"""Result records as JSON lines, with the commit and the machine of the measurement."""

import os
import platform
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from onejob import __version__
from onejob.benchmarks.results import Outcome


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    memory_mb: int
    kernel: str
    python: str
    #: Load average of the minute before the first measurement: figures of a busy machine mean
    #: little.
    load: float


class RunContext(msgspec.Struct, frozen=True):
    """Context of a measurement: time, version and machine."""

    at: datetime
    version: str
    #: Short commit hash; "" outside a checkout. A "+" at its end means uncommitted changes.
    commit: str
    machine: Machine


def this_occasion(now: datetime) -> RunContext:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    machine = Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 0,
        memory_mb=memory,
        kernel=platform.release(),
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 2),
    )
    return RunContext(now, __version__, _commit(Path(__file__).parent), machine)


def as_line(outcome: Outcome, occasion: RunContext) -> bytes:
    record: dict[str, Any] = {
        **msgspec.to_builtins(occasion),
        **msgspec.to_builtins(outcome),
        "met": {
            figure: verdict
            for figure in outcome.targets
            if (verdict := outcome.verdict(figure)) is not None
        },
    }
    return msgspec.json.encode(record) + b"\n"


def append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit(folder: Path) -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "--short", "HEAD")
        return commit + ("+" if commit and git("status", "--porcelain", "--", ".") else "")
    except FileNotFoundError:
        return ""
