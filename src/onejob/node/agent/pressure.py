"""What the node is short of: found out by looking at the disk, and by what could not be started."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from onejob.node.agent.conditions import NodeCondition, NodeConditions
from onejob.node.supervisor.pressure import DESCRIPTORS, DISK, MEMORY, PROCESSES

#: Below this, or this share of a small disk, nothing new is started: what runs has to be reported.
_LOW_BYTES = 32 * 1024 * 1024
_LOW_SHARE = 20
_LOW_INODES = 64
#: A pressure is over once nothing was blocked by it for so long; whatever is, tries more often.
_RELIEVED_AFTER_SECONDS = 15.0
_CHECK_SECONDS = 10.0

_REASONS = {
    DISK: "NoDiskSpace",
    MEMORY: "NoMemory",
    PROCESSES: "ProcessLimitReached",
    DESCRIPTORS: "DescriptorLimitReached",
}


def short_of_space(folder: Path) -> str:
    """Says so if the disk of `folder` is all but full. Raises OSError."""
    disk = os.statvfs(folder)
    free = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
    total = disk.f_frsize * disk.f_blocks
    # The limits and not what is left: a text that changes all the time has to be written as often.
    enough = min(_LOW_BYTES, total // _LOW_SHARE)
    if free < enough:
        return f"No space left on device: {folder} has less than {enough // 1024} KiB"
    if disk.f_files and disk.f_favail < _LOW_INODES:
        return f"No space left on device: {folder} has room for less than {_LOW_INODES} files"
    return ""


class Pressures:
    """Sets the conditions of the node for what is short, and clears them when it no longer is.
    `persists` says why the disk is still short; empty if it is not."""

    def __init__(self, persists: Callable[[], str]) -> None:
        self._persists = persists
        self._conditions: NodeConditions | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watch: asyncio.TimerHandle | None = None

    def report_to(self, conditions: NodeConditions) -> None:
        self._conditions = conditions

    def watch_disk(self) -> None:
        """Look at the disk now and then: what is noticed before it is full can be written."""
        if why := self._persists():
            self.report(DISK, why)
        self._watch = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self.watch_disk)

    def report(self, pressure: str, message: str) -> None:
        """Something could not be started, because the node is short of that."""
        if self._conditions is None:
            return
        self._conditions.set(NodeCondition(pressure, True, _REASONS[pressure], message))
        if (timer := self._timers.get(pressure)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[pressure] = loop.call_later(_RELIEVED_AFTER_SECONDS, self._relieved, pressure)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for timer in self._timers.values():
            timer.cancel()

    def _relieved(self, pressure: str) -> None:
        if pressure == DISK and (why := self._persists()):
            self.report(DISK, why)
        elif self._conditions is not None:
            del self._timers[pressure]
            self._conditions.clear(pressure, "nothing was blocked by it for a while")
