"""CPU time of a run's containers, from the kernel's accounting for their supervisor."""

import os
from pathlib import Path


def workload_cpu_seconds() -> float | None:
    """Return the CPU seconds of all processes reaped by children of this process.

    The supervisor is one of these children, and it reaps the containers. None if /proc cannot be
    read.
    """
    ticks = 0
    try:
        for thread in Path("/proc/self/task").iterdir():
            for child in (thread / "children").read_text().split():
                ticks += _waited_for_ticks(int(child))
    except OSError:
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def _waited_for_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name in parentheses may contain anything, so fields are counted from its end.
    fields = text.rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])
