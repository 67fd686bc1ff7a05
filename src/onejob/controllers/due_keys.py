"""Deadlines of many keys: a queue, and a timer that wakes when the next one is due."""

import asyncio
import heapq
from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from onejob.clock import Clock
from onejob.informers.workqueue import WorkQueue
from onejob.objects.meta import Key

#: Due keys taken at a time, with a yield to the event loop in between.
_BATCH: Final = 200


class DeadlineTimer:
    """Keys with a deadline each; `take` waits for due ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: Deadlines[Key] = Deadlines()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: Key, due: datetime) -> None:
        """Set or replace the deadline of a key."""
        soonest = self._deadlines.next_due
        self._deadlines.set(key, due)
        if soonest is None or due < soonest:
            self._wake.set()

    def drop(self, key: Key) -> None:
        """Remove the deadline of a key; an unknown key is ignored."""
        self._deadlines.drop(key)

    def clock_jumped(self, *, longest: timedelta | None = None) -> None:
        """Re-evaluate all deadlines after a clock jump.

        Deadlines beyond `longest` from now are moved to it.
        """
        if longest is not None:
            self._deadlines.bring_forward(self._clock.now() + longest)
        self._wake.set()

    async def take(self, limit: int) -> Sequence[Key]:
        """Wait until a key is due; remove and return up to `limit` due keys."""
        while True:
            self._wake.clear()
            now = self._clock.now()
            if due := self._deadlines.take_due(now, limit=limit):
                return due
            soonest = self._deadlines.next_due
            if soonest is None:
                await self._wake.wait()
                continue
            # Rounded up, so that the timer does not fire just before the deadline.
            seconds = (soonest - now).total_seconds() + 0.001
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def feed(self, queue: WorkQueue[Key]) -> None:
        """Add keys to a queue as they become due, until cancelled."""
        while True:
            for key in await self.take(_BATCH):
                queue.add(key)
            await asyncio.sleep(0)


K = TypeVar("K", bound=Hashable)

#: Number of stale heap entries (moved or dropped deadlines) tolerated. The heap is rebuilt when it
#: holds more stale entries than this, and more than live ones.
_STALE_ALLOWED = 1024


class Deadlines(Generic[K]):
    """Queue with one deadline per key. `set`, `drop` and `take_due` cost O(log n) per key."""

    def __init__(self) -> None:
        self._due: dict[K, datetime] = {}
        # The sequence number breaks ties by insertion order, since keys need not be comparable.
        self._heap: list[tuple[datetime, int, K]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due: datetime) -> None:
        """Replace the key's deadline, whether the new one is earlier or later."""
        if self._due.get(key) == due:
            return
        self._due[key] = due
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, key))
        if len(self._heap) - len(self._due) > max(_STALE_ALLOWED, len(self._due)):
            self._rebuild()

    def drop(self, key: K) -> None:
        self._due.pop(key, None)

    def bring_forward(self, latest: datetime) -> None:
        """Move every deadline later than `latest` to `latest`."""
        for key in [key for key, due in self._due.items() if due > latest]:
            self.set(key, latest)

    @property
    def next_due(self) -> datetime | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: datetime, *, limit: int) -> list[K]:
        """Remove and return up to `limit` keys that are due at `now`, the most overdue first."""
        taken: list[K] = []
        while len(taken) < limit and (due := self.next_due) is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            taken.append(key)
        return taken

    def _rebuild(self) -> None:
        """Remove superseded entries from the heap."""
        live = {(due, key) for key, due in self._due.items()}
        self._heap = [entry for entry in self._heap if (entry[0], entry[2]) in live]
        heapq.heapify(self._heap)
