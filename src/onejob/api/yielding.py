"""Cooperative yielding: keep long request handlers from blocking the event loop.

Work is counted in bytes, not timed, so that simulated runs are reproducible. Work that cannot be
split runs in a worker thread; the interpreter switches between it and the event loop.
"""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from onejob.wire.errors import TooManyRequests

P = ParamSpec("P")
T = TypeVar("T")

#: Document bytes processed between two yields; a few milliseconds of work.
YIELD_INTERVAL_BYTES: Final = 512 * 1024
#: Fixed cost per document in bytes, so that many short documents also yield.
PER_DOCUMENT_COST_BYTES: Final = 2048

#: Request size (body plus stored object) above which the worker thread is used.
INLINE_BYTES: Final = 16 * 1024
#: Size of a single document above which it is rendered or encoded in the worker thread.
LARGE_BYTES: Final = 64 * 1024
_MAX_QUEUED_REQUESTS: Final = 64
#: Seconds between the interpreter's thread switches while the worker thread is busy. A tiny request
#: takes the loop through some ten switches; at the default of 5 ms each, it waits for 50 ms. Not
#: set permanently, because it costs about a tenth of the throughput of small writes.
_BUSY_SWITCH_SECONDS: Final = 0.0005

#: User of the current task's request; "" for the server itself. Service accounts of one namespace
#: count as one user, as in `http.fairness`.
REQUESTER: Final = ContextVar("requester", default="")


class Turns:
    """Byte budget of one handler. Not shared between tasks."""

    def __init__(self, budget: int = YIELD_INTERVAL_BYTES) -> None:
        self._budget = budget
        self._left = budget

    async def spend(self, cost: int) -> None:
        """Charge `cost` bytes to the budget; yield to the event loop when it is used up."""
        self._left -= cost
        if self._left <= 0:
            self._left = self._budget
            await asyncio.sleep(0)


class SharedYieldBudget:
    """Byte budget of one event loop iteration, shared by all streams.

    A change wakes every watch at once: without a common budget, other requests would wait for a
    thousand events to be encrypted. Streams beyond the budget continue in later iterations, in
    order of arrival.
    """

    def __init__(self, budget: int = YIELD_INTERVAL_BYTES) -> None:
        self._budget = budget
        self._left = budget
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._scheduled = False

    async def spend(self, cost: int) -> None:
        """Charge `cost`, which may exceed the budget; wait for an iteration with some budget
        left."""
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
        """Renew the budget, and let waiting handlers go on while it lasts."""
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
    """Single worker thread for requests too large for the event loop, fair between users.

    One thread only: several would contend for the interpreter and delay the loop more than they
    gain. Each user has a queue, and users are served round-robin: a flood of large requests by one
    user delays another's by one of them, however many wait. The user is the context's `REQUESTER`.
    """

    def __init__(self) -> None:
        self._busy = False
        #: User that was served last.
        self._last = ""
        #: Non-empty queues by user, in the order of service.
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        #: Requests per user that hold their whole body while they wait or run.
        self._held: Counter[str] = Counter()
        #: Number of runs since the start, for tests.
        self.runs = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the worker thread.

        Raises TooManyRequests if too many requests wait, since each holds its whole body. A user
        with less than a fair share of them is never rejected.
        """
        user = REQUESTER.get()
        share = max(1, _MAX_QUEUED_REQUESTS // (len(self._held) or 1))
        if self._held.total() >= _MAX_QUEUED_REQUESTS and self._held[user] >= share:
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
        """Run `work` without the limit on waiting requests.

        For callers that hold little memory while they wait and whose responses have already
        started.
        """
        user = REQUESTER.get()
        if self._busy:
            await self._wait(user)
        self._busy, self._last = True, user
        try:
            self.runs += 1
            with _fast_switching:
                return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            self._pass_on()

    async def _wait(self, user: str) -> None:
        """Wait until the worker is assigned to this caller, in turn with other users.

        If cancelled, passes an assignment on.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The worker had already been assigned to this caller.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Assign the thread to the next user's first request, skipping cancelled ones."""
        while self._queues:
            # The user served last comes after all waiting users, even those that arrived later.
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


class _FastSwitching:
    """Shorter switch interval of the interpreter while any worker of this process is busy."""

    def __init__(self) -> None:
        self._busy = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        if not self._busy:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(_BUSY_SWITCH_SECONDS)
        self._busy += 1

    def __exit__(self, *_: object) -> None:
        self._busy -= 1
        if not self._busy:
            sys.setswitchinterval(self._usual)


_fast_switching: Final = _FastSwitching()
