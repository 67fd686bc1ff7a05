"""HTTPS listener: TLS and HTTP/1.1 in front of an `ApiApp`, in a running event loop.

`onejob.api.http.accepting` accepts connections and limits their number;
`onejob.api.http.connection` reads them.
"""

import asyncio
import errno
import os
import resource
import socket
import ssl
from typing import Final, Generic, Protocol, TypeVar

from onejob.api.http.accepting import Acceptor
from onejob.api.http.connection import Connection, OpenConnections
from onejob.api.http.requests import Request
from onejob.api.http.responses import Response
from onejob.clock import Clock

#: Time for requests in progress to complete at shutdown.
_GRACE_SECONDS: Final = 0.6
#: Kernel buffer per connection for a client that does not read.
_SEND_BUFFER_BYTES: Final = 256 * 1024
_BACKLOG: Final = 1024
#: TCP keepalive: idle seconds before the first probe, seconds between probes, unanswered probes.
_KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
#: Limit for a watch or two of every client, and descriptors reserved for other uses.
_MAX_CONNECTIONS: Final = 4096
_SPARE_DESCRIPTORS: Final = 256
_MIN_CONNECTIONS: Final = 64


class CannotListen(Exception):
    """The address cannot be bound. The message is one line with the reason."""


class Application(Protocol):
    """What is served, such as an `ApiApp`."""

    async def __call__(self, request: Request) -> Response:
        """Return the response, whose `on_end` must be called. Raises ClientGone."""

    def close_streams(self) -> None:
        """End all endless streams, including streams that start later."""


A = TypeVar("A", bound=Application)


class ApiServer(Generic[A]):
    """HTTPS server.

    `port` and `url` are known after `await start()`; `await stop()` takes at most a second.
    """

    def __init__(
        self,
        app: A,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        clock: Clock,
        max_connections: int | None = None,
    ) -> None:
        self.app = app
        self._max_connections = max_connections or _most_connections()
        self._host = host
        self._port = port
        self._tls = tls
        self._open = OpenConnections(app, clock)
        self._acceptor: Acceptor | None = None

    @property
    def port(self) -> int:
        """Bound port, also if port 0 was requested."""
        assert self._acceptor is not None, "the server is not started"
        return self._acceptor.port

    @property
    def url(self) -> str:
        """URL for clients on this machine."""
        return local_url(self._host, self.port)

    async def start(self) -> None:
        """Bind and listen. Raises CannotListen."""
        sock = _bind(self._host, self._port)
        loop = asyncio.get_running_loop()
        sock.listen(_BACKLOG)
        self._acceptor = Acceptor(
            sock,
            self._tls,
            lambda: Connection(self._open, loop),
            most=self._max_connections,
            make_room=self._open.make_room,
        )
        self._open.on_closed = self._acceptor.closed
        self._acceptor.start()

    async def stop(self) -> None:
        """End watches, give other requests a short grace period, then close all connections."""
        if self._acceptor is None:
            return
        self._acceptor.stop()
        self.app.close_streams()
        for connection in list(self._open.connections):
            connection.shutdown()
        await self._tasks_end(_GRACE_SECONDS)
        # The remaining tasks wait for slow clients or hang: first disconnect, then cancel.
        for connection in list(self._open.connections):
            connection.transport.abort()
        await self._tasks_end(0.05)
        for task in list(self._open.tasks):
            task.cancel()
        await self._tasks_end(_GRACE_SECONDS / 2)
        self._acceptor = None

    async def _tasks_end(self, seconds: float) -> None:
        tasks = list(self._open.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def _most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, soft - _SPARE_DESCRIPTORS))


def local_url(host: str, port: int) -> str:
    """Return the URL for clients on this machine of a server that listens on `host` and `port`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to host and port. Raises CannotListen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these options. Keepalive detects clients that have vanished, even
        # those that do not read; the send buffer limits the kernel memory of slow readers.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise CannotListen(_listen_error(host, port, error)) from error
    sock.setblocking(False)
    return sock


def _listen_error(host: str, port: int, error: OSError) -> str:
    """Return why the server cannot listen, with a remedy."""
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
