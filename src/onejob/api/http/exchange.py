"""One HTTP request and its response on a connection: ASGI's `receive` and `send`."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeAlias

from onejob.api.http.requests import Receive, Send

App: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)

#: Size of unconsumed body data above which reading from the connection is paused.
_MAX_WAITING_BYTES: Final = 64 * 1024
#: Characters that must not occur in a header, because they allow header injection.
_ENDS_HEADER: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_DISCONNECTED: Final[Mapping[str, Any]] = {"type": "http.disconnect"}
_WITHOUT_BODY: Final = frozenset((204, 304))
_OWN_ERROR: Final = b"Internal Server Error"


class Carrier(Protocol):
    """Connection interface required by an exchange."""

    #: Whether the write buffer is full because the client reads too slowly.
    write_paused: bool

    @property
    def date_line(self) -> bytes:
        """The encoded Date header."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    async def writable(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def answered(self) -> None: ...


class Exchange:
    """One request and response.

    The connection calls `body` and `body_ended` as data arrives; `run` calls the application.
    """

    __slots__ = (
        *("_arrived", "_carrier", "_chunked", "_head", "_head_only", "_knows_chunks", "_left"),
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
        #: Head of a response with a known length, held back to be sent together with the body.
        self._head = b""
        self._chunked = False
        #: Remaining bytes of a body with Content-Length.
        self._left: int | None = None

    def body(self, piece: bytes) -> None:
        if self.answered:
            return
        self._pieces.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            self._carrier.pause_reading()
        self._wake()

    def body_ended(self) -> None:
        self.is_whole = True
        self._wake()

    def hang_up(self) -> None:
        self.gone = not self.answered
        self._wake()

    def _wake(self) -> None:
        self._arrived = True
        if self._woken is not None:
            self._woken.set()

    async def run(self, app: App, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._carrier.close()
            raise
        except Exception:
            log.exception("a request could not be answered")
            await self._fail()
        else:
            if not self.answered and not self.gone:
                log.error("a request was left without its answer")
                await self._fail()

    async def _fail(self) -> None:
        if self.started:
            # Part of the response is sent already; closing the connection shows the client that it
            # is truncated.
            self._carrier.close()
            return
        length = (b"content-length", b"%d" % len(_OWN_ERROR))
        headers = [(b"content-type", b"text/plain; charset=utf-8"), length]
        headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _OWN_ERROR})

    async def receive(self) -> Mapping[str, Any]:
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
            return _DISCONNECTED
        pieces, self._pieces, self._waiting_bytes = self._pieces, [], 0
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def send(self, message: dict[str, Any]) -> None:
        if self._carrier.write_paused and not self.gone:
            await self._carrier.writable()
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message["headers"])
        else:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, code: int, headers: list[tuple[bytes, bytes]]) -> None:
        assert not self.started, "a request has one answer"
        length: bytes | None = None
        closes = False
        lines = [_STATUS_LINES[code], self._carrier.date_line]
        for name, value in headers:
            if _ENDS_HEADER.search(value):
                raise ValueError(f"a header must not contain this: {name!r}: {value!r}")
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                length = value
            elif name == b"connection":
                closes = value == b"close"
        self.started = True
        if self._waits_for_more and not self.is_whole:
            # The client may send the body or its next request; the two cannot be distinguished.
            self.keep_alive = False
        self._waits_for_more = False
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if length is not None:
            self._left = int(length)
        elif self._knows_chunks and not self._head_only and code not in _WITHOUT_BODY:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if length is not None:
            self._head = head
        else:
            # Send the head of a stream immediately, because its first piece may take a while.
            self._carrier.write(head)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        assert self.started, "the head of an answer comes first"
        assert not self.answered, "the answer has ended"
        if self._head_only:
            data = b""
        elif self._chunked:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                data += b"0\r\n\r\n"
        else:
            data = body
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (self._left and not more):
                    raise ValueError("the length of a body is not what its head says")
        if self._head:
            data = self._head + data
            self._head = b""
        if data:
            self._carrier.write(data)
        if not more:
            self.answered = True
            self._wake()
            if not self.keep_alive:
                self._carrier.close()
            self._carrier.answered()
