"""Batching of events reported to the server.

Events that are reported together are written together, which costs the server a third less. So a
container that ends immediately is reported only once, and its end is delayed a moment for the ends
of containers started at the same time. If many containers start, however, the first ends are
reported before the last has begun: the server processes them while the others start, instead of
both waiting for each other.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from onejob.node.supervisor.journal import Attempt

#: Seconds within which a container's end replaces the report of its start.
BRIEF_SECONDS = 0.01
#: Seconds for which events are delayed if containers began less than that ago.
BATCH_DELAY_SECONDS = 0.001
#: Minimum number of events reported while others start, and of events left for later: a smaller
#: batch costs the server more than it gains by being early.
MIN_BATCH = 4


class EventBatcher:
    """Queue of events to report.

    `send` transmits events and returns whether it could; if not, it is called with them again.
    `after` schedules a callback in a number of seconds. `now` is the clock of the attempts' start
    times.
    """

    def __init__(
        self,
        send: Callable[[list[list[Any]]], bool],
        after: Callable[[float, Callable[[], None]], None],
        now: Callable[[], float],
    ) -> None:
        self._send = send
        self._after = after
        self._now = now
        self._events: list[list[Any]] = []
        #: Attempts that began a moment ago, in order, and are not reported yet.
        self._young: deque[Attempt] = deque()
        self._gathering = False

    def add(self, attempt: Attempt) -> None:
        """Queue the attempt's current state."""
        self._events.append(describe(attempt))

    def add_event(self, event: list[Any]) -> None:
        self._events.append(event)

    def began(self, attempt: Attempt) -> None:
        """Note a start; it is reported later if the attempt does not end soon."""
        if not self._young:
            self._after(BRIEF_SECONDS, self._report_long_running)
        self._young.append(attempt)

    def may_be_enough(self, others: int) -> bool:
        """Return whether `flush_partial` might send a batch if some of the `others` have ended."""
        return others + len(self._events) >= 2 * MIN_BATCH

    def flush_partial(self, others: int) -> None:
        """Send a partial batch if it is large enough, and enough `others`, which run or are about
        to start, remain for the next."""
        if len(self._events) >= MIN_BATCH and others >= MIN_BATCH:
            self._flush()

    def tell(self) -> None:
        """Send queued events, or delay them briefly if further ones are likely."""
        if not self._events:
            return
        if not self._others_may_end_now():
            self._flush()
        elif not self._gathering:
            self._gathering = True
            self._after(BATCH_DELAY_SECONDS, self._flush)

    def _flush(self) -> None:
        """Send the gathered events; they are kept if no client takes them."""
        self._gathering = False
        if self._events and self._send(self._events):
            self._events = []

    def _others_may_end_now(self) -> bool:
        """Return whether an attempt that began less than the batch delay ago still runs, and so may
        end soon."""
        now = self._now()
        for attempt in reversed(self._young):
            # Below 0: the clock was set back.
            if not 0 <= now - attempt.started_at < BATCH_DELAY_SECONDS:
                return False
            if attempt.outcome is None:
                return True
        return False

    def _report_long_running(self) -> None:
        """Report starts after the delay. Most containers that end quickly are therefore never
        reported as running, at half the cost."""
        now = self._now()
        while self._young:
            age = now - self._young[0].started_at
            if 0 <= age < BRIEF_SECONDS:
                self._after(BRIEF_SECONDS - age, self._report_long_running)
                return
            attempt = self._young.popleft()
            if attempt.outcome is None:
                self.add(attempt)


def describe(attempt: Attempt, *, with_end: bool = True) -> list[Any]:
    """Return the attempt as an event; without its end if `with_end` is False."""
    outcome = attempt.outcome
    if outcome is None or not with_end:
        return ["started", *attempt.claim, attempt.started_at]
    return [outcome.kind, *attempt.claim, attempt.started_at, *outcome[1:]]
