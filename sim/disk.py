"""Simulated commit latency and failures: a disk that is slow, full, or loses unfinished commits.

`DiskCommitter` replaces the thread in which the store commits; `database_disk.py` simulates the
files under SQLite. A commit that happened but was not answered is found after the restart.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from onejob.store.base import CommitFailed, StoreError
from onejob.store.writer import Done, Job
from sim.faults import Dice

_SLOWEST_SECONDS = 0.5
_FULL_SECONDS = 15.0


class Disk:
    """Disk state shared by successive processes: it may still be full for the next one."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self._full_until = 0.0

    @property
    def full(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self.dice.happens("full disk"):
            self._full_until = now + self.dice.up_to("full disk", _FULL_SECONDS)
        return now < self._full_until and not self.dice.calm


class DiskCommitter:
    """Implementation of `onejob.store.writer.Committer` for one process, which `crash` kills."""

    def __init__(
        self, disk: Disk, crash: Callable[[str], None], on_stop: Callable[[], None]
    ) -> None:
        self._dice = disk.dice
        self._on_stop = on_stop
        self._crash = crash
        self._jobs: deque[tuple[Job, Done]] = deque()
        self._busy = False
        self._cut = False
        #: Faults are off until the process has started: a failed start would only be repeated.
        self.reliable = True

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.append((job, done))
        if not self._busy:
            self._begin()

    def stop(self) -> None:
        """Stop without waiting: no commit is in progress between callbacks."""
        self._on_stop()

    def cut(self) -> None:
        """Discard pending commits at the death of the process. None is written or answered."""
        self._cut = True
        self._jobs.clear()

    def _happens(self, kind: str) -> bool:
        return not self.reliable and self._dice.happens(kind)

    def _begin(self) -> None:
        self._busy = True
        loop = asyncio.get_running_loop()
        if self._happens("slow commit"):
            loop.call_later(self._dice.up_to("slow commit", _SLOWEST_SECONDS), self._work)
        else:
            loop.call_soon(self._work)

    def _work(self) -> None:
        if self._cut:
            return
        job, done = self._jobs.popleft()
        if self._happens("crash before a commit"):
            self._crash("before a commit")
            return
        error = self._attempt(job)
        if self._cut:
            return
        if self._happens("crash after a commit"):
            self._crash("after a commit")
            return
        self._busy = False
        done(error)
        if self._jobs and not self._busy:
            self._begin()

    def _attempt(self, job: Job) -> StoreError | None:
        if self._happens("failed commit"):
            return CommitFailed("the simulated disk failed once")
        try:
            job()
        except StoreError as error:
            return error
        return None
