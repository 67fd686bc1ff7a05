"""Quiet changes wait for the next change of their object, which mostly comes soon and says more.

A Pod is bound, runs and ends within milliseconds; only the end calls for anything. Whoever waits
for what is quiet is told in the next lull, or after a second if there is none.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from onejob.client.base import WatchEvent
from onejob.objects.meta import Key

_LULL_SECONDS = 0.1
_LONGEST_SECONDS = 1.0


class Unheard:
    """The newest quiet change of each object that nobody was told of. `hear` is called in lulls,
    until it has taken all of them."""

    def __init__(self, hear: Callable[[], None]) -> None:
        self._hear = hear
        self._events: dict[Key, WatchEvent] = {}
        self._waiting = False
        self._disturbed = False

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: WatchEvent) -> None:
        self._events[event.key] = event
        if not self._waiting:
            self._waiting = True
            loop = asyncio.get_running_loop()
            self._wait(loop, loop.time() + _LONGEST_SECONDS)

    def overtake(self, key: Key) -> None:
        """Handlers are told of a change now: this is no lull, and what was quiet of the same
        object is told with it."""
        self._disturbed = True
        self._events.pop(key, None)

    def clear(self) -> None:
        self._events.clear()

    def take(self, count: int) -> Sequence[WatchEvent]:
        """The oldest, at most so many."""
        taken = list(islice(self._events.values(), count))
        for event in taken:
            del self._events[event.key]
        return taken

    def _wait(self, loop: asyncio.AbstractEventLoop, latest: float) -> None:
        self._disturbed = False
        loop.call_later(_LULL_SECONDS, self._ring, loop, latest)

    def _ring(self, loop: asyncio.AbstractEventLoop, latest: float) -> None:
        if self._disturbed and loop.time() < latest:
            self._wait(loop, latest)
        else:
            self._hear_in_turns(loop)

    def _hear_in_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._events:
            self._hear()
            # What is left has its turn after others on the loop.
            loop.call_soon(self._hear_in_turns, loop)
        else:
            self._waiting = False
