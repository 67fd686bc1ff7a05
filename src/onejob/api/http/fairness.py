"""Fair queueing between users: a flood of requests by one user does not delay others.

While only one user is active, nothing is limited. While several are active, requests wait in a
queue per user, and each event loop iteration starts one request of each. Most requests complete
within their iteration, so another user waits for one request, however many the first has sent.
Longer ones (waiting for the disk, long lists) are limited to a few per user at a time. A full queue
answers 429, which clients retry.

All service accounts of one namespace count as one user: a user who may edit the namespace can
create, or act as, any number of them.

Endless streams (watches, followed logs, sessions) release their seat once they have started.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from onejob.wire.errors import TooManyRequests

#: Concurrent requests per user that outlast one loop iteration. Requests that
#: wait for the disk share commits.
SEATS: Final = 8
QUEUE: Final = 512
#: Time after a request for which its user counts as active.
_ACTIVE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 1


class _Active(Struct):
    """Requests of one active user."""

    #: Whether a request was started in this loop iteration.
    begun: bool = False
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairQueue:
    """Seats for concurrent requests, shared fairly between users.

    Each successful `enter` or `enter_at_once` must be paired with one `leave` of the same name.
    Requests of one user start in the order of arrival. A cancelled `enter` occupies no seat.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, seats: int = SEATS, queue: int = QUEUE
    ) -> None:
        self._monotonic = monotonic
        self._seats = seats
        self._queue = queue
        self._users: dict[str, _Active] = {}
        self._last_user = ""
        #: Arrival time of that user's last request.
        self._last_at = 0.0
        self._several_until = 0.0
        self._scheduled = False
        #: Totals since the start, for metrics.
        self.waited = 0
        self.refused = 0

    def __len__(self) -> int:
        """Return the number of users with requests."""
        return len(self._users)

    @property
    def waiting(self) -> int:
        """Number of queued requests."""
        return sum(len(user.waiting) for user in self._users.values())

    async def enter(self, name: str) -> None:
        """Wait for a seat, to be released with `leave`.

        Raises TooManyRequests if the queue is full.
        """
        if not self.enter_at_once(name):
            await self.wait(name)

    def enter_at_once(self, name: str) -> bool:
        """Take a seat if one is free and return whether it was.

        The fast path: it succeeds nearly always.
        """
        now = self._monotonic()
        if name != self._last_user:
            if self._last_user:
                # The other user may have become inactive long ago.
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
                self._schedule_dispatch()
                return True
        return False

    async def wait(self, name: str) -> None:
        """Wait for a seat after `enter_at_once` failed. Raises TooManyRequests."""
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
        self._schedule_dispatch()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The seat had already been assigned.
                self.leave(name)
            else:
                if turn in user.waiting:
                    user.waiting.remove(turn)
                self._drop_if_idle(name, user)
            raise

    def leave(self, name: str) -> None:
        """Release a seat and start the next queued request."""
        user = self._users[name]
        user.running -= 1
        if user.waiting:
            self._schedule_dispatch()
        else:
            self._drop_if_idle(name, user)

    def _schedule_dispatch(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Start one queued request of each user with a free seat; all of them if only one user is
        active."""
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
            self._drop_if_idle(name, user)
        if more:
            self._schedule_dispatch()

    def _drop_if_idle(self, name: str, user: _Active) -> None:
        """Drop the state of a user without requests."""
        if user.running or user.waiting or user.begun:
            return
        # The name may belong to a new entry since this one was removed.
        if self._users.get(name) is user:
            del self._users[name]
