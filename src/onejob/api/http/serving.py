"""The listening socket: TLS and HTTP/1.1 in front of an ASGI application, in a running loop.

uvicorn's protocol does the parsing. Its `Server` is not used: that one takes over signals,
polls ten times a second and waits for ever for open watches. Connections are accepted in
`onejob.api.http.accepting`, which limits how many there are.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState

from onejob.api.access.authentication import peer_subject
from onejob.api.http.accepting import Acceptor
from onejob.api.http.app import ApiApp
from onejob.api.sessions.spdy_transport import SpdyConnection, offered_protocols
from onejob.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

_KEEP_ALIVE_SECONDS: Final = 120
#: How long requests that are being answered may take once the server shall stop.
_GRACE_SECONDS: Final = 0.6
_MAX_HEADER_BYTES: Final = 64 * 1024
_HEADER_SECONDS: Final = 30.0
_MAX_HELD_BYTES: Final = 64 * 1024
#: What may wait in this process for a client that does not read, and about as much in the kernel.
_UNREAD_BYTES: Final = 16 * 1024
_SEND_BUFFER_BYTES: Final = 256 * 1024
#: A client may pause for as long as it likes, unless very many do.
_MAX_STALLED: Final = 256
_STALLED_SECONDS: Final = 10.0
_BACKLOG: Final = 1024
#: A watch or two of every client there is; and what else the server needs descriptors for.
_MAX_CONNECTIONS: Final = 4096
_SPARE_DESCRIPTORS: Final = 256
_FEWEST_CONNECTIONS: Final = 64

log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The address cannot be listened on; the message says why in one line."""


