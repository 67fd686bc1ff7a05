"""Turns between users: a flood of requests by one does not hold up the others.

As long as one user is alone, nothing is limited. While several are active, requests wait in a
queue per user, and each turn of the event loop begins one of each: most requests are answered
within their turn, so that what another user waits for is one request, however many the first one
has sent. Those that take longer (they wait for the disk, or are long lists) are limited to a few
per user at a time. A queue that is full answers 429, which clients try again.

Service accounts of one namespace are one user here: whoever may edit it can make, or act as, any
number of them.

Streams without an end (watches, followed logs, sessions) leave once they have begun.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from onejob.wire.errors import TooManyRequests

#: Of requests that take longer than a turn. Those that wait for a commit share it.
SEATS: Final = 8
QUEUE: Final = 512
#: A user is active for this long after a request.
_ACTIVE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 1


class _Active:
    """The requests of one user."""

    __slots__ = ("begun", "running", "waiting")

    def __init__(self) -> None:
        #: Whether one was begun in this turn of the loop.
        self.begun = False
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class FairSeats:
    def __init__(
        self, monotonic: Callable[[], float], *, seats: int = SEATS, queue: int = QUEUE
    ) -> None:
        self._monotonic = monotonic
        self._seats = seats
        self._queue = queue
        self._users: dict[str, _Active] = {}
        self._last_user = ""
        #: When that user's last request came.
        self._last_at = 0.0
        self._several_until = 0.0
        self._scheduled = False
        #: Since the start, for metrics.
        self.waited = 0
        self.refused = 0

    def __len__(self) -> int:
        """How many users have requests here."""
        return len(self._users)

    @property
    def waiting(self) -> int:
        return sum(len(user.waiting) for user in self._users.values())

    async def enter(self, name: str) -> None:
        """Wait for a seat; `leave` afterwards. Raises TooManyRequests."""
        if not self.enter_at_once(name):
            await self._wait(name)

    def enter_at_once(self, name: str) -> bool:
        """Whether there was a seat, which is then taken: nearly always, and at little cost."""
        now = self._monotonic()
        if name != self._last_user:
            if self._last_user:
                # The other one may have left long ago.
                active_until = self._last_at + _ACTIVE_SECONDS
                self._several_until = max(self._several_until, active_until)
            self._last_user = name
        self._last_at = now
        user = self._users.get(name)
        if user is None:
            user = self._users[name] = _Active()
        if not user.waiting:
            if now >= self._several_until:
                user.running += 1
                return True
            if not user.begun and user.running < self._seats:
                user.running += 1
                user.begun = True
                self._begin_soon()
                return True
        return False

    async def _wait(self, name: str) -> None:
        user = self._users[name]
        if len(user.waiting) >= self._queue:
            self.refused += 1
            raise TooManyRequests(
                f"too many requests of {name} are waiting, please try again later",
                retry_after_seconds=_RETRY_SECONDS,
            )
        self.waited += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        user.waiting.append(turn)
        self._begin_soon()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The seat was ours already.
                self.leave(name)
            else:
                if turn in user.waiting:
                    user.waiting.remove(turn)
                self._forget_if_gone(name, user)
            raise

    def leave(self, name: str) -> None:
        user = self._users[name]
        user.running -= 1
        if user.waiting:
            self._begin_soon()
        else:
            self._forget_if_gone(name, user)

    def _begin_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        """One request of each user that has a seat left; of one who is alone by now, all."""
        self._scheduled = False
        alone = len(self._users) == 1 and self._monotonic() >= self._several_until
        more = False
        for name, user in tuple(self._users.items()):
            user.begun = False
            while user.waiting and (alone or (not user.begun and user.running < self._seats)):
                turn = user.waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    user.running += 1
                    user.begun = True
            more = more or user.begun
            self._forget_if_gone(name, user)
        if more:
            self._begin_soon()

    def _forget_if_gone(self, name: str, user: _Active) -> None:
        if user.running or user.waiting or user.begun:
            return
        # Another may have come under that name since this one was forgotten.
        if self._users.get(name) is user:
            del self._users[name]
