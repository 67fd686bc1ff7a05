"""The listening socket: TLS and HTTP/1.1 in front of an ASGI application, in a running loop.

uvicorn's protocol does the parsing. Its `Server` is not used: that one takes over signals,
polls ten times a second and waits for ever for open watches.
"""

import asyncio
import errno
import os
import socket
import ssl
from email.utils import formatdate
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState

from onejob.api.authentication import peer_subject
from onejob.api.http import ApiApp
from onejob.clock import Clock

_KEEP_ALIVE_SECONDS: Final = 120
#: How long requests that are being answered may take once the server shall stop.
_GRACE_SECONDS: Final = 0.6
_MAX_HEADER_BYTES: Final = 64 * 1024
_HEADER_SECONDS: Final = 30.0
_MAX_HELD_BYTES: Final = 64 * 1024
_BACKLOG: Final = 1024


class CannotListen(Exception):
    """The address cannot be listened on; the message says why in one line."""


class ApiServer:
    """`await start()`, then `address` is known; `await stop()` ends everything in a second."""

    def __init__(
        self, app: ApiApp, *, host: str, port: int, tls: ssl.SSLContext, clock: Clock
    ) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._tls = tls
        self._clock = clock
        self._state = _State(clock)
        self._listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The real port, also when 0 was asked for."""
        assert self._listener is not None, "the server is not started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """How clients on this machine reach the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self._host, self._host)
        return f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"

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
        self._listener = await loop.create_server(
            lambda: _Connection(config, self._state, {}, loop),
            sock=sock,
            ssl=self._tls,
            backlog=_BACKLOG,
        )

    async def stop(self) -> None:
        """End watches, let other requests finish for a moment, close everything."""
        if self._listener is None:
            return
        self._listener.close()
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
        self._listener = None

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
        self._header_bytes = 0
        self._in_headers = True
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        joined: Any = _JoinedWrites(transport, self.loop)
        super().connection_made(joined)
        tls = transport.get_extra_info("ssl_object")
        subject = peer_subject(tls.getpeercert()) if tls is not None else ()
        # The scope of every request, a WebSocket's included, gets a copy of this.
        self.app_state = {"peer_subject": subject}
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if not self._in_headers or self.transport.is_closing():
            return
        if self._header_bytes > _MAX_HEADER_BYTES:
            self._refuse(431)
        elif self._header_timer is None:
            self._await_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_header_timer()
        self.server_state.renew_date()
        super().on_headers_complete()

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(_HEADER_SECONDS, self._refuse, 408)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, code: int) -> None:
        self._stop_header_timer()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 %d Refused\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % code
            )
            self.transport.close()


class _Session(WebSocketsSansIOProtocol):
    """One WebSocket. uvicorn takes a refusal for no answer at all and would log it as our bug."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # The application chooses. Some of Kubernetes' names have a slash, which is not allowed
        # in them, and the handshake would fail for that.
        self.conn.process_subprotocol = lambda headers: None  # type: ignore[method-assign]

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


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
