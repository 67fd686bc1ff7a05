"""Client connections of the supervisor: JSON lines and descriptors over a unix socket."""

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
#: PID, user and group of a peer (SO_PEERCRED).
_CREDENTIALS = struct.Struct("3i")
#: Seconds between checks that the socket still has its name, and for which new connections wait
#: after a failed accept.
_LOOK_SECONDS = 1.0

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Connection:
    """Connection of a client."""

    __slots__ = ("blocked", "descriptors", "incoming", "outgoing", "owner", "sock", "subscribed")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming = b""
        #: Received for a command: its stdin, stdout and stderr.
        self.descriptors: list[int] = []
        self.outgoing = bytearray()
        #: The send buffer is full: the peer has to read before more can be written.
        self.blocked = False
        self.subscribed = False
        #: Workloads end when this connection ends.
        self.owner = False


class Connections:
    """All client connections. `on_message` receives each decoded line, `on_hang_up` each connection
    that has ended."""

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
        loop.after(_LOOK_SECONDS, self._ensure_socket_path)

    def __len__(self) -> int:
        return len(self._connections)

    def send(self, connection: Connection, message: dict[str, Any]) -> None:
        """Send a message; dropped for a connection that is closed."""
        if connection.sock.fileno() >= 0:
            connection.outgoing += _encode(message).encode() + b"\n"
            self._write_out(connection)

    def notify_subscribers(self, events: list[list[Any]]) -> None:
        for connection in list(self._connections.values()):
            if connection.subscribed:
                self.send(connection, {"events": events})

    def _listen(self) -> None:
        """Accept connections from now on."""
        sock = self._listener.sock
        sock.setblocking(False)
        if not self._loop.watches(sock.fileno()):
            self._loop.watch(sock.fileno(), lambda _: self._accept())

    def _ensure_socket_path(self) -> None:
        """Restore the socket if its name was removed: without it, a new server could neither find
        this supervisor nor start another one."""
        self._loop.after(_LOOK_SECONDS, self._ensure_socket_path)
        old = self._listener.sock.fileno()
        if not self._listener.is_found():
            self._loop.unwatch(old)
            try:
                self._listener.renew()
            finally:
                self._listen()

    def _accept(self) -> None:
        """Accept a connection; stop listening while descriptors are lacking."""
        try:
            sock, _ = self._listener.sock.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Out of descriptors: clients have to wait, and must not keep the loop busy meanwhile.
            report(f"cannot accept connections: {error}")
            self._loop.unwatch(self._listener.sock.fileno())
            self._loop.after(_LOOK_SECONDS, self._listen)
            return
        if not _has_same_uid(sock):
            report("rejected a connection from another user")
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections[sock.fileno()] = connection
        self._loop.watch(sock.fileno(), lambda mask: self._transfer(connection, mask))

    def _transfer(self, connection: Connection, mask: int) -> None:
        """Read from and write to a connection that is ready."""
        if mask & select.EPOLLOUT:
            self._write_out(connection)
        if not mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data, descriptors, _, _ = socket.recv_fds(connection.sock, _READ_BYTES, 3)
            for fd in descriptors:
                # Received descriptors are inheritable, unlike all others that Python opens.
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
                # Other requests are still processed.
                report_exception()

    def _write_out(self, connection: Connection) -> None:
        """Send as much as the client reads now, and the rest later."""
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
        """Close the connections of earlier servers: only one server is alive at a time, so other
        subscribers are dead, and requests of theirs that were not read yet must not be executed."""
        for other in list(self._connections.values()):
            if other.subscribed and other is not connection:
                # Its workloads have a new owner, or none is wanted.
                other.owner = False
                self.hang_up(other)

    def hang_up(self, connection: Connection) -> None:
        """Close a connection and its descriptors; a closed one is ignored."""
        fd = connection.sock.fileno()
        if self._connections.pop(fd, None) is None:
            return
        self._loop.unwatch(fd)
        connection.sock.close()
        for fd in connection.descriptors:
            os.close(fd)
        self._on_hang_up(connection)


def _has_same_uid(sock: socket.socket) -> bool:
    """Return whether the peer runs as our user. Peers can run programs as us, so access control
    must not rely on the folder's mode alone."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1]) == os.geteuid()
