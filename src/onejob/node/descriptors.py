"""Pipes and terminals on the event loop, with backpressure.

asyncio's transports read ahead, and lose that data when a terminal hangs up; these classes read
only on request.
"""

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Any

_CHUNK_BYTES = 65536
#: Maximum rows and columns of a terminal: unsigned short in the kernel.
_MAX_SIDE = 65535


class Source:
    """Read end of a pipe or terminal. One reader at a time."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._all_written = False
        self._waiting: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Return the next chunk; empty at end of file."""
        while True:
            try:
                return os.read(self._fd, _CHUNK_BYTES)
            except BlockingIOError:
                if self._all_written:
                    return b""
            except OSError as error:
                # EIO: the other end of the terminal is closed.
                if error.errno == errno.EIO:
                    return b""
                raise
            await self._readable()

    def expect_no_more(self) -> None:
        """Treat an empty pipe as end of file from now on, even if other processes still hold its
        write end."""
        self._all_written = True
        if self._waiting is not None:
            _resolve(self._waiting)

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _readable(self) -> None:
        """Wait until the descriptor can be read."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        await _wait_for_event(self._waiting, loop.add_reader, loop.remove_reader, self._fd)


class Sink:
    """Write end of a pipe or terminal. One writer at a time."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """Write all of `data`, and return when the kernel has accepted it. Data is dropped once the
        reader has closed its end."""
        rest = memoryview(data)
        loop = asyncio.get_running_loop()
        while rest and self._fd >= 0:
            try:
                rest = rest[os.write(self._fd, rest[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                ready = loop.create_future()
                await _wait_for_event(ready, loop.add_writer, loop.remove_writer, self._fd)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    raise
                self.close()

    def resize(self, width: int, height: int) -> None:
        """Set the size in characters. Only for a terminal."""
        if self._fd >= 0:
            resize_terminal(self._fd, width, height)

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def resize_terminal(fd: int, width: int, height: int) -> None:
    rows, columns = (min(max(side, 0), _MAX_SIDE) for side in (height, width))
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _wait_for_event(
    ready: "asyncio.Future[None]",
    watch: Callable[..., Any],
    unwatch: Callable[[int], object],
    fd: int,
) -> None:
    watch(fd, _resolve, ready)
    try:
        await ready
    finally:
        unwatch(fd)


def _resolve(waiting: "asyncio.Future[None]") -> None:
    """Wake a waiting future, unless it is done."""
    if not waiting.done():
        waiting.set_result(None)
