"""HTTP/1.1 connection, parsed by httptools, with limits on header size and header time."""

import asyncio
import logging
from collections import deque
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import httptools

from onejob.api.access.authentication import peer_end, peer_subject
from onejob.api.http.exchange import App, Exchange
from onejob.api.http.requests import NO_BODY, UNKNOWN_PEER, BodyStream, Peer, Request
from onejob.api.sessions.spdy_transport import SpdyConnection
from onejob.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

_KEEP_ALIVE_SECONDS: Final = 120
_MAX_HEADER_BYTES: Final = 64 * 1024
_HEADER_SECONDS: Final = 30.0
#: Pipelined requests are parsed in steps of this size. While requests are queued, up to
#: `_HELD_BYTES` of further input are kept unparsed: a parsed request takes fifty times its bytes.
_READ_AHEAD_BYTES: Final = 4 * 1024
_HELD_BYTES: Final = 64 * 1024
#: Write buffer limit of this process per client; the kernel buffers about as much.
_UNREAD_BYTES: Final = 16 * 1024
#: Number of stalled clients that is tolerated. Up to it, clients may pause reading indefinitely.
_MAX_STALLED: Final = 256
_STALLED_SECONDS: Final = 10.0
#: Far above that number, clients get less time: each holds about a quarter of a megabyte.
_FAR_TOO_MANY_STALLED: Final = 2 * _MAX_STALLED
_STALLED_SECONDS_OF_MANY: Final = 1.0

_PHRASES: Final = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    505: b"HTTP Version Not Supported",
}
_VERSIONS: Final = ("1.1", "1.0")
#: Time for which a new or unauthenticated connection is spared while other clients wait for a
#: connection.
_UNKNOWN_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


class _Stallable(Protocol):
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport


class OpenConnections:
    """State shared by all connections: the open ones, requests in progress, the Date header."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.app = app
        self._clock = clock
        #: Objects with a `transport` and a `shutdown` method.
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        #: Callback for the end of a connection.
        self.on_closed: Callable[[], None] = lambda: None
        self.date_line = b""
        self._renew_at = 0.0
        #: Connections whose clients do not read, with the time since when, oldest first.
        self._stalled: dict[_Stallable, float] = {}
        self._stall_timer: asyncio.TimerHandle | None = None
        self._stall_due = 0.0

    def stalls(self, connection: "_Stallable") -> None:
        """Register a connection whose client does not read."""
        self._stalled[connection] = connection.loop.time()
        self._schedule_stall_check(connection.loop)

    def goes_on(self, connection: "_Stallable") -> None:
        self._stalled.pop(connection, None)

    def _schedule_stall_check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule `_end_stalled` while too many connections are stalled."""
        if len(self._stalled) <= _MAX_STALLED:
            return
        since = next(iter(self._stalled.values()))
        due = max(since + self._patience, loop.time() + 1)
        if self._stall_timer is not None:
            if due >= self._stall_due:
                return
            self._stall_timer.cancel()
        self._stall_due = due
        self._stall_timer = loop.call_at(due, self._end_stalled, loop)

    def _end_stalled(self, loop: asyncio.AbstractEventLoop) -> None:
        """Abort the connections that have stalled longest.

        Clients reconnect and resume, or list again.
        """
        self._stall_timer = None
        for connection, since in tuple(self._stalled.items()):
            if len(self._stalled) <= _MAX_STALLED or loop.time() - since < self._patience:
                break
            log.info("hung up on a client that has not read for %.0f s", loop.time() - since)
            del self._stalled[connection]
            connection.transport.abort()
        self._schedule_stall_check(loop)

    @property
    def _patience(self) -> float:
        """Seconds for which a client may read nothing."""
        if len(self._stalled) > _FAR_TOO_MANY_STALLED:
            return _STALLED_SECONDS_OF_MANY
        return _STALLED_SECONDS

    def make_room(self) -> None:
        """Close idle connections and unauthenticated ones.

        Clients of idle connections reconnect for their next request. Unauthenticated clients must
        not block others with half a request.
        """
        for connection in tuple(self.connections):
            if isinstance(connection, Connection):
                if connection.is_idle:
                    connection.close()
                elif connection.is_unknown:
                    connection.transport.abort()

    def renew_date(self) -> None:
        """Update the Date header at most once per second; called only when requests arrive."""
        now = self._clock.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + 1.0
            date = formatdate(self._clock.now().timestamp(), usegmt=True)
            self.date_line = b"date: %b\r\n" % date.encode()


