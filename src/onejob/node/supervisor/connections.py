"""Those who talk to the supervisor: lines of JSON over a unix socket, and descriptors."""

import json
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

from onejob.node.supervisor.listener import Listener
from onejob.node.supervisor.loop import Loop, report, report_exception

_READ_BYTES = 1 << 16
#: Process, user and group of a peer.
_CREDENTIALS = struct.Struct("3i")
#: How often the name of the socket is looked for; and how long nobody is let in after that failed.
_LOOK_SECONDS = 1.0

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Connection:
    __slots__ = ("blocked", "descriptors", "incoming", "outgoing", "owner", "sock", "subscribed")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming = b""
        #: Sent along for a command: its stdin, stdout and stderr.
        self.descriptors: list[int] = []
        self.outgoing = bytearray()
        #: The other side has to read before more can be written.
        self.blocked = False
        self.subscribed = False
        #: When this connection ends, so do the workloads.
        self.owner = False


class Connections:
    """`on_message` gets each line, decoded; `on_hang_up` each connection that has ended."""

    def __init__(
        self,
        loop: Loop,
        listener: Listener,
        on_message: Callable[[Connection, dict[str, Any]], None],
        on_hang_up: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._on_message = on_message
        self._on_hang_up = on_hang_up
        self._connections: dict[int, Connection] = {}
        self._listen()
        loop.after(_LOOK_SECONDS, self._look_for_name)

    def __len__(self) -> int:
        return len(self._connections)

    def send(self, connection: Connection, message: dict[str, Any]) -> None:
        if connection.sock.fileno() >= 0:
            connection.outgoing += _encode(message).encode() + b"\n"
            self._write_out(connection)

    def tell_subscribers(self, events: list[list[Any]]) -> None:
        for connection in list(self._connections.values()):
            if connection.subscribed:
                self.send(connection, {"events": events})

    def _listen(self) -> None:
        sock = self._listener.sock
        sock.setblocking(False)
        if not self._loop.watches(sock.fileno()):
            self._loop.watch(sock.fileno(), lambda _: self._accept())

    def _look_for_name(self) -> None:
        """Without it, a server that starts could not find us, nor start another supervisor."""
        self._loop.after(_LOOK_SECONDS, self._look_for_name)
        old = self._listener.sock.fileno()
        if not self._listener.is_found():
            self._loop.unwatch(old)
            try:
                self._listener.renew()
            finally:
                self._listen()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.sock.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Out of descriptors: whoever calls has to wait, and we must not be kept busy by it.
            report(f"nobody can be let in: {error}")
            self._loop.unwatch(self._listener.sock.fileno())
            self._loop.after(_LOOK_SECONDS, self._listen)
            return
        if not _is_of_our_user(sock):
            report("somebody who is not our user was turned away")
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections[sock.fileno()] = connection
        self._loop.watch(sock.fileno(), lambda mask: self._talk(connection, mask))

    def _talk(self, connection: Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._write_out(connection)
        if not mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data, descriptors, _, _ = socket.recv_fds(connection.sock, _READ_BYTES, 3)
            for fd in descriptors:
                # Alone among descriptors, received ones are handed on to programs.
                os.set_inheritable(fd, False)
            connection.descriptors.extend(descriptors)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.hang_up(connection)
            return
        *lines, connection.incoming = (connection.incoming + data).split(b"\n")
        for line in lines:
            try:
                self._on_message(connection, json.loads(line))
            except Exception:
                # What else was asked is done all the same.
                report_exception()

    def _write_out(self, connection: Connection) -> None:
        try:
            sent = connection.sock.send(connection.outgoing)
            del connection.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.hang_up(connection)
            return
        blocked = len(connection.outgoing) > 0
        if blocked != connection.blocked:
            connection.blocked = blocked
            self._loop.also_when_writable(connection.sock.fileno(), blocked)

    def hang_up_predecessors(self, connection: Connection) -> None:
        """There is one server at a time: whoever else follows the news is dead, and what it asked
        for and was not read yet is not to be done."""
        for other in list(self._connections.values()):
            if other.subscribed and other is not connection:
                # What it owned has a new owner, or none is wanted.
                other.owner = False
                self.hang_up(other)

    def hang_up(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        if self._connections.pop(fd, None) is None:
            return
        self._loop.unwatch(fd)
        connection.sock.close()
        for fd in connection.descriptors:
            os.close(fd)
        self._on_hang_up(connection)


def _is_of_our_user(sock: socket.socket) -> bool:
    """Whoever may talk to us has programs run as us: the folder's mode alone shall not decide."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1]) == os.geteuid()
