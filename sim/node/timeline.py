"""Event queue of the machine, which also advances while no control plane and event loop exist."""

import asyncio
import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Timeline:
    """Queue of timed actions; follows the attached event loop, if any."""

    def __init__(self) -> None:
        self._past = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now(self) -> float:
        return self._past if self._loop is None else max(self._past, self._loop.time())

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def at(self, moment: float, action: Action) -> None:
        """Schedule an action.

        Actions at the same time run in the order in which they were scheduled.
        """
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, action))
        self._arm()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the time of `loop`; actions due until now run first."""
        self.run_until(loop.time())
        self._loop = loop
        self._arm()

    def detach(self) -> None:
        """Stop following the loop: time stands still until `run_until` or the next loop."""
        self._past, self._loop = self.now, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run_until(self, moment: float) -> None:
        while self._events and self._events[0][0] <= moment:
            at, _, action = heapq.heappop(self._events)
            self._past = max(self._past, at)
            action()
        self._past = max(self._past, moment)

    def _arm(self) -> None:
        if self._loop is None or not self._events:
            return
        due = self._events[0][0]
        if self._timer is not None:
            if self._timer.when() <= due and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._run_due)

    def _run_due(self) -> None:
        self._timer = None
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        self._arm()