class Connection(asyncio.Protocol):
    """Protocol of one connection. Pipelined requests are answered strictly in order."""

    transport: asyncio.Transport

    def __init__(self, shared: OpenConnections, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._shared = shared
        self._parser = httptools.HttpRequestParser(self)
        # Data after the last request of a connection is ignored and not treated as an error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._peer = UNKNOWN_PEER
        # State of the request that is being parsed.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._waits_for_more = False
        self._upgrade = b""
        #: Bytes of the parsed head, and raw bytes of a head, of trailers or of other input that the
        #: parser reports only at its end.
        self._header_bytes = 0
        self._raw_bytes = 0
        self._new_bytes = 0
        self._in_message = False
        self._in_headers = True
        self._header_timer: asyncio.TimerHandle | None = None
        self._refused = False
        #: The request whose body is arriving, the one being answered, and the queue behind it.
        self._arriving: Exchange | None = None
        self._answering: Exchange | None = None
        self._waiting: deque[tuple[Exchange, Request]] = deque()
        #: Unparsed input after the queued requests.
        self._held = b""
        self._reading_paused = False
        self.write_paused = False
        self._may_write: asyncio.Event | None = None
        #: Time since which the next request is awaited; None during a request.
        self._idle_since: float | None = None
        #: Time since which the connection or its request is unauthenticated; None while a request
        #: of an authenticated user is answered.
        self._unknown_since: float | None = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether the connection waits for the client's next request."""
        return self._idle_since is not None and not self._in_message

    @property
    def is_unknown(self) -> bool:
        """Return whether the connection has waited for some time for the rest of a request without
        an authenticated user."""
        since = self._unknown_since
        return since is not None and self.loop.time() - since >= _UNKNOWN_SECONDS

    @property
    def date_line(self) -> bytes:
        return self._shared.date_line

    # --- the transport ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self.transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(_UNREAD_BYTES)
        self._shared.connections.add(self)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        address = transport.get_extra_info("peername")
        self._peer = Peer(
            str(address[0]) if address else "", peer_subject(certificate), peer_end(certificate)
        )
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self._stop_idle_timer()
        self._shared.goes_on(self)
        self._shared.connections.discard(self)
        for exchange in (self._answering, self._arriving):
            if exchange is not None:
                exchange.hang_up()
        self._drop_pipelined()
        self.resume_writing()
        self._shared.on_closed()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._shared.stalls(self)

    def resume_writing(self) -> None:
        self.write_paused = False
        self._shared.goes_on(self)
        if self._may_write is not None:
            self._may_write.set()
            self._may_write = None

    def data_received(self, data: bytes) -> None:
        if self._waiting:
            self._buffer(data)
        elif len(data) <= _READ_AHEAD_BYTES:
            self._read(data)
        else:
            self._read_in_pieces(data)

    def _read_in_pieces(self, data: bytes) -> None:
        for start in range(0, len(data), _READ_AHEAD_BYTES):
            if self._waiting:
                self._buffer(data[start:])
                return
            self._read(data[start : start + _READ_AHEAD_BYTES])

    def _buffer(self, data: bytes) -> None:
        """Buffer received data; pause reading when there is too much."""
        # Keep reading for a while: only reading reveals that the client has disconnected.
        self._held += data
        if len(self._held) > _HELD_BYTES:
            self.pause_reading()

    def _read(self, data: bytes) -> None:
        """Feed data to the parser, and hand the connection over after an upgrade.

        Data after a refused request is ignored.
        """
        if self._refused or self._upgrade or self.transport.is_closing():
            return
        # Bytes between two messages belong to the head of the next one.
        self._new_bytes = 0 if self._in_message else len(data)
        self._raw_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._upgrade:
                self._hand_to_upgrade()
                return
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserCallbackError):
                log.error("a request could not be read", exc_info=error.__context__)
            self._refuse(400, b"Invalid HTTP request received.")
            return
        if self._refused:
            return
        if self._raw_bytes > _MAX_HEADER_BYTES:
            # The parser does not report a line before its end.
            self._refuse(431)
        elif self._in_headers and self._header_timer is None:
            self._await_headers()

    def shutdown(self) -> None:
        """Close the connection after the response in progress, because the server is stopping."""
        if self._answering is None:
            self.close()
        else:
            self._answering.keep_alive = False

    # --- interface for Exchange -------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        self.transport.close()

    async def writable(self) -> None:
        """Wait until the write buffer has room."""
        if self._may_write is None:
            self._may_write = asyncio.Event()
        await self._may_write.wait()

    def pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and len(self._held) <= _HELD_BYTES:
            self._reading_paused = False
            self.transport.resume_reading()

    def answered(self) -> None:
        """Begin the next pipelined request, or continue reading."""
        self._answering = None
        self._unknown_since = self.loop.time()
        if self.transport.is_closing():
            self._drop_pipelined()
        elif self._waiting:
            self._begin(*self._waiting.popleft())
            if not self._waiting:
                held, self._held = self._held, b""
                self._read_in_pieces(held)
            self.resume_reading()
        else:
            if self._reading_paused:
                self.resume_reading()
            self._idle_since = self.loop.time()
            if self._idle_timer is None:
                self._watch_idle(_KEEP_ALIVE_SECONDS)

    # --- requests -----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_message = self._in_headers = True
        self._header_bytes = 0
        self._raw_bytes, self._new_bytes = self._new_bytes, 0
        self._url = b""
        self._headers = []
        self._waits_for_more = False
        self._arriving = None

    def on_url(self, url: bytes) -> None:
        self._header_bytes += len(url)
        if self._header_bytes > _MAX_HEADER_BYTES:
            self._refuse_once(431)
            return
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > _MAX_HEADER_BYTES:
            # Trailers, which follow the body, count as well.
            self._refuse_once(431)
            return
        if not self._in_headers:
            # Ignore trailers.
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._waits_for_more = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._raw_bytes = 0
        if self._header_timer is not None:
            self._stop_header_timer()
        if self._refused:
            return
        self._shared.renew_date()
        version = self._parser.get_http_version()
        if version not in _VERSIONS:
            self._refuse(505, b"unsupported protocol version")
            return
        target = _split(self._url)
        if target is None:
            self._refuse(400, b"Invalid HTTP request received.")
            return
        upgrades = self._parser.should_upgrade()
        if upgrades:
            if _has_body(self._headers):
                # The parser skips the body: it would be lost, or be taken for data of the new
                # protocol.
                self._refuse(400, b"A request for an upgrade has no body.")
                return
            self._upgrade = self._wanted_upgrade()
            if self._upgrade:
                return
        method = self._parser.get_method().decode("ascii")
        is_old = version == "1.0"
        exchange = self._arriving = Exchange(
            self,
            head_only=method == "HEAD",
            keep_alive=self._parser.should_keep_alive() and not upgrades and not is_old,
            # HTTP/1.0 does not define Expect, even if the client sends it.
            waits_for_more=self._waits_for_more and not is_old,
            knows_chunks=not is_old,
        )
        request = self._request(method, *target, exchange)
        if self._answering is None:
            self._begin(exchange, request)
        else:
            # Pipelined: queue it behind the request in progress.
            self._waiting.append((exchange, request))

    def on_body(self, body: bytes) -> None:
        self._raw_bytes = 0
        if not self._refused and self._arriving is not None:
            self._arriving.body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        if not self._refused and self._arriving is not None:
            self._arriving.body_ended()

    def _drop_pipelined(self) -> None:
        self._waiting.clear()
        self._held = b""

    def _begin(self, exchange: Exchange, request: Request) -> None:
        """Have the application handle a request in a task of its own."""
        self._answering = exchange
        self._idle_since = None
        self._unknown_since = self.loop.time()
        task = self.loop.create_task(exchange.run(self._shared.app, request))
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def _user_known(self) -> None:
        self._unknown_since = None

    def _request(
        self, method: str, path: str, query: bytes, stream: BodyStream = NO_BODY, upgrade: str = ""
    ) -> Request:
        """Return the request with the parsed headers."""
        return Request(
            method,
            path,
            query,
            self._headers,
            dict(self._headers),
            stream,
            self._peer,
            upgrade,
            on_authenticated=self._user_known,
        )

    # --- other protocols ------------------------------------------------------------------------

    def _wanted_upgrade(self) -> bytes:
        """Return the protocol to upgrade to.

        Empty if it is unsupported or the upgrade is impossible now; the request is then answered
        without an upgrade.
        """
        if self._answering is not None:
            # The connection is still needed for the response in progress and to notice a
            # disconnect.
            return b""
        headers = dict(self._headers)
        tokens = headers.get(b"connection", b"").lower().replace(b" ", b"").split(b",")
        wanted = headers.get(b"upgrade", b"").lower()
        return wanted if b"upgrade" in tokens and wanted in (b"websocket", b"spdy/3.1") else b""

    def _hand_to_upgrade(self) -> None:
        """Replace this connection by the one that the request upgrades to."""
        self._stop_idle_timer()
        target = _split(self._url)
        assert target is not None, "requests without a path are refused"
        shared = self._shared
        method = self._parser.get_method().decode("ascii")
        request = self._request(method, *target, upgrade=self._upgrade.decode("ascii"))
        if self._upgrade == b"websocket":
            # Imported on first use: the WebSocket library takes megabytes, and few clients need it.
            from onejob.api.sessions.web_socket import open_web_socket

            if not open_web_socket(shared, request, self.transport, write_paused=self.write_paused):
                return
        else:
            connection = SpdyConnection.from_request(shared, request)
            connection.begin(self.transport, write_paused=self.write_paused)
        shared.connections.discard(self)
        shared.goes_on(self)

    # --- limits -----------------------------------------------------------------------------------

    def _refuse_once(self, code: int) -> None:
        """Reject the connection unless that has been done.

        The parser continues to report input that it has already received.
        """
        if not self._refused:
            self._refuse(code)

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(_HEADER_SECONDS, self._refuse, 408)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _watch_idle(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close the connection if it has been idle too long.

        One timer serves many requests, because setting one per request would cost more than it
        saves.
        """
        self._idle_timer = None
        if self._idle_since is None:
            return
        left = self._idle_since + _KEEP_ALIVE_SECONDS - self.loop.time()
        if left > 0:
            self._watch_idle(left)
        elif self._in_message and self._in_headers:
            # The next request has just begun; its headers have their own timeout.
            self._watch_idle(_HEADER_SECONDS)
        else:
            self.close()

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _refuse(self, code: int, why: bytes = b"") -> None:
        """Stop reading, send an error response if possible, and close the connection."""
        self._refused = True
        self._stop_header_timer()
        if self.transport.is_closing():
            return
        answering = self._answering
        if answering is not None and answering.is_whole:
            # The request in progress came first: let it complete, as the last one of the
            # connection.
            answering.keep_alive = False
            self._drop_pipelined()
            return
        arriving = self._arriving
        if arriving is not None and arriving.answered and not arriving.is_whole:
            # Its response is already sent; a client would take another one for the response to its
            # next request.
            self.transport.close()
            return
        if answering is None or not answering.started:
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\n"
                b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
                % (code, _PHRASES[code], len(why), why)
            )
        if answering is not None:
            answering.hang_up()
        self.transport.close()


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t0"))
        for name, value in headers
    )


def _split(url: bytes) -> tuple[str, bytes] | None:
    """Return path and query of a request target; None if it is invalid."""
    if url.startswith(b"/") and b"#" not in url and not url.startswith(b"//"):
        path, _, query = url.partition(b"?")
    else:
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            return None
        path, query = parsed.path, parsed.query or b""
    return (path.decode("ascii"), query) if path and path.isascii() else None
