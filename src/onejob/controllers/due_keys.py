"""Timer for many wall-clock deadlines: wakes when the next one is due."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from onejob.clock import Clock
from onejob.informers.workqueue import WorkQueue
from onejob.objects.meta import Key
from onejob.planning.job.deadlines import Deadlines

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
        soonest = self._deadlines.next_due
        self._deadlines.set(key, due)
        if soonest is None or due < soonest:
            self._wake.set()

    def drop(self, key: Key) -> None:
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
