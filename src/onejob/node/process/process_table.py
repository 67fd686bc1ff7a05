"""Process table of this machine from /proc: parents, CPU time and memory.

All functions do blocking file I/O: call them in a worker thread.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """Process of this machine."""

    pid: int
    parent: int
    #: CPU time in clock ticks, including children that have ended.
    ticks: int
    #: Start time in clock ticks since boot.
    began: int
    #: Memory that is exclusive to the process, and memory that it may share: programs, libraries,
    #: shared memory.
    private_bytes: int
    shared_bytes: int


class ProcessTable:
    """Snapshot of all processes."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._processes = {process.pid: process for process in processes}
        self._children: dict[int, list[Process]] = {}
        for process in self._processes.values():
            self._children.setdefault(process.parent, []).append(process)

    @classmethod
    def read(cls) -> "ProcessTable":
        """Return the table of all processes. Blocks."""
        return cls(
            process
            for name in os.listdir("/proc")
            if name.isdecimal() and (process := _read(int(name))) is not None
        )

    def tree(self, pid: int) -> list[Process]:
        """Return the process and all its descendants; empty if it does not exist."""
        first = self._processes.get(pid)
        found = [first] if first is not None else []
        for process in found:
            found.extend(self._children.get(process.pid, ()))
        return found


@dataclass(frozen=True, slots=True)
class MachineUse:
    """CPU time and memory in use on the machine."""

    #: CPU time used since boot, in clock ticks.
    busy_ticks: int
    memory_bytes: int


def machine_use() -> MachineUse:
    with open("/proc/stat", "rb") as file:
        user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(
            int, file.readline().split()[1:]
        )
    memory = _memory_info()
    return MachineUse(
        user + nice + system + interrupts + soft,
        memory["MemTotal"] - memory["MemAvailable"],
    )


def _memory_info() -> Mapping[str, int]:
    found = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, amount = line.partition(":")
            found[name] = int(amount.split()[0]) * 1024
    return found


def _read(pid: int) -> Process | None:
    """Return one process, or None if it has ended meanwhile."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name, in brackets, may contain spaces and brackets.
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    return Process(
        pid,
        parent=int(fields[1]),
        ticks=user + system + children_user + children_system,
        began=int(fields[19]),
        private_bytes=max(0, resident - shared) * _PAGE_BYTES,
        shared_bytes=shared * _PAGE_BYTES,
    )
