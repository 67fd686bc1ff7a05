"""Resource usage of an ended container: peak memory and CPU time, as the kernel reports them to
the process that reaps it.

The peak is that of the largest process, as with `time -v`. A process starts as a copy of ours, so
the kernel reports at least our own memory. Smaller peaks are sampled while the process runs; a
sample counts if the process, with its children, used hardly any CPU time after it.
"""

from typing import Any, NamedTuple

#: Age in seconds at which a container is sampled first; the interval doubles each time.
FIRST_SAMPLE_SECONDS = 0.05
MAX_SAMPLE_SECONDS = 60.0
#: CPU time after the last sample that a process may need to end. It does not suffice to load an
#: interpreter or a library.
NEGLIGIBLE_CPU_MS = 10


class Usage(NamedTuple):
    #: 0 if unknown.
    peak_kib: int = 0
    cpu_ms: int = 0


UNKNOWN = Usage()


def usage_of(rusage: Any) -> Usage:
    """Return the usage of a child that `wait4` returned, with the children that it waited for."""
    return Usage(rusage.ru_maxrss, round((rusage.ru_utime + rusage.ru_stime) * 1000))


def sample(pid: int) -> Usage:
    """Return peak memory and CPU time of a running process so far; UNKNOWN if unreadable.

    The CPU time is that of its first thread.
    """
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            cpu_ms = int(file.read().split()[0]) // 1_000_000
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return Usage(int(line.split()[1]), cpu_ms)
    except (OSError, ValueError, IndexError):
        pass
    return UNKNOWN
