"""A connection that carries one exchange after the other."""

import asyncio
from typing import Protocol, cast

from onejob.client.transport.answer import Answer, BrokenAnswer


class Keeper(Protocol):
    """Who is notified of what a connection can be used for."""

    def idle(self, connection: "HttpConnection") -> None:
        """An exchange has ended and another may begin."""

    def lost(self, connection: "HttpConnection") -> None:
        """It is closed."""


class HttpConnection(asyncio.Protocol):
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._time_limit: asyncio.TimerHandle | None = None
        self.closed = False
        #: By the loop's clock; while an exchange is under way it means nothing.
        self.idle_since = 0.0

    async def ask(self, request: bytes, seconds: float | None) -> Answer:
        """Send a request; returns once the head of its answer is there. The whole answer may take
        so many seconds. Raises OSError."""
        assert self._answer is None, "one exchange at a time"
        assert self._transport is not None, "there is a transport once it is dialed"
        if self.closed:
            raise BrokenAnswer("the connection is closed")
        transport = self._transport
        answer = self._answer = Answer(transport.pause_reading, transport.resume_reading)
        if seconds is not None:
            self._time_limit = asyncio.get_running_loop().call_later(seconds, self._time_is_up)
        transport.write(request)
        try:
            await answer.head()
        except BaseException:
            self.abort()
            raise
        return answer

    def drop(self, answer: Answer) -> None:
        """Nobody reads the rest of an answer. A connection cannot skip it."""
        if answer is self._answer:
            self.abort()

    def abort(self) -> None:
        self.closed = True
        if self._answer is not None:
            self._answer.fail(BrokenAnswer("the connection was closed"))
        self._end_exchange()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """In order, if nothing is under way."""
        if self._answer is not None:
            self.abort()
        elif self._transport is not None:
            self.closed = True
            self._transport.close()

    # --- asyncio.Protocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop have the methods, not the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            # Nothing was asked for.
            self.abort()
            return
        try:
            answer.feed(data)
        except BrokenAnswer as error:
            answer.fail(error)
            self.abort()
            return
        if answer.complete:
            self._end_exchange()
            if not answer.reusable or self._still_sends():
                self.abort()
            elif not self.closed:
                self._keeper.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        answer = self._answer
        self._end_exchange()
        if answer is not None:
            answer.ended(exc)
        self._keeper.lost(self)

    # --- inside ---------------------------------------------------------------------------

    def _still_sends(self) -> bool:
        """Answers may come before the request was read: what is left of it is never read."""
        return self._transport is None or self._transport.get_write_buffer_size() > 0

    def _end_exchange(self) -> None:
        self._answer = None
        if self._time_limit is not None:
            self._time_limit.cancel()
            self._time_limit = None

    def _time_is_up(self) -> None:
        answer = self._answer
        if answer is not None:
            answer.fail(TimeoutError("the answer took too long"))
            self.abort()
