"""Process-wide tuning: garbage collection and descriptor limits.

Only for a process of onejob's own; a library must leave these settings to its host.

Python's garbage collector stops the process while it searches for cycles, about half a microsecond
per object. Nearly all of our objects are freed by reference counting, so the young generation is
kept small, and full collections run when the process is idle.
"""

import asyncio
import ctypes
import gc
import os
import resource
import time
from collections.abc import Callable

#: Allocations minus deallocations between two young collections: a millisecond of work. With
#: thousands, whole generations of Pods would be young, and a collection would take tens of
#: milliseconds.
_YOUNG_OBJECTS = 700
_NEVER = 2**31 - 1

#: Young collections after which a full collection is due.
_YOUNG_LOOKS = 10
_PERIOD_SECONDS = 10.0
#: Share of a processor below which a period counts as idle.
_QUIET_SHARE = 0.05
#: A due collection waits for an idle period, but for at most this many busy ones: ten minutes.
_MAX_BUSY_PERIODS = 60
#: Objects that a full collection scans in about 75 ms, in which no request is answered. With more,
#: a collection waits for an hour, because requests also arrive in idle periods.
_QUICKLY_SCANNED_OBJECTS = 150_000
_MAX_LARGE_HEAP_PERIODS = 360


_MAX_DESCRIPTORS = 1 << 20
_inherited_descriptors: tuple[int, int] | None = None


def disable_gc_for_startup() -> None:
    """Disable garbage collection during start-up; call `settle` afterwards.

    Hardly any start-up object is garbage: a server with a hundred thousand objects leaves five
    hundred behind, and searching for them took a tenth of its start.
    """
    gc.disable()


def settle(cpu_seconds: Callable[[], float] = time.process_time) -> None:
    """Freeze long-lived objects (`gc.freeze`) and enable garbage collection again.

    Call on the loop, once start-up is complete. Also returns memory freed during start-up to the
    system.
    """
    _trim_heap()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS, _NEVER, _NEVER)
    _FullCollections(asyncio.get_running_loop(), cpu_seconds).schedule_check()


class _FullCollections:
    """Scheduler of full collections in idle periods, for objects created since `settle`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cpu_seconds: Callable[[], float]) -> None:
        self._loop = loop
        self._cpu_seconds = cpu_seconds
        self._used = cpu_seconds()
        self._busy_periods = 0
        self._due_periods = 0

    def schedule_check(self) -> None:
        self._loop.call_later(_PERIOD_SECONDS, self._period_over)

    def _period_over(self) -> None:
        before, self._used = self._used, self._cpu_seconds()
        quiet = self._used - before < _QUIET_SHARE * _PERIOD_SECONDS
        self._busy_periods = 0 if quiet else self._busy_periods + 1
        if not _collection_is_due():
            self._due_periods = 0
        elif quiet or self._busy_periods > _MAX_BUSY_PERIODS:
            self._due_periods += 1
            if _is_quickly_scanned() or self._due_periods > _MAX_LARGE_HEAP_PERIODS:
                gc.collect()
                self._busy_periods = self._due_periods = 0
            _trim_heap()
        self.schedule_check()


def raise_descriptor_limit() -> None:
    """Raise this process's descriptor limit to the hard limit.

    The default of 1024 only exists for programs that use select(). Child processes get the
    inherited limit back, see `restore_descriptor_limit`.
    """
    global _inherited_descriptors
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _inherited_descriptors = (soft, hard)


def restore_descriptor_limit(pid: int) -> None:
    """Restore the inherited descriptor limit of a child process.

    The process was just started and has not yet opened or started anything itself.
    """
    if _inherited_descriptors is not None:
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _inherited_descriptors)
        except ProcessLookupError:
            return


def _trim_heap() -> None:
    """Return freed memory to the system (`malloc_trim`), which the C library otherwise keeps.

    Only glibc has this call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _collection_is_due() -> bool:
    """Return whether enough young collections have run for a full one.

    An idle server must not scan the same objects again and again.
    """
    _, young_looks, _ = gc.get_count()
    return young_looks >= _YOUNG_LOOKS


def _is_quickly_scanned() -> bool:
    """Return whether a full collection takes less than a tenth of a second."""
    return len(gc.get_objects()) <= _QUICKLY_SCANNED_OBJECTS


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def open_descriptors() -> int:
    # Excludes the descriptor that reads the directory.
    return len(os.listdir("/proc/self/fd")) - 1


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
