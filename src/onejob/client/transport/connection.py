"""Persistent HTTP/1.1 connection: one exchange after the other."""

import asyncio
from typing import Protocol, cast

from onejob.client.transport.answer import BrokenResponse, IncomingResponse


class Keeper(Protocol):
    """Observer of a connection's availability, in practice the pool."""

    def idle(self, connection: "HttpConnection") -> None:
        """Handle the end of an exchange: another may begin."""

    def lost(self, connection: "HttpConnection") -> None:
        """Handle the end of the connection."""


class HttpConnection(asyncio.Protocol):
    """Connection for one request at a time."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._transport: asyncio.Transport | None = None
        self._answer: IncomingResponse | None = None
        self._time_limit: asyncio.TimerHandle | None = None
        self.closed = False
        #: Loop time at which the connection became idle; meaningless during an exchange.
        self.idle_since = 0.0

    async def ask(self, request: bytes, seconds: float | None) -> IncomingResponse:
        """Send a request and return once the head of its response has arrived.

        The whole response may take `seconds`. Raises OSError.
        """
        assert self._answer is None, "one exchange at a time"
        assert self._transport is not None, "there is a transport once it is dialed"
        if self.closed:
            raise BrokenResponse("the connection is closed")
        transport = self._transport
        answer = self._answer = IncomingResponse(transport.pause_reading, transport.resume_reading)
        if seconds is not None:
            self._time_limit = asyncio.get_running_loop().call_later(seconds, self._time_is_up)
        transport.write(request)
        try:
            await answer.head()
        except BaseException:
            self.abort()
            raise
        return answer

    def drop(self, answer: IncomingResponse) -> None:
        """Abort the connection if this response is unfinished.

        The unread rest of a response cannot be skipped.
        """
        if answer is self._answer:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once; a response in progress fails."""
        self.closed = True
        if self._answer is not None:
            self._answer.fail(BrokenResponse("the connection was closed"))
        self._end_exchange()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close gracefully if idle, otherwise abort."""
        if self._answer is not None:
            self.abort()
        elif self._transport is not None:
            self.closed = True
            self._transport.close()

    # --- asyncio.Protocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, but are no subclass of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            # Data without a request.
            self.abort()
            return
        try:
            answer.feed(data)
        except BrokenResponse as error:
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

    # --- internals ------------------------------------------------------------------------

    def _still_sends(self) -> bool:
        """Return whether part of the request is still unsent.

        A server may respond before it has read the request, and then never reads the rest.
        """
        return self._transport is None or self._transport.get_write_buffer_size() > 0

    def _end_exchange(self) -> None:
        self._answer = None
        if self._time_limit is not None:
            self._time_limit.cancel()
            self._time_limit = None

    def _time_is_up(self) -> None:
        answer = self._answer
        if answer is not None:
            answer.fail(TimeoutError("the response timed out"))
            self.abort()
