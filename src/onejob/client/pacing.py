"""Client-side request pacing: a rate limit, and back-off after server failures."""

import asyncio
import heapq
from itertools import count
from random import Random
from typing import Final, Protocol

_FIRST_DELAY: Final = 0.05
_MAX_DELAY_SECONDS: Final = 10.0


class Pace(Protocol):
    """Limit on the rate of requests."""

    async def turn(self, batch: int) -> None:
        """Wait until one more request may be sent.

        `batch` is the number of requests, including this one, that became due together.
        """


class Unlimited:
    """Pace without a limit."""

    async def turn(self, batch: int) -> None:
        """Return at once."""


class RateLimit:
    """Token bucket: `burst` requests at once, then `qps` per second.

    Waiting requests are served in the order of the time at which their whole batch would be done if
    it received all tokens. So the few writes of a small Job go before the hundreds of a giant one,
    and the giant's wait is bounded: only requests that arrive within the time that its own batch
    takes can overtake it.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._counted_at: float | None = None
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, batch: int) -> None:
        """Wait for permission to send one of a batch of requests; its size sets the priority."""
        loop = asyncio.get_running_loop()
        self._refill(loop.time())
        if not self._waiting and self._tokens >= 1:
            self._tokens -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        due = loop.time() + batch / self._qps
        heapq.heappush(self._waiting, (due, next(self._numbers), turn))
        self._set_timer(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The token was granted, but is no longer needed: return it.
                self._tokens += 1
                self._serve(loop)
            raise

    def _refill(self, now: float) -> None:
        """Add the tokens gained since the last call."""
        if self._counted_at is not None:
            gained = (now - self._counted_at) * self._qps
            self._tokens = min(float(self._burst), self._tokens + gained)
        self._counted_at = now

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            missing = max(0.0, 1 - self._tokens)
            self._timer = loop.call_later(missing / self._qps, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._serve(loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let waiting requests go on while there are tokens, by priority."""
        self._refill(loop.time())
        # A timer may fire a moment early because of the float arithmetic above.
        while self._waiting and self._tokens >= 1 - 1e-9:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                self._tokens -= 1
                turn.set_result(None)
        if self._waiting:
            self._set_timer(loop)


def rate_limit(qps: float, burst: int) -> Pace:
    """Return a rate limit of `qps` requests per second; 0 disables the limit."""
    return RateLimit(qps, burst) if qps > 0 else Unlimited()


class Trouble:
    """Exponential back-off with jitter after failures of the server or the network.

    The delay doubles at each further failure. Jitter keeps many clients from reconnecting at the
    same moment. The first success resets it.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.failures = 0
        self._failed_at = 0.0

    def delay(self) -> float:
        """Return the seconds to wait before the next attempt; 0 without failures."""
        if not self.failures:
            return 0.0
        longest = float(min(_FIRST_DELAY * 2 ** (self.failures - 1), _MAX_DELAY_SECONDS))
        return longest * self._rng.uniform(0.5, 1.0)

    def failed(self, sent_at: float, now: float) -> None:
        """Count a failed request.

        Requests in flight at the same time fail together and count once.
        """
        if not self.failures or sent_at >= self._failed_at:
            self.failures = min(self.failures + 1, 30)
            self._failed_at = now

    def succeeded(self) -> None:
        """Reset the count of failures."""
        self.failures = 0


def retry_delay(attempt: int, rng: Random) -> float:
    """Return the seconds to wait before the retry number `attempt` (from 0), with jitter."""
    return float(min(0.25 * 2**attempt, 5.0)) * rng.uniform(0.5, 1.0)
