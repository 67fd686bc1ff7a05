"""One HTTP request and its response on a connection."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias

from onejob.api.http.requests import ClientGone, Request
from onejob.api.http.responses import Response

#: Application behind a connection. It raises ClientGone, and otherwise always responds.
App: TypeAlias = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)

#: Size of unconsumed body data above which reading from the connection is paused.
_MAX_WAITING_BYTES: Final = 64 * 1024
#: Maximum size of one write: data that waits for a slow client is held twice, as plain text and
#: encrypted.
_SLICE_BYTES: Final = 256 * 1024
#: Characters that must not occur in a header, because they allow header injection.
_ENDS_HEADER: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_WITHOUT_BODY: Final = frozenset((204, 304))
#: Responses to requests whose body was not read to its end: the connection is closed.
_BODY_UNREAD: Final = frozenset((408, 413))
_OWN_ERROR: Final = Response(500, b"Internal Server Error", b"text/plain; charset=utf-8")


class Carrier(Protocol):
    """Connection interface required by an exchange."""

    #: Whether the write buffer is full because the client reads too slowly.
    write_paused: bool

    @property
    def date_line(self) -> bytes:
        """The encoded Date header."""

    def write(self, data: bytes) -> None:
        """Write to the connection's buffer without waiting."""

    def close(self) -> None:
        """Close the connection after its buffer is sent."""

    async def writable(self) -> None:
        """Wait until the write buffer has room."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def answered(self) -> None:
        """Note that the response is complete."""


class Exchange:
    """One request and response.

    The connection calls `body` and `body_ended` as data arrives; `run` calls the application, which
    reads the body with `receive`.
    """

    __slots__ = (
        *("_arrived", "_carrier", "_chunked", "_head_only", "_knows_chunks"),
        *("_pieces", "_waiting_bytes", "_waits_for_more", "_woken"),
        *("answered", "gone", "is_whole", "keep_alive", "started"),
    )

    def __init__(
        self,
        carrier: Carrier,
        *,
        head_only: bool,
        keep_alive: bool,
        waits_for_more: bool,
        knows_chunks: bool,
    ) -> None:
        """`waits_for_more`: the client sends the body only after 100 Continue.

        A client that does not understand chunked encoding (HTTP/1.0) detects the end of a response
        by the end of the connection.
        """
        self._carrier = carrier
        self._knows_chunks = knows_chunks
        self._head_only = head_only
        self._waits_for_more = waits_for_more
        self.keep_alive = keep_alive
        #: Whether the client has disconnected.
        self.gone = False
        #: Whether the response is completely sent.
        self.answered = False
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        #: Whether input has arrived that the application has not received yet.
        self._arrived = False
        #: Whether the request is completely received.
        self.is_whole = False
        self._woken: asyncio.Event | None = None
        #: Whether the head of the response is sent or about to be.
        self.started = False
        self._chunked = False

    # --- interface for the connection -------------------------------------------------------------

    def body(self, piece: bytes) -> None:
        """Add a piece of the request's body; reading pauses while too many are unread."""
        if self.answered:
            return
        self._pieces.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            self._carrier.pause_reading()
        self._notify_receiver()

    def body_ended(self) -> None:
        self.is_whole = True
        self._notify_receiver()

    def hang_up(self) -> None:
        self.gone = not self.answered
        self._notify_receiver()

    def _notify_receiver(self) -> None:
        self._arrived = True
        if self._woken is not None:
            self._woken.set()

    async def run(self, app: App, request: Request) -> None:
        """Have the application handle the request and send its response.

        Errors of the application are logged and answered with 500.
        """
        response: Response | None = None
        try:
            response = await app(request)
            await self._send(response)
        except ClientGone:
            return
        except asyncio.CancelledError:
            self._carrier.close()
            raise
        except Exception:
            log.exception("a request could not be answered")
            await self._fail()
        finally:
            if response is not None and response.on_end is not None:
                response.on_end()

    async def _fail(self) -> None:
        """Send 500, or close the connection if a response has started."""
        if self.started:
            # Part of the response is sent already; closing the connection shows the client that it
            # is truncated.
            self._carrier.close()
            return
        self.keep_alive = False
        await self._send(_OWN_ERROR)

    # --- the request body -------------------------------------------------------------------------

    async def receive(self) -> tuple[bytes, bool]:
        """Return the next piece of the body and whether more follow (`BodyStream`).

        After the last piece, wait for the end of the exchange. Raises ClientGone.
        """
        if self._waits_for_more and not self.gone:
            self._waits_for_more = False
            self._carrier.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.gone and not self.answered:
            self._carrier.resume_reading()
            if not self._arrived:
                self._woken = asyncio.Event()
                await self._woken.wait()
                self._woken = None
            self._arrived = False
        if self.gone or self.answered:
            raise ClientGone
        pieces, self._pieces, self._waiting_bytes = self._pieces, [], 0
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return body, not self.is_whole

    async def _disconnected(self) -> None:
        """Discard the rest of the body; return once the client has disconnected."""
        with suppress(ClientGone):
            while True:
                await self.receive()

    # --- the response -----------------------------------------------------------------------------

    async def _send(self, response: Response) -> None:
        """Send a response; do nothing if the client has left."""
        body = response.body
        if not isinstance(body, bytes):
            await self._send_stream(response, body)
            return
        carrier = self._carrier
        if carrier.write_paused and not self.gone:
            await carrier.writable()
        if self.gone:
            return
        # Send the head together with the body.
        head = self._head(response, len(body))
        if self._head_only:
            body = b""
        last = (len(body) - 1) // _SLICE_BYTES * _SLICE_BYTES if body else 0
        for start in range(0, last, _SLICE_BYTES):
            carrier.write(head + body[start : start + _SLICE_BYTES])
            head = b""
            if carrier.write_paused and not self.gone:
                await carrier.writable()
            if self.gone:
                return
        carrier.write(head + (body[last:] if last else body))
        self._end()

    async def _send_stream(self, response: Response, body: AsyncIterator[bytes]) -> None:
        """Send a response in pieces; close its stream if the client has left."""
        carrier = self._carrier
        if carrier.write_paused and not self.gone:
            await carrier.writable()
        if not self.gone:
            # Send the head immediately, because the first piece may take a while.
            carrier.write(self._head(response, None))
        if not self._head_only:
            await self._relay(body, response.ends)
        await self._write(b"0\r\n\r\n" if self._chunked else b"")
        if not self.gone:
            self._end()

    async def _relay(
        self, body: AsyncIterator[bytes], ends: tuple["asyncio.Future[None]", ...]
    ) -> None:
        """Send until the stream ends, the client disconnects, or one of `ends` is done."""
        pump = asyncio.ensure_future(self._send_body(body))
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((pump, gone, *ends), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pump.cancel()
            await asyncio.wait((pump, gone))
        if not pump.cancelled():
            pump.result()

    async def _send_body(self, body: AsyncIterator[bytes]) -> None:
        """Write the pieces of a response body, waiting while the client does not read."""
        if not isinstance(body, AsyncGenerator):
            body = _as_generator(body)
        async with aclosing(body) as pieces:
            async for piece in pieces:
                for start in range(0, len(piece), _SLICE_BYTES):
                    # Most pieces fit into one slice.
                    part = piece[start : start + _SLICE_BYTES]
                    await self._write(
                        b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part
                    )

    async def _write(self, data: bytes) -> None:
        """Write once the client has read most of what is sent; do nothing if it is gone."""
        if self._carrier.write_paused and not self.gone:
            await self._carrier.writable()
        if data and not self.gone:
            self._carrier.write(data)

    def _head(self, response: Response, length: int | None) -> bytes:
        """Return the encoded head. `length` is None for a stream."""
        assert not self.started, "a request has one response"
        code = response.code
        lines = [_STATUS_LINES[code], self._carrier.date_line]
        for name, value in ((b"content-type", response.content_type), *response.headers):
            if _ENDS_HEADER.search(value):
                raise ValueError(f"a header must not contain this: {name!r}: {value!r}")
            lines.append(b"%b: %b\r\n" % (name, value))
        if length is not None and code != 304:
            lines.append(b"content-length: %d\r\n" % length)
        self.started = True
        if code in _BODY_UNREAD:
            self.keep_alive = False
        if self._waits_for_more and not self.is_whole:
            # The client may send the body or its next request; the two cannot be distinguished.
            self.keep_alive = False
        self._waits_for_more = False
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        is_stream = length is None and code not in _WITHOUT_BODY
        if is_stream and self._knows_chunks and not self._head_only:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _end(self) -> None:
        """Mark the response as complete, and close the connection unless it is kept alive."""
        self.answered = True
        if self._woken is not None:
            self._woken.set()
        if not self.keep_alive:
            self._carrier.close()
        self._carrier.answered()


async def _as_generator(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Return the iterator as an async generator, which can be closed."""
    async for piece in body:
        yield piece
