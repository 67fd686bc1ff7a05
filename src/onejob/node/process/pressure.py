"""Node pressure: shortages detected by free disk space and by failed starts."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from onejob.node.conditions import NodeCondition, NodeConditions
from onejob.node.supervisor.pressure import DESCRIPTORS, DISK, MEMORY, PROCESSES

#: Below these free bytes, or this fraction (1/20) of a small disk, nothing is started: the Pods
#: that run must still be reported.
_LOW_BYTES = 32 * 1024 * 1024
_LOW_SHARE = 20
_LOW_INODES = 64
#: Seconds without a blocked start after which a pressure ends; blocked starts are retried more
#: often than that.
_RELIEVED_AFTER_SECONDS = 15.0
_CHECK_SECONDS = 10.0

_REASONS = {
    DISK: "NoDiskSpace",
    MEMORY: "NoMemory",
    PROCESSES: "ProcessLimitReached",
    DESCRIPTORS: "DescriptorLimitReached",
}


def short_of_space(folder: Path) -> str:
    """Return a message if the disk of `folder` is nearly full, else "". Raises OSError."""
    disk = os.statvfs(folder)
    free = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
    total = disk.f_frsize * disk.f_blocks
    # The message names the threshold, not the free space: each new text costs a status write.
    enough = min(_LOW_BYTES, total // _LOW_SHARE)
    if free < enough:
        return f"No space left on device: {folder} has less than {enough // 1024} KiB"
    if disk.f_files and disk.f_favail < _LOW_INODES:
        return f"No space left on device: {folder} has fewer than {_LOW_INODES} free inodes"
    return ""


class Pressures:
    """Sets the Node's pressure conditions, and clears them when the shortage ends.

    `persists` returns the reason why the disk is still short of space, or "".
    """

    def __init__(self, persists: Callable[[], str]) -> None:
        self._persists = persists
        self._conditions: NodeConditions | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watch: asyncio.TimerHandle | None = None

    def report_to(self, conditions: NodeConditions) -> None:
        self._conditions = conditions

    def watch_disk(self) -> None:
        """Check the disk periodically: a shortage noticed before the disk is full can still be
        written."""
        if why := self._persists():
            self.report(DISK, why)
        self._watch = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self.watch_disk)

    def report(self, pressure: str, message: str) -> None:
        """Set the condition for a shortage that blocked a start."""
        if self._conditions is None:
            return
        self._conditions.set(NodeCondition(pressure, True, _REASONS[pressure], message))
        if (timer := self._timers.get(pressure)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[pressure] = loop.call_later(
            _RELIEVED_AFTER_SECONDS, self._clear_if_over, pressure
        )

    def close(self) -> None:
        """Cancel all checks."""
        if self._watch is not None:
            self._watch.cancel()
        for timer in self._timers.values():
            timer.cancel()

    def _clear_if_over(self, pressure: str) -> None:
        """Clear the condition, unless the shortage persists."""
        if pressure == DISK and (why := self._persists()):
            self.report(DISK, why)
        elif self._conditions is not None:
            del self._timers[pressure]
            self._conditions.clear(pressure, "no operation was blocked recently")
