"""The listening socket: TLS and HTTP/1.1 in front of an ASGI application, in a running loop.

Connections are accepted in `onejob.api.http.accepting`, which limits how many there are, and read
in `onejob.api.http.connection`.
"""

import asyncio
import errno
import os
import resource
import socket
import ssl
from typing import Final

from onejob.api.http.accepting import Acceptor
from onejob.api.http.app import ApiApp
from onejob.api.http.connection import Connection, OpenConnections
from onejob.clock import Clock

#: How long requests that are being answered may take once the server shall stop.
_GRACE_SECONDS: Final = 0.6
#: What may wait in the kernel for a client that does not read.
_SEND_BUFFER_BYTES: Final = 256 * 1024
_BACKLOG: Final = 1024
#: Seconds without traffic before the first probe, seconds between probes, probes without an answer.
_KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
#: A watch or two of every client there is; and what else the server needs descriptors for.
_MAX_CONNECTIONS: Final = 4096
_SPARE_DESCRIPTORS: Final = 256
_FEWEST_CONNECTIONS: Final = 64


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
        self.app = app
        self._max_connections = max_connections or _most_connections()
        self._host = host
        self._port = port
        self._tls = tls
        self._open = OpenConnections(app, clock)
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
        """End watches, let other requests finish for a moment, close everything."""
        if self._acceptor is None:
            return
        self._acceptor.stop()
        self.app.close_streams()
        for connection in list(self._open.connections):
            connection.shutdown()
        await self._tasks_end(_GRACE_SECONDS)
        # Whoever is still here waits for a slow client, or hangs: first hang up, then cancel.
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
        # Connections inherit these: the kernel notices clients that have vanished, also while they
        # do not read, and one that does not read does not take megabytes of the kernel's memory.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
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
