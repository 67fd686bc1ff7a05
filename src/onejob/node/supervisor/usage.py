"""Resource usage of an ended container: peak memory and CPU time, as the kernel reports them to
the process that reaps it.

The peak is that of the largest process, as with `time -v`. A process starts as a copy of ours, so
the kernel reports at least our own memory; smaller peaks are sampled while the process runs.
"""

from typing import Any, NamedTuple

#: Age in seconds at which a container is sampled first; the interval doubles each time.
FIRST_SAMPLE_SECONDS = 0.05
MAX_SAMPLE_SECONDS = 60.0


class Usage(NamedTuple):
    #: 0 if unknown.
    peak_kib: int = 0
    cpu_ms: int = 0


UNKNOWN = Usage()


def usage_of(rusage: Any) -> Usage:
    """Return the usage of a child that `wait4` returned, with the children that it waited for."""
    return Usage(rusage.ru_maxrss, round((rusage.ru_utime + rusage.ru_stime) * 1000))


def peak_kib(pid: int) -> int:
    """Return the peak memory of a running process so far; 0 if it cannot be read."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0
