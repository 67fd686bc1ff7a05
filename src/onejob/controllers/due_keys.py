"""Wakes when the next of many deadlines is due, by the wall clock."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from onejob.clock import Clock
from onejob.informers.workqueue import WorkQueue
from onejob.objects.meta import Key
from onejob.planning.job.deadlines import Deadlines

#: Due keys taken at a time: between two batches others get their turn.
_BATCH: Final = 200


class DueKeys:
    """Keys with a time each; `take` waits for those whose time has come."""

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
        """Look again at what is due. Nothing waits for longer than `longest` from now on."""
        if longest is not None:
            self._deadlines.bring_forward(self._clock.now() + longest)
        self._wake.set()

    async def take(self, limit: int) -> Sequence[Key]:
        """Wait until something is due; remove and return up to `limit` keys."""
        while True:
            self._wake.clear()
            now = self._clock.now()
            if due := self._deadlines.take_due(now, limit=limit):
                return due
            soonest = self._deadlines.next_due
            if soonest is None:
                await self._wake.wait()
                continue
            # Rounded up, so that the timer does not ring just before the time.
            seconds = (soonest - now).total_seconds() + 0.001
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def feed(self, queue: WorkQueue[Key]) -> None:
        """Put keys into a queue as they become due, until cancelled."""
        while True:
            for key in await self.take(_BATCH):
                queue.add(key)
            await asyncio.sleep(0)
