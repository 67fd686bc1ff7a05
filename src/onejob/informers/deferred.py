"""Event coalescing: delay watch events marked `quiet` until a later event supersedes them.

A short Pod is bound, runs and ends within milliseconds, and only its end makes a controller act, so
the events before it need not be decoded. Deferred events are delivered once no other event has
arrived for a tenth of a second, and after one second at the latest.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from onejob.client.base import WatchEvent
from onejob.objects.meta import Key

_IDLE_SECONDS = 0.1
_MAX_DELAY_SECONDS = 1.0


class DeferredEvents:
    """Newest deferred event of each object.

    `deliver` is called when the watch is idle, or after `_MAX_DELAY_SECONDS`, once per turn of the
    event loop until it has taken all deferred events.
    """

    def __init__(self, deliver: Callable[[], None]) -> None:
        self._deliver = deliver
        self._events: dict[Key, WatchEvent] = {}
        #: Whether a delivery timer is pending. Only then can there be a deferred event to
        #: supersede.
        self.waiting = False
        self._busy = False

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: WatchEvent) -> None:
        """Defer an event, in place of an earlier one of the same object."""
        self._events[event.key] = event
        if not self.waiting:
            self.waiting = True
            loop = asyncio.get_running_loop()
            self._start_timer(loop, loop.time() + _MAX_DELAY_SECONDS)

    def supersede(self, key: Key) -> None:
        """Drop the deferred event of this object.

        To be called when a newer event, which includes it, is delivered.
        """
        self._busy = True
        self._events.pop(key, None)

    def clear(self) -> None:
        """Drop all deferred events."""
        self._events.clear()

    def take(self, count: int) -> Sequence[WatchEvent]:
        """Remove and return the oldest deferred events, at most `count`."""
        taken = list(islice(self._events.values(), count))
        for event in taken:
            del self._events[event.key]
        return taken

    def _start_timer(self, loop: asyncio.AbstractEventLoop, latest: float) -> None:
        self._busy = False
        loop.call_later(_IDLE_SECONDS, self._on_timer, loop, latest)

    def _on_timer(self, loop: asyncio.AbstractEventLoop, latest: float) -> None:
        if self._busy and loop.time() < latest:
            self._start_timer(loop, latest)
        else:
            self._deliver_in_turns(loop)

    def _deliver_in_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._events:
            self._deliver()
            # One batch per turn of the loop, so that other callbacks are not delayed.
            loop.call_soon(self._deliver_in_turns, loop)
        else:
            self.waiting = False
