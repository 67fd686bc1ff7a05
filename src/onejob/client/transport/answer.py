"""Incremental HTTP response: parser callbacks, decompression and back-pressure."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

import httptools

#: Response heads are short; a peer that sends this much is not an API server.
_MAX_HEAD_BYTES: Final = 256 * 1024
#: Upper bound on a response body that is read as a whole.
MAX_BODY_BYTES: Final = 64 * 2**20
#: Bytes inflated between two yields to the event loop; a millisecond or two of work.
_INFLATED_BYTES: Final = 2**19
#: Unread bytes of a stream at which reading from the socket pauses.
_MAX_WAITING_BYTES: Final = 2**20


class BrokenResponse(ConnectionError):
    """The connection ended early, or carried bytes that are not an HTTP response."""


class UnusableResponse(BrokenResponse):
    """The response is too long, or cannot be decompressed: a retry would give the same."""


class _Inflater:
    """Bounded gzip decompression.

    A kilobyte may inflate to a megabyte, so output is produced in pieces, on demand.
    """

    def __init__(self) -> None:
        self._stream = _gzip()
        self._input = b""
        #: Whether all output of the input so far was returned.
        self.drained = True

    def feed(self, data: bytes) -> None:
        """Add compressed data."""
        self._input += data
        self.drained = False

    def next_piece(self) -> bytes:
        """Return more output; empty only if `drained`. Raises UnusableAnswer."""
        if self._stream.eof:
            # Another member follows. The finished one would keep all that it is given.
            self._stream = _gzip()
        try:
            piece = self._stream.decompress(self._input, _INFLATED_BYTES)
        except zlib.error as error:
            raise UnusableResponse(f"cannot decompress the response: {error}") from error
        self._input = self._stream.unused_data or self._stream.unconsumed_tail
        self.drained = len(piece) < _INFLATED_BYTES and not self._input
        return piece


def _gzip() -> "zlib._Decompress":
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


class IncomingResponse:
    """HTTP response: status and headers after `head` returned; then the body, whole or in pieces.

    The methods from `feed` on are for the connection that receives it.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.status = 0
        #: Values by lower-case name; of repeated headers the last.
        self.headers: dict[str, str] = {}
        self.complete = False
        #: Whether the connection can carry another exchange once this response is complete.
        self.reusable = False
        self._pause = pause
        self._resume = resume
        self._paused = False
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._head_complete = False
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._inflater: _Inflater | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def head(self) -> None:
        """Wait for status and headers. Raises OSError, including TimeoutError."""
        while not self._head_complete:
            await self._wait_for_data()

    async def read(self, most_bytes: int = MAX_BODY_BYTES) -> bytes:
        """Return the whole body.

        Raises OSError; UnusableAnswer if it is longer than `most_bytes`.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.next_piece():
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise UnusableResponse(f"the response has more than {most_bytes} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def next_piece(self) -> bytes:
        """Return more of the body; empty at its end. Raises OSError."""
        while True:
            inflater = self._inflater
            if inflater is not None and not inflater.drained:
                # Yield to the event loop before inflating more.
                await asyncio.sleep(0)
                if piece := inflater.next_piece():
                    return piece
            elif self._pieces:
                received = self._take_pieces()
                if inflater is None:
                    return received
                inflater.feed(received)
            elif self.complete:
                return b""
            else:
                await self._wait_for_data()

    # --- for the connection ---------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises BrokenAnswer."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error.__context__, BrokenResponse):
                raise error.__context__ from None
            raise BrokenResponse(f"invalid HTTP response: {error}") from error
        if not self._head_complete:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                raise BrokenResponse("the response headers are too long")

    def ended(self, error: Exception | None) -> None:
        """Handle the end of the connection.

        This completes a body without a length, and fails any other unfinished response.
        """
        if self.complete:
            return
        until_the_end = not (
            "content-length" in self.headers or "transfer-encoding" in self.headers
        )
        if error is None and self._head_complete and until_the_end:
            self._finish()
        else:
            self.fail(
                error or BrokenResponse("the connection was closed before the end of the response")
            )

    def fail(self, error: Exception) -> None:
        """Have readers raise the error, unless the response is complete."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    # --- for the parser -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Raise BrokenResponse if the response is complete already."""
        if self.complete:
            raise BrokenResponse("unexpected data after the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # Informational response (1xx); the final one follows.
            self.headers.clear()
            return
        self.status = status
        if self.headers.get("content-encoding", "").lower() == "gzip":
            self._inflater = _Inflater()
        self._head_complete = True
        self._wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MAX_WAITING_BYTES and not self._paused:
            self._paused = True
            self._pause()
        self._wake()

    def on_message_complete(self) -> None:
        if self._head_complete:
            self.reusable = self._parser.should_keep_alive()
            self._finish()

    # --- internals ------------------------------------------------------------------------

    def _finish(self) -> None:
        """Note the end of the response."""
        self.complete = True
        self._wake()

    def _take_pieces(self) -> bytes:
        """Return the received pieces, and resume reading."""
        pieces, self._pieces = self._pieces, []
        self._waiting_bytes = 0
        self._resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if not self.complete:
                self._resume()

    async def _wait_for_data(self) -> None:
        """Wait for more data or the end. Raises the error of the connection."""
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
        if self._error is not None and not self._pieces:
            raise self._error

    def _wake(self) -> None:
        """Wake the reader, if one waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
