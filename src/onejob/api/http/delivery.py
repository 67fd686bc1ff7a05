"""Response sending: whole or streamed, compressed on request, ended when the server stops."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final

from onejob.api.http.requests import Receive, Send
from onejob.api.http.responses import (
    GZIP_FROM_BYTES,
    Header,
    Response,
    accepts_gzip,
    compressed,
    compressed_stream,
)

#: Maximum size of one write: data that waits for a slow client is held twice, as plain text and
#: encrypted.
_SLICE_BYTES: Final = 256 * 1024


class Delivery:
    def __init__(self) -> None:
        self._closing: asyncio.Future[None] | None = None
        #: Whether the server is stopping.
        self.closed = False

    async def deliver(
        self,
        answer: Response,
        request_headers: dict[bytes, bytes],
        method: str,
        receive: Receive,
        send: Send,
        request_id: bytes,
        revoked: "asyncio.Future[None] | None" = None,
    ) -> None:
        """Send a response. A stream ends early once `revoked` is done."""
        body = answer.body
        named = (b"audit-id", request_id)
        headers: list[Header] = [(b"content-type", answer.content_type), named, *answer.headers]
        if isinstance(body, bytes) and len(body) <= GZIP_FROM_BYTES:
            await _send_whole(answer.code, headers, body, send)
            return
        if _compressible(answer) and accepts_gzip(request_headers):
            body = compressed(body) if isinstance(body, bytes) else compressed_stream(body)
            headers.append((b"content-encoding", b"gzip"))
        if isinstance(body, bytes):
            await _send_whole(answer.code, headers, body, send)
            return
        await send({"type": "http.response.start", "status": answer.code, "headers": headers})
        if method != "HEAD":
            ends: tuple[asyncio.Future[None], ...] = () if revoked is None else (revoked,)
            if answer.endless:
                ends = (*ends, self._end_of_streams())
            await _send_stream(body, receive, send, ends)
        await send({"type": "http.response.body", "body": b""})

    def close_streams(self) -> None:
        """End all endless streams, including streams that start later."""
        self.closed = True
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def _end_of_streams(self) -> "asyncio.Future[None]":
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            if self.closed:
                self._closing.set_result(None)
        return self._closing


async def _send_stream(
    body: AsyncIterator[bytes],
    receive: Receive,
    send: Send,
    ends: Iterable["asyncio.Future[None]"],
) -> None:
    """Send until the stream ends, the client disconnects, or one of `ends` is done."""
    pump = asyncio.ensure_future(_pump(body, send))
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((pump, gone, *ends), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        pump.cancel()
        await asyncio.wait((pump, gone))
    if not pump.cancelled():
        pump.result()


async def _send_whole(code: int, headers: list[Header], body: bytes, send: Send) -> None:
    if code != 304:
        headers.append((b"content-length", b"%d" % len(body)))
    if code in (408, 413):
        # Close the connection, because the rest of the request body will not be read.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": code, "headers": headers})
    last = (len(body) - 1) // _SLICE_BYTES * _SLICE_BYTES if body else 0
    for start in range(0, last, _SLICE_BYTES):
        piece = body[start : start + _SLICE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": body[last:] if last else body})


async def _pump(body: AsyncIterator[bytes], send: Send) -> None:
    if not isinstance(body, AsyncGenerator):
        body = _generated(body)
    async with aclosing(body) as pieces:
        async for piece in pieces:
            for start in range(0, len(piece), _SLICE_BYTES):
                # Most pieces fit into one slice.
                part = piece[start : start + _SLICE_BYTES]
                await send({"type": "http.response.body", "body": part, "more_body": True})


async def _generated(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in body:
        yield piece


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _compressible(answer: Response) -> bool:
    """Return whether a response may be compressed: endless streams and plain text must arrive
    without buffering."""
    return not answer.endless and not answer.content_type.startswith(b"text/")