class ApiServer:
    """`await start()`, then `address` is known; `await stop()` ends everything in a second."""

    def __init__(
        self,
        app: ApiApp,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        clock: Clock,
        max_connections: int | None = None,
    ) -> None:
        self._app = app
        self._max_connections = max_connections or _most_connections()
        self._host = host
        self._port = port
        self._tls = tls
        self._clock = clock
        self._state = _State(clock)
        self._acceptor: Acceptor | None = None

    @property
    def port(self) -> int:
        """The real port, also when 0 was asked for."""
        assert self._acceptor is not None, "the server is not started"
        return self._acceptor.port

    @property
    def url(self) -> str:
        """How clients on this machine reach the server."""
        return local_url(self._host, self.port)

    async def start(self) -> None:
        """Listen. Raises CannotListen."""
        config = Config(
            self._app,
            http=_Connection,
            ws=_Session,
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # What clients do wrong is their business; what we do wrong is logged by the app.
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        config.load()
        sock = _bind(self._host, self._port)
        loop = asyncio.get_running_loop()
        sock.listen(_BACKLOG)
        self._acceptor = Acceptor(
            sock,
            self._tls,
            lambda: _Connection(config, self._state, {}, loop),
            most=self._max_connections,
            make_room=self._state.close_idle,
        )
        self._state.on_closed = self._acceptor.closed
        self._acceptor.start()

    async def stop(self) -> None:
        """End watches, let other requests finish for a moment, close everything."""
        if self._acceptor is None:
            return
        self._acceptor.stop()
        self._app.close_streams()
        for connection in list(self._state.connections):
            try:
                connection.shutdown()
            except InvalidState:
                # A WebSocket that is already saying goodbye; uvicorn would say it again.
                connection.transport.close()
        await self._tasks_end(_GRACE_SECONDS)
        # Whoever is still here waits for a slow client, or hangs: first hang up, then cancel.
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._tasks_end(0.05)
        for task in list(self._state.tasks):
            task.cancel()
        await self._tasks_end(_GRACE_SECONDS / 2)
        self._acceptor = None

    async def _tasks_end(self, seconds: float) -> None:
        tasks = list(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


class _State(ServerState):
    """What connections share: among it the Date header, renewed only while requests come."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._renew_at = 0.0
        #: Told of every connection that ends.
        self.on_closed: Callable[[], None] = lambda: None
        #: Connections whose clients do not read, and since when; the longest first.
        self._stalled: dict[_Connection, float] = {}
        self._stall_timer: asyncio.TimerHandle | None = None

    def stalls(self, connection: "_Connection") -> None:
        self._stalled[connection] = connection.loop.time()
        self._look_at_stalled(connection.loop)

    def goes_on(self, connection: "_Connection") -> None:
        self._stalled.pop(connection, None)

    def _look_at_stalled(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._stalled) > _MAX_STALLED and self._stall_timer is None:
            since = next(iter(self._stalled.values()))
            due = max(since + _STALLED_SECONDS, loop.time() + 1)
            self._stall_timer = loop.call_at(due, self._end_stalled, loop)

    def _end_stalled(self, loop: asyncio.AbstractEventLoop) -> None:
        """Each holds about a quarter of a megabyte; clients come back and go on, or list again."""
        self._stall_timer = None
        for connection, since in tuple(self._stalled.items()):
            if len(self._stalled) <= _MAX_STALLED or loop.time() - since < _STALLED_SECONDS:
                break
            log.info("hung up on a client that has not read for %.0f s", loop.time() - since)
            del self._stalled[connection]
            connection.transport.abort()
        self._look_at_stalled(loop)

    def close_idle(self) -> None:
        """Of connections that are kept for a next request: clients open another when they have
        one."""
        for connection in tuple(self.connections):
            if isinstance(connection, _Connection) and connection.is_idle:
                connection.transport.close()

    def renew_date(self) -> None:
        now = self._clock.monotonic()
        if now >= self._renew_at or not self.default_headers:
            self._renew_at = now + 1.0
            date = formatdate(self._clock.now().timestamp(), usegmt=True)
            self.default_headers = [(b"date", date.encode())]


class _Connection(HttpToolsProtocol):
    """One connection. Adds what uvicorn leaves out: who is at the other end according to TLS,
    and limits on the size of headers and on the time they may take."""

    server_state: _State

    def __init__(
        self,
        config: Config,
        server_state: _State,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._refused = False
        #: Of the head as parsed, and as it came.
        self._header_bytes = 0
        self._raw_bytes = 0
        self._new_bytes = 0
        self._in_message = False
        self._in_headers = True
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a client's next request."""
        return self.timeout_keep_alive_task is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(_UNREAD_BYTES)
        joined: Any = _JoinedWrites(transport, self.loop)
        super().connection_made(joined)
        tls = transport.get_extra_info("ssl_object")
        subject = peer_subject(tls.getpeercert()) if tls is not None else ()
        # The scope of every request, a WebSocket's included, gets a copy of this.
        self.app_state = {"peer_subject": subject}
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self.server_state.goes_on(self)
        super().connection_lost(exc)
        self.server_state.on_closed()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.server_state.stalls(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.server_state.goes_on(self)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        # What comes between two messages is the beginning of the next.
        self._new_bytes = 0 if self._in_message else len(data)
        self._raw_bytes += len(data)
        super().data_received(data)
        if not self._in_headers or self._refused or self.transport.is_closing():
            return
        if self._raw_bytes > _MAX_HEADER_BYTES:
            # Of a line that has no end yet, the parser tells nothing.
            self._refuse(431)
        elif self._header_timer is None:
            self._await_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_message = self._in_headers = True
        self._header_bytes = 0
        self._raw_bytes, self._new_bytes = self._new_bytes, 0

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == b"spdy/3.1" or super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        if self._get_upgrade() != b"spdy/3.1":
            super().handle_websocket_upgrade()
            return
        self.connections.discard(self)
        path, _, query = self.url.partition(b"?")
        scope = {
            "type": "websocket",
            "method": self.scope["method"],
            "raw_path": path,
            "query_string": query,
            "headers": self.scope["headers"],
            "subprotocols": offered_protocols(self.scope["headers"]),
            "state": self.app_state.copy(),
        }
        connection = SpdyConnection(
            self.app, scope, self.connections, self.tasks, self.server_state.on_closed
        )
        connection.begin(self.transport)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if not self._refused:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_header_timer()
        if not self._refused:
            self.server_state.renew_date()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        if not self._refused:
            super().on_message_complete()

    def _count(self, size: int) -> None:
        """Also of trailers, which come after the body."""
        self._header_bytes += size
        if self._header_bytes > _MAX_HEADER_BYTES and not self._refused:
            self._refuse(431)

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(_HEADER_SECONDS, self._refuse, 408)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, code: int) -> None:
        self._refused = True
        self._stop_header_timer()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 %d Refused\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % code
            )
            self.transport.close()


class _Session(WebSocketsSansIOProtocol):
    """One WebSocket. uvicorn takes a refusal for no answer at all and would log it as our bug."""

    def __init__(self, config: Config, server_state: _State, **others: Any) -> None:
        super().__init__(config, server_state, **others)
        self._state = server_state
        # The application chooses. Some of Kubernetes' names have a slash, which is not allowed
        # in them, and the handshake would fail for that.
        self.conn.process_subprotocol = lambda headers: None  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._state.on_closed()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True


class _JoinedWrites:
    """A transport that sends what is written in one turn of the loop at once.

    uvicorn writes head and body of an answer one after the other; joined, they cost one TLS
    record and one system call instead of two.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= _MAX_HELD_BYTES:
            # The transport must see large writes, or it cannot ask for a pause.
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held and not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))


def _most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(_FEWEST_CONNECTIONS, min(_MAX_CONNECTIONS, soft - _SPARE_DESCRIPTORS))


def local_url(host: str, port: int) -> str:
    """How clients on this machine reach a server that listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these: a client that is gone is noticed, and one that does not read
        # does not take megabytes of the kernel's memory.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise CannotListen(_why(host, port, error)) from error
    sock.setblocking(False)
    return sock


def _why(host: str, port: int, error: OSError) -> str:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"cannot listen on {place}: another program uses this port"
        case errno.EACCES:
            return f"cannot listen on {place}: this port needs more rights"
        case errno.EADDRNOTAVAIL:
            return f"cannot listen on {place}: this machine has no such address"
        case None:
            return f"cannot listen on {place}: {error}"
        case number:
            return f"cannot listen on {place}: {os.strerror(number)}"
