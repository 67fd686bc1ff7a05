"""Cooperative yielding: keep long request handlers from blocking the event loop.

Work is counted in bytes, not timed, so that simulated runs are reproducible. Work that cannot be
split runs in a worker thread, where the interpreter switches every few milliseconds.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from onejob.wire.errors import TooManyRequests

P = ParamSpec("P")
T = TypeVar("T")

#: Bytes of documents that are looked at in one turn: a few milliseconds' worth.
TURN_BYTES: Final = 512 * 1024
#: A document costs this much, however short it is.
DOCUMENT_COST: Final = 2048

#: A request of more bytes, body and stored object together, is worked on by the worker.
INLINE_BYTES: Final = 16 * 1024
#: A single document of more bytes is printed or encoded by the worker, too.
LARGE_BYTES: Final = 64 * 1024
_MOST_WAITING: Final = 64

#: The user whose request the current task answers; "" for the server itself. Service accounts of
#: one namespace are one user, as in `http.fairness`.
REQUESTER: Final = ContextVar("requester", default="")


class Turns:
    def __init__(self, budget: int = TURN_BYTES) -> None:
        self._budget = budget
        self._left = budget

    async def spend(self, cost: int) -> None:
        self._left -= cost
        if self._left <= 0:
            self._left = self._budget
            await asyncio.sleep(0)


class SharedTurns:
    """Byte budget of one turn of the event loop, shared by all streams that spend it.

    A change wakes every watch at once: without a common budget, requests beside them would wait
    for a thousand events to be encrypted. Streams beyond the budget continue in the next turns, in
    the order in which they came.
    """

    def __init__(self, budget: int = TURN_BYTES) -> None:
        self._budget = budget
        self._left = budget
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._scheduled = False

    async def spend(self, cost: int) -> None:
        """Charge `cost`, which may exceed the budget; wait for a turn that has some left."""
        if self._left > 0 and not self._waiting:
            self._left -= cost
            self._begin_soon()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, cost))
        self._begin_soon()
        await turn

    def _begin_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._scheduled = False
        self._left = self._budget
        while self._waiting and self._left > 0:
            turn, cost = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= cost
        if self._waiting:
            self._begin_soon()


class Worker:
    """Single thread for requests that are too large for the event loop, fair between users.

    One thread only: several would contend for the interpreter and delay the loop more than they
    gain. Users have a queue each, and are served one piece of work at a time in turn: a flood of
    large requests by one delays another's by one of them, however many wait. Which user works is
    the context's `REQUESTER`.
    """

    def __init__(self) -> None:
        self._busy = False
        #: The user who was served last.
        self._last = ""
        #: By user, in the order in which they are served; none is empty.
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        #: By user, how many requests hold their whole body while they wait or are worked on.
        self._held: Counter[str] = Counter()
        #: Since the start, for tests: what went through here.
        self.runs = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Raises TooManyRequests when too many wait: each holds its whole body. A user who has
        less than a fair share of them is never refused."""
        user = REQUESTER.get()
        share = max(1, _MOST_WAITING // (len(self._held) or 1))
        if self._held.total() >= _MOST_WAITING and self._held[user] >= share:
            raise TooManyRequests(
                "too many large requests are waiting, please try again later",
                retry_after_seconds=1,
            )
        self._held[user] += 1
        try:
            return await self.turn(work, *args, **kwargs)
        finally:
            self._held[user] -= 1
            if not self._held[user]:
                del self._held[user]

    async def turn(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` without the limit on waiting requests: for callers that hold little while
        they wait, and whose requests are already being answered."""
        user = REQUESTER.get()
        if self._busy:
            await self._wait(user)
        self._busy, self._last = True, user
        try:
            self.runs += 1
            return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            self._pass_on()

    async def _wait(self, user: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The worker was this caller's already.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the thread to the next user's first request; cancelled ones are passed over."""
        while self._queues:
            # Whoever was served last comes after all who wait, also those that came meanwhile.
            user = next((user for user in self._queues if user != self._last), self._last)
            queue = self._queues.pop(user)
            turn = queue.popleft()
            if queue:
                # Behind all others.
                self._queues[user] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
