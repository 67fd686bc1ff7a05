"""What is reported to the owner of the containers, and when: not each thing as it happens.

What is reported together is written together, which costs the server a third less. So a container
that ends at once is reported once, and its end waits a moment for those of its contemporaries.
Where many start, though, the first ends are reported before the last has begun: the server is at
work on those while the others start, instead of both waiting for each other.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from onejob.node.supervisor.journal import Attempt

#: A container that ends within this time is only reported once: that it ended.
BRIEF_SECONDS = 0.01
#: How long news wait for those of containers that began less than that ago.
GATHERING_SECONDS = 0.001
#: What is reported while others start is at least this much, and leaves at least as much: less
#: costs the server more than it gains by being early.
ENOUGH = 4


class News:
    """`send` gets what is to be reported and says whether it was; if not, it gets it again. `after`
    calls back in so many seconds, `now` is the time by which attempts are said to have started."""

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
        #: Began a moment ago, in order; not reported yet.
        self._young: deque[Attempt] = deque()
        self._gathering = False

    def add(self, attempt: Attempt) -> None:
        """Whatever there is to say of it, is to be said."""
        self._events.append(describe(attempt))

    def add_event(self, event: list[Any]) -> None:
        self._events.append(event)

    def began(self, attempt: Attempt) -> None:
        if not self._young:
            self._after(BRIEF_SECONDS, self._report_long_running)
        self._young.append(attempt)

    def may_be_enough(self, others: int) -> bool:
        """Whether it may come to `tell_some` if some of the others have ended."""
        return others + len(self._events) >= 2 * ENOUGH

    def tell_some(self, others: int) -> None:
        """Now, if it is enough, and so many others that run or are about to start are."""
        if len(self._events) >= ENOUGH and others >= ENOUGH:
            self._flush()

    def tell(self) -> None:
        """Now, unless more is near."""
        if not self._events:
            return
        if not self._others_may_end_now():
            self._flush()
        elif not self._gathering:
            self._gathering = True
            self._after(GATHERING_SECONDS, self._flush)

    def _flush(self) -> None:
        self._gathering = False
        if self._events and self._send(self._events):
            self._events = []

    def _others_may_end_now(self) -> bool:
        now = self._now()
        for attempt in reversed(self._young):
            # Below 0: the clock was set back.
            if not 0 <= now - attempt.started_at < GATHERING_SECONDS:
                return False
            if attempt.outcome is None:
                return True
        return False

    def _report_long_running(self) -> None:
        """Most containers that end at once are never seen to run, and cost half as much."""
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
    """`with_end` False keeps how it ended to itself."""
    outcome = attempt.outcome
    if outcome is None or not with_end:
        return ["started", *attempt.claim, attempt.started_at]
    return [outcome.kind, *attempt.claim, attempt.started_at, *outcome[1:]]
