"""HTTP connection pool."""

import asyncio
from functools import lru_cache
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from onejob.client.transport.answer import IncomingResponse
from onejob.client.transport.connection import HttpConnection
from onejob.client.transport.dialing import Headers, Route, dial, header_lines

_CONNECT_SECONDS: Final = 10.0
#: Servers close idle connections after some minutes; a connection being closed may swallow a
#: request, so idle ones are discarded earlier.
_IDLE_SECONDS: Final = 60.0

#: Methods whose requests carry Content-Length even if the body is empty.
_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH"))


class PooledResponse:
    """Response whose head has been received. The owner must close it."""

    def __init__(self, answer: IncomingResponse, connection: HttpConnection) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.read = answer.read
        self.next_piece = answer.next_piece
        self._answer = answer
        self._connection = connection

    def close(self) -> None:
        """Release the connection; one whose response is incomplete is closed."""
        if not self._answer.complete:
            self._connection.drop(self._answer)

    async def __aenter__(self) -> "PooledResponse":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Transport:
    """Connections to one server with one client certificate, or with none."""

    def __init__(self, route: Route, headers: Headers) -> None:
        """`headers` are sent with every request."""
        self._route = route
        url = urlsplit(route.server)
        self._headers = (("Host", url.netloc.rpartition("@")[2]), *headers)
        if route.asks_proxy:
            self._headers += route.proxy_headers()
        self._prefix = route.server if route.asks_proxy else url.path
        self._idle: list[HttpConnection] = []
        #: All open connections.
        self._connections: set[HttpConnection] = set()
        self._all_lost: asyncio.Future[None] | None = None
        self._heads = lru_cache(maxsize=64)(self._head)

    async def request(
        self, method: str, target: str, headers: Headers, body: bytes, seconds: float | None
    ) -> PooledResponse:
        """Perform one exchange; the whole response may take `seconds`.

        A GET is sent again if a pooled connection turns out to be closed. For any other method it
        is unknown whether the server received the request, and the error is raised.

        Raises:
            OSError: if the exchange fails; TimeoutError among them.
            ValueError: for headers that cannot be sent.
        """
        loop = asyncio.get_running_loop()
        ends_at = None if seconds is None else loop.time() + seconds
        length = f"Content-Length: {len(body)}\r\n" if body or method in _WITH_BODY else ""
        request = b"%b %b%b%b%b\r\n%b" % (
            method.encode(),
            self._prefix.encode(),
            target.encode(),
            self._heads(headers),
            length.encode(),
            body,
        )
        kept = self._take_idle(loop.time())
        if kept is not None:
            try:
                return PooledResponse(await kept.ask(request, seconds), kept)
            except ConnectionError:
                if method != "GET":
                    raise
        limit = (
            _CONNECT_SECONDS if ends_at is None else min(_CONNECT_SECONDS, ends_at - loop.time())
        )
        async with asyncio.timeout(limit):
            connection = await dial(self._route, self)
        self._connections.add(connection)
        left = None if ends_at is None else ends_at - loop.time()
        return PooledResponse(await connection.ask(request, left), connection)

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._idle.clear()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            self._all_lost = asyncio.get_running_loop().create_future()
            await self._all_lost

    def close_idle(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    # --- Keeper ---------------------------------------------------------------------------

    def idle(self, connection: HttpConnection) -> None:
        """Return a connection to the pool.

        The most recently used one is reused first, so that surplus connections expire.
        """
        now = connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        while now - self._idle[0].idle_since >= _IDLE_SECONDS:
            self._idle.pop(0).close()

    def lost(self, connection: HttpConnection) -> None:
        """Handle the loss of a connection."""
        self._connections.discard(connection)
        if not self._connections and self._all_lost is not None and not self._all_lost.done():
            self._all_lost.set_result(None)

    # --- internals ------------------------------------------------------------------------

    def _head(self, headers: Headers) -> bytes:
        """Return the encoded rest of a request head, after its path."""
        return f" HTTP/1.1\r\n{header_lines((*self._headers, *headers))}".encode()

    def _take_idle(self, now: float) -> HttpConnection | None:
        """Remove and return a usable idle connection; None if there is none."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and now - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.close()
        return None
