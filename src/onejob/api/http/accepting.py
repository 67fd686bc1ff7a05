"""Accepting connections, up to a limit: the rest waits in the kernel's queue for one to end.

A loop's own server accepts whatever comes until descriptors run out, and then tries again in
vain. It does not tell either how many are still shaking hands, which costs a client nothing.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 10.0
_SHUTDOWN_SECONDS: Final = 5.0
#: Accepted before others on the loop get their turn.
_PER_TURN: Final = 32
#: How long to wait where the machine has run out of something, or all connections are busy: one
#: that is idle a moment later is closed for whoever waits.
_PAUSE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 60.0
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
        self._handshakes: set[asyncio.Task[None]] = set()
        self._quiet_until = 0.0
        self._retry: asyncio.TimerHandle | None = None

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
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._new_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError:
            # Not TLS, not in time, or with a certificate of no use: no connection was made.
            connection.close()
            self.closed()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _warn(self, text: str, value: object) -> None:
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_SECONDS
            log.warning(text, value)
