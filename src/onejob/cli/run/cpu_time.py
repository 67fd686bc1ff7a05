"""How much CPU the containers of a run used, as the kernel counted it for their supervisor."""

import os
from pathlib import Path


def workload_cpu_seconds() -> float | None:
    """CPU time of everything that children of this process have waited for; None if the
    kernel does not tell. The supervisor is such a child, and containers are what it waits for."""
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
    # The name in parentheses may hold anything, so fields are counted from behind it.
    fields = text.rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])
