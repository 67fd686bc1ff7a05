"""Connection acceptor with a limit; excess connections wait in the kernel's accept queue.

asyncio's own server accepts until file descriptors run out, and then retries in vain. It also does
not report how many TLS handshakes are pending, although a pending handshake costs a client nothing.
"""

import asyncio
import errno
import fcntl
import logging
import socket
import ssl
import struct
import termios
from collections.abc import Callable
from typing import Final, cast

from onejob.memory_reserve import memory_reserve

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 10.0
#: Handshake timeout while other clients wait for a connection.
_HURRIED_HANDSHAKE_SECONDS: Final = 2.0
#: Interval of checks on connections that are being closed.
_LOOK_SECONDS: Final = 5.0
#: Time for a client that has received everything to complete the TLS shutdown.
_GOODBYE_SECONDS: Final = 5.0
#: Time without progress after which a closing connection with unread data is aborted, unless other
#: clients wait for its place. Aborting truncates its last response.
_UNREAD_SECONDS: Final = 60.0
#: Upper limit for closing a connection to a slow reader. The event loop measures no progress, so
#: this only ends connections that the periodic checks do not end.
_MAX_CLOSE_SECONDS: Final = 3600.0
#: Connections accepted per event loop iteration.
_PER_TURN: Final = 32
#: Delay before the next attempt when the machine lacks resources or all connections are busy. A
#: connection that becomes idle meanwhile is closed in favour of waiting clients.
_PAUSE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 60.0
#: Offset of tcpi_bytes_acked in Linux's struct tcp_info.
_BYTES_ACKED: Final = struct.Struct("120xQ")
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Acceptor:
    """Acceptor for at most `most` open connections.

    A protocol from `new_protocol` must call `closed` when its established connection ends.
    `make_room` is called when the limit is reached, and may close connections.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        new_protocol: Callable[[], asyncio.Protocol],
        *,
        most: int,
        make_room: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._tls = tls
        self._new_protocol = new_protocol
        self._most = most
        self._make_room = make_room
        self._open = 0
        self._accepting = False
        self._stopped = False
        #: Start times of pending TLS handshakes, oldest first.
        self._handshakes: dict[asyncio.Task[None], float] = {}
        self._quiet_until = 0.0
        self._retry: asyncio.TimerHandle | None = None
        #: Established connections; for closing ones, the acknowledged bytes and the time of the
        #: last progress.
        self._made: dict[asyncio.BaseTransport, tuple[int, float] | None] = {}
        self._looking: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """Port that the socket listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    def start(self) -> None:
        """Accept connections, unless stopped."""
        if not self._accepting and not self._stopped:
            self._accepting = True
            self._loop.add_reader(self._listener, self._accept_batch)

    def stop(self) -> None:
        """Close the listener and cancel handshakes; accepted connections stay open."""
        self._stopped = True
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._listener.close()
        for task in self._handshakes:
            task.cancel()

    def closed(self) -> None:
        """Release the place of a connection that has ended."""
        self._open -= 1
        if self._open < self._most:
            self.start()

    def _pause(self) -> None:
        """Leave further connections in the kernel's queue."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listener)

    def _schedule_retry(self) -> None:
        """Resume accepting after a pause."""
        if self._retry is None:
            self._retry = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        """Accept connections again after a lack of resources."""
        self._retry = None
        memory_reserve.restore()
        self.start()

    def _accept_batch(self) -> None:
        """Accept waiting connections, at most `_PER_TURN` per callback."""
        for _ in range(_PER_TURN):
            if self._open >= self._most:
                self._warn("all %d connections are in use: more must wait", self._most)
                self._pause()
                self._make_room()
                self._end_slow_handshakes()
                self._schedule_retry()
                return
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._warn("connections cannot be accepted: %s", error)
                    self._pause()
                    self._schedule_retry()
                    return
                # The client left before its connection was accepted.
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += 1
            task = self._loop.create_task(self._handshake(connection))
            self._handshakes[task] = self._loop.time()
            task.add_done_callback(self._handshakes.pop)

    def _end_slow_handshakes(self) -> None:
        """Cancel slow handshakes when connections are scarce."""
        for task, since in self._handshakes.items():
            if self._loop.time() - since >= _HURRIED_HANDSHAKE_SECONDS:
                task.cancel()

    async def _handshake(self, connection: socket.socket) -> None:
        """Complete the TLS handshake of a connection."""
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._new_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_MAX_CLOSE_SECONDS,
            )
        except OSError:
            # No TLS, too slow, or an unusable certificate: no connection was established.
            connection.close()
            self.closed()
        except MemoryError:
            memory_reserve.spend()
            self._warn("connections cannot be accepted: %s", "out of memory")
            connection.close()
            self.closed()
            self._pause()
            self._schedule_retry()
        except asyncio.CancelledError:
            connection.close()
            self.closed()
            raise
        else:
            self._made[transport] = None
            self._schedule_stall_check()

    def _schedule_stall_check(self) -> None:
        if self._made and self._looking is None and not self._stopped:
            self._looking = self._loop.call_later(_LOOK_SECONDS, self._abort_stalled)

    def _abort_stalled(self) -> None:
        """Abort closing connections that make no progress."""
        self._looking = None
        now = self._loop.time()
        patience = _UNREAD_SECONDS if self._open < self._most else _GOODBYE_SECONDS
        for transport, before in tuple(self._made.items()):
            connection = _socket_of(transport)
            if connection is None:
                # The connection has ended.
                del self._made[transport]
            elif transport.is_closing():
                acknowledged, unread = _progress(connection)
                if before is None or before[0] != acknowledged:
                    self._made[transport] = (acknowledged, now)
                elif now - before[1] >= (patience if unread else _GOODBYE_SECONDS):
                    cast("asyncio.WriteTransport", transport).abort()
        self._schedule_stall_check()

    def _warn(self, text: str, value: object) -> None:
        """Log a warning, at most one per quiet period."""
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_SECONDS
            log.warning(text, value)


def _socket_of(transport: asyncio.BaseTransport) -> socket.socket | None:
    """Return the socket of a transport; None if the connection has ended."""
    try:
        found: socket.socket | None = transport.get_extra_info("socket")
    except AttributeError:
        # A TLS transport of asyncio that was closed twice: it no longer has a connection.
        return None
    return found


def _progress(connection: socket.socket) -> tuple[int, bool]:
    """Return the number of bytes that the peer has acknowledged, and whether unacknowledged data
    remains."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        unread = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
        (acknowledged,) = _BYTES_ACKED.unpack(info)
    except (OSError, struct.error):
        return 0, False
    return acknowledged, unread[0] > 0
