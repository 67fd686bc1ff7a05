"""File descriptors of a simulated supervisor: pipes, sockets and epoll."""

import errno
import os
import select
import struct
from collections.abc import Callable
from typing import Protocol

#: Above all real descriptors, so that the two kinds are never confused.
_FIRST = 100_000


class Pipe:
    """Pipe of unlimited capacity: writes never block."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.writers = 0


class Readable(Protocol):
    """An object behind a descriptor."""

    def readable(self) -> bool: ...

    def closed(self) -> None:
        """Release the object: its descriptor was closed."""


class PipeReader:
    """Read end of a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def readable(self) -> bool:
        return bool(self.pipe.data) or not self.pipe.writers

    def closed(self) -> None:
        """Do nothing: programs here ignore SIGPIPE."""

    def read(self, size: int) -> bytes:
        if not self.readable():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = bytes(self.pipe.data[:size])
        del self.pipe.data[:size]
        return data


class PipeWriter:
    """Write end of a pipe; the pipe ends when all of them are closed."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        pipe.writers += 1

    def readable(self) -> bool:
        return False

    def closed(self) -> None:
        self.pipe.writers -= 1


class Nothing:
    """/dev/null."""

    def readable(self) -> bool:
        return False

    def closed(self) -> None:
        """Do nothing."""


class Table:
    """Descriptor table of one process."""

    def __init__(self) -> None:
        self._objects: dict[int, Readable] = {}
        self._next = _FIRST

    def add(self, what: Readable) -> int:
        self._next += 1
        self._objects[self._next] = what
        return self._next

    def pipe(self) -> tuple[int, int]:
        pipe = Pipe()
        return self.add(PipeReader(pipe)), self.add(PipeWriter(pipe))

    def __contains__(self, fd: int) -> bool:
        return fd in self._objects

    def get(self, fd: int) -> Readable:
        if fd not in self._objects:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._objects[fd]

    def pipe_of(self, fd: int) -> Pipe | None:
        """Return the pipe that a descriptor writes to, or None if it is no write end."""
        found = self._objects.get(fd)
        return found.pipe if isinstance(found, PipeWriter) else None

    def close(self, fd: int) -> None:
        self.get(fd).closed()
        del self._objects[fd]

    def close_all(self) -> None:
        for fd in list(self._objects):
            self.close(fd)


class Epoll:
    """epoll that never waits: the simulation runs the supervisor when a descriptor is ready."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._wanted: dict[int, int] = {}

    def register(self, fd: int, mask: int) -> None:
        if fd in self._wanted:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._table.get(fd)
        self._wanted[fd] = mask

    def modify(self, fd: int, mask: int) -> None:
        self._wanted[fd] = mask

    def unregister(self, fd: int) -> None:
        del self._wanted[fd]

    def poll(self, timeout: float = -1) -> list[tuple[int, int]]:
        ready = []
        for fd, wanted in self._wanted.items():
            if fd not in self._table:
                continue
            mask = wanted & select.EPOLLOUT
            if wanted & select.EPOLLIN and self._table.get(fd).readable():
                mask |= select.EPOLLIN
            if mask:
                ready.append((fd, mask))
        return ready


class Socket:
    """The supervisor's end of a connection.

    `send_on` takes the bytes sent and returns the number of bytes accepted.
    """

    def __init__(self, table: Table, send_on: Callable[[bytes], int]) -> None:
        self._table = table
        self._send_on = send_on
        self._fd = table.add(self)
        self.arrived = bytearray()
        self.ended = False
        #: The peer is gone.
        self.broken = False
        self.on_close: Callable[[], None] = lambda: None

    def readable(self) -> bool:
        return bool(self.arrived) or self.ended

    def closed(self) -> None:
        self._fd = -1
        self.on_close()

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, wanted: bool) -> None:
        """Do nothing: the socket never blocks."""

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return struct.pack("3i", 1, os.geteuid(), 0)

    def receive(self, size: int) -> bytes:
        if not self.readable():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = bytes(self.arrived[:size])
        del self.arrived[:size]
        return data

    def send(self, data: bytes) -> int:
        if self.broken:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return self._send_on(bytes(data))

    def close(self) -> None:
        if self._fd >= 0:
            self._table.close(self._fd)


class ListeningSocket:
    """Listening socket of the supervisor, with its pending connections."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._fd = table.add(self)
        self.waiting: list[Socket] = []

    def readable(self) -> bool:
        return bool(self.waiting)

    def closed(self) -> None:
        """Do nothing: waiting clients are notified when the supervisor ends."""

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, wanted: bool) -> None:
        """Do nothing: the socket never blocks."""

    def accept(self) -> tuple[Socket, str]:
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.waiting.pop(0), ""


class Listener:
    """Replacement of `onejob.node.supervisor.listener.Listener`."""

    def __init__(self, table: Table) -> None:
        self.sock = ListeningSocket(table)

    def is_found(self) -> bool:
        return True

    def renew(self) -> None:
        raise AssertionError("nobody removes its name here")
