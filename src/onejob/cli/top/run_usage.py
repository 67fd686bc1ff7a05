"""Resource usage of a run's Pods, measured from outside: a run serves no metrics API.

The processes of a Pod are found by the name of the Pod in their environment, `HOSTNAME`, from which
the first process of each container has its session.
"""

import os
import time
from typing import TYPE_CHECKING

from onejob.cli.sources.usage import Usage
from onejob.node.process.process_table import TICKS_PER_SECOND, Process, ProcessTable

_MAX_ENVIRONMENT_BYTES = 1 << 20

if TYPE_CHECKING:
    from collections.abc import Mapping


class RunUsageMeter:
    """CPU usage is the average since the last measurement, or since the start of the container."""

    def __init__(self) -> None:
        self._at = 0.0
        self._ticks: Mapping[int, int] = {}

    def measure(self, pods: set[str]) -> dict[str, Usage]:
        """Return the usage of those Pods of which processes run, by name."""
        table, now = ProcessTable.read(), time.clock_gettime(time.CLOCK_BOOTTIME)
        found: dict[str, Usage] = {}
        ticks: dict[int, int] = {}
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            name = _pod_of(pid)
            tree = table.tree(pid) if name in pods else []
            if not tree:
                continue
            ticks[pid] = sum(process.ticks for process in tree)
            usage = Usage(self._millicores(tree[0], ticks[pid], now), _memory(tree))
            known = found.get(name, Usage())
            found[name] = Usage(
                known.cpu_millicores + usage.cpu_millicores,
                known.memory_bytes + usage.memory_bytes,
            )
        self._at, self._ticks = now, ticks
        return found

    def _millicores(self, first: Process, ticks: int, now: float) -> int:
        since = first.began / TICKS_PER_SECOND
        before = self._ticks.get(first.pid)
        if before is not None and since < self._at:
            since, ticks = self._at, max(0, ticks - before)
        return round(ticks / TICKS_PER_SECOND / max(now - since, 1 / TICKS_PER_SECOND) * 1000)


def _pod_of(pid: int) -> str:
    """Return the HOSTNAME of a session's first process; "" for any other process."""
    try:
        if os.getsid(pid) != pid:
            return ""
        with open(f"/proc/{pid}/environ", "rb") as file:
            block = file.read(_MAX_ENVIRONMENT_BYTES)
    except OSError:
        # It has ended, or belongs to another user.
        return ""
    for variable in block.split(b"\0"):
        if variable.startswith(b"HOSTNAME="):
            return variable.partition(b"=")[2].decode("utf-8", "replace")
    return ""


def _memory(tree: list[Process]) -> int:
    # Shared pages are mostly shared within the container, by many processes of one program.
    private = sum(process.private_bytes for process in tree)
    return private + max(process.shared_bytes for process in tree)
