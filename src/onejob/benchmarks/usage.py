"""Resource usage of processes: CPU time and memory, as accounted by the kernel."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path


def cpu_seconds(*, children: bool = False) -> float:
    """Return the CPU time of this process, all threads; with `children`, of reaped children too."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = usage.ru_utime + usage.ru_stime
    if children:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        total += usage.ru_utime + usage.ru_stime
    return total


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of another process, its reaped children included."""
    # The name in parentheses may contain any character, so fields are counted after it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of_family() -> float:
    """Return the CPU time of this process, all its descendants, and all children they reaped."""
    below = descendants(os.getpid())
    return cpu_seconds(children=True) + sum(cpu_seconds_of(pid) for pid in below)


def peak_rss_mb(pid: int | None = None) -> float:
    """Return the peak resident memory in MB.

    Not `ru_maxrss`: that is inherited from the parent process.
    """
    return _status_mb(pid or os.getpid(), "VmHWM")


def rss_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS")


def descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def _status_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    raise ProcessLookupError(f"process {pid} has no {field}: it has ended")
