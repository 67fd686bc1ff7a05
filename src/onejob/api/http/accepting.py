"""Accepting connections, up to a limit: the rest waits in the kernel's queue for one to end.

A loop's own server accepts whatever comes until descriptors run out, and then tries again in
vain. It does not tell either how many are still shaking hands, which costs a client nothing.
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

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 10.0
#: The same while other clients wait for a connection.
_HURRIED_HANDSHAKE_SECONDS: Final = 2.0
#: How often connections are looked at that are being closed.
_LOOK_SECONDS: Final = 5.0
#: How long a client that has been sent everything may take to say goodbye.
_GOODBYE_SECONDS: Final = 5.0
#: How long one that has not may read nothing, unless others wait for its place: its last answer
#: would break off.
_UNREAD_SECONDS: Final = 60.0
#: How long closing may take for one that reads slowly. The loop measures no progress, so this is
#: for those that the looks do not end.
_LONGEST_CLOSE_SECONDS: Final = 3600.0
#: Accepted before others on the loop get their turn.
_PER_TURN: Final = 32
#: How long to wait where the machine has run out of something, or all connections are busy: one
#: that is idle a moment later is closed for whoever waits.
_PAUSE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 60.0
#: Where Linux' tcp_info has the bytes that the other side has acknowledged.
_BYTES_ACKED: Final = struct.Struct("120xQ")
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Acceptor:
    """Protocols that `new_protocol` makes say themselves, by calling `closed`, when a connection
    ends that was made. `make_room` is called when `most` are open, and may close some."""

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
        #: Connections that are shaking hands, the longest first, and since when.
        self._handshakes: dict[asyncio.Task[None], float] = {}
        self._quiet_until = 0.0
        self._retry: asyncio.TimerHandle | None = None
        #: Connections; of those that are being closed, how much was acknowledged and since when.
        self._made: dict[asyncio.BaseTransport, tuple[int, float] | None] = {}
        self._looking: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def start(self) -> None:
        if not self._accepting and not self._stopped:
            self._accepting = True
            self._loop.add_reader(self._listener, self._accept_some)

    def stop(self) -> None:
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
        """A connection has ended."""
        self._open -= 1
        if self._open < self._most:
            self.start()

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listener)

    def _try_again_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(_PAUSE_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.start()

    def _accept_some(self) -> None:
        for _ in range(_PER_TURN):
            if self._open >= self._most:
                self._warn("all %d connections are in use: more must wait", self._most)
                self._pause()
                self._make_room()
                self._end_slow_handshakes()
                self._try_again_later()
                return
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._warn("connections cannot be accepted: %s", error)
                    self._pause()
                    self._try_again_later()
                    return
                # The client left before we came.
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += 1
            task = self._loop.create_task(self._shake_hands(connection))
            self._handshakes[task] = self._loop.time()
            task.add_done_callback(self._handshakes.pop)

    def _end_slow_handshakes(self) -> None:
        for task, since in self._handshakes.items():
            if self._loop.time() - since >= _HURRIED_HANDSHAKE_SECONDS:
                task.cancel()

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._new_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_LONGEST_CLOSE_SECONDS,
            )
        except OSError:
            # Not TLS, not in time, or with a certificate of no use: no connection was made.
            connection.close()
            self.closed()
        except asyncio.CancelledError:
            connection.close()
            self.closed()
            raise
        else:
            self._made[transport] = None
            self._look_later()

    def _look_later(self) -> None:
        if self._made and self._looking is None and not self._stopped:
            self._looking = self._loop.call_later(_LOOK_SECONDS, self._look_at_closing)

    def _look_at_closing(self) -> None:
        """End those that get nowhere."""
        self._looking = None
        now = self._loop.time()
        patience = _UNREAD_SECONDS if self._open < self._most else _GOODBYE_SECONDS
        for transport, before in tuple(self._made.items()):
            connection = transport.get_extra_info("socket")
            if connection is None:
                # It has ended.
                del self._made[transport]
            elif transport.is_closing():
                acknowledged, unread = _progress(connection)
                if before is None or before[0] != acknowledged:
                    self._made[transport] = (acknowledged, now)
                elif now - before[1] >= (patience if unread else _GOODBYE_SECONDS):
                    cast("asyncio.WriteTransport", transport).abort()
        self._look_later()

    def _warn(self, text: str, value: object) -> None:
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_SECONDS
            log.warning(text, value)


def _progress(connection: socket.socket) -> tuple[int, bool]:
    """What the other side has acknowledged, and whether there is more to come."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        unread = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
        (acknowledged,) = _BYTES_ACKED.unpack(info)
    except (OSError, struct.error):
        return 0, False
    return acknowledged, unread[0] > 0
