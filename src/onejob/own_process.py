"""Settings of a process that is onejob's alone. A library must leave these to its host.

Python's garbage collector stops everything while it looks for cycles, about half a microsecond per
object. Nearly all of ours are freed without it, so it may look little at a time, and at everything
when nobody minds.
"""

import asyncio
import ctypes
import gc
import os
import resource
import time
from collections.abc import Callable

#: Objects made, less those freed, between two looks at the youngest: a millisecond's worth. With
#: thousands, whole generations of Pods would be young, and a look take tens of milliseconds.
_YOUNG_OBJECTS = 700
_NEVER = 2**31 - 1

#: After so many looks at the youngest, one at everything is due.
_YOUNG_LOOKS = 10
_PERIOD_SECONDS = 10.0
#: A period was quiet if the process used less of a processor than this.
_QUIET_SHARE = 0.05
#: What is due waits for a quiet period, but for no more than so many that were not: ten minutes.
_MOST_BUSY_PERIODS = 60


_MOST_DESCRIPTORS = 1 << 20
_inherited_descriptors: tuple[int, int] | None = None


def build_without_looking() -> None:
    """Call before all is built, and `settle` after it. Hardly anything of that is garbage: a server
    with a hundred thousand objects leaves five hundred behind, and to look for them took a tenth of
    its start."""
    gc.disable()


def settle(cpu_seconds: Callable[[], float] = time.process_time) -> None:
    """Call on the loop, once all is built: what there is by now stays, and is not looked at. What
    building it took and has freed goes back to the system."""
    _give_memory_back()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS, _NEVER, _NEVER)
    _FullLooks(asyncio.get_running_loop(), cpu_seconds).look_later()


class _FullLooks:
    """At all that was made since, in quiet periods."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cpu_seconds: Callable[[], float]) -> None:
        self._loop = loop
        self._cpu_seconds = cpu_seconds
        self._used = cpu_seconds()
        self._busy_periods = 0

    def look_later(self) -> None:
        self._loop.call_later(_PERIOD_SECONDS, self._period_over)

    def _period_over(self) -> None:
        before, self._used = self._used, self._cpu_seconds()
        quiet = self._used - before < _QUIET_SHARE * _PERIOD_SECONDS
        self._busy_periods = 0 if quiet else self._busy_periods + 1
        if (quiet or self._busy_periods > _MOST_BUSY_PERIODS) and _look_is_due():
            gc.collect()
            _give_memory_back()
            self._busy_periods = 0
        self.look_later()


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as the system allows: by default, it may have 1024,
    for the sake of programs that use select(). Those that it starts get back what it had."""
    global _inherited_descriptors
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _inherited_descriptors = (soft, hard)


def restore_descriptor_limit(pid: int) -> None:
    """Of a process that was just started and has not yet opened or started anything itself."""
    if _inherited_descriptors is not None:
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _inherited_descriptors)
        except ProcessLookupError:
            return


def _give_memory_back() -> None:
    """What was freed stays with the C library unless it is asked. Elsewhere than in glibc there is
    nothing to ask."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _look_is_due() -> bool:
    """An idle server shall not look at the same things again and again."""
    _, young_looks, _ = gc.get_count()
    return young_looks >= _YOUNG_LOOKS


def resident_bytes() -> int:
    """The memory of this process that is in use now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def open_descriptors() -> int:
    # The one that reads the folder is not counted.
    return len(os.listdir("/proc/self/fd")) - 1


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
