"""A command beside a container, with its streams in our hands: what `kubectl exec` needs."""

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

#: Starts the command on these descriptors (stdin, stdout, stderr) and waits for its end.
Execute = Callable[[tuple[int, int, int]], Awaitable["Finished"]]

_CHUNK_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Finished:
    """`code` is negative if the command could not be run; `message` says why."""

    code: int
    message: str = ""


class ExecSession:
    """Made by `open`. Read `stdout` and `stderr` to their ends, then await `finished`."""

    def __init__(
        self,
        stdin: asyncio.WriteTransport | None,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader | None,
        terminal: int,
        finished: "asyncio.Future[Finished]",
    ) -> None:
        self._stdin = stdin
        self._terminal = terminal
        self.stdout = stdout
        #: None with a terminal, which has only one output.
        self.stderr = stderr
        self._finished = finished

    @classmethod
    async def open(cls, execute: Execute, *, stdin: bool, tty: bool) -> "ExecSession":
        loop = asyncio.get_running_loop()
        if tty:
            terminal, theirs = os.openpty()
            child = (theirs, theirs, theirs)
            ours_in, ours_out, ours_err = os.dup(terminal), os.dup(terminal), -1
        else:
            terminal = -1
            child_in, ours_in = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
            ours_out, child_out = os.pipe()
            ours_err, child_err = os.pipe()
            child = (child_in, child_out, child_err)
        finished = asyncio.ensure_future(_run(execute, child))
        writer = await _writing(loop, ours_in) if stdin or tty else None
        stdout = await _reading(loop, ours_out)
        stderr = await _reading(loop, ours_err) if ours_err >= 0 else None
        return cls(writer, stdout, stderr, terminal, finished)

    def write(self, data: bytes) -> None:
        if self._stdin is not None:
            self._stdin.write(data)

    def end_input(self) -> None:
        if self._stdin is not None:
            self._stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self._terminal >= 0:
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def finished(self) -> Finished:
        return await self._finished

    async def close(self) -> None:
        """Hang up; a command that still runs is ended."""
        self._finished.cancel()
        await asyncio.gather(self._finished, return_exceptions=True)
        self.end_input()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


async def read_some(reader: asyncio.StreamReader) -> bytes:
    """The next piece of output; empty at the end."""
    try:
        return await reader.read(_CHUNK_BYTES)
    except OSError as error:
        # How a terminal says that nobody is left at its other end.
        if error.errno == errno.EIO:
            return b""
        raise


async def _run(execute: Execute, child: tuple[int, int, int]) -> Finished:
    try:
        return await execute(child)
    finally:
        # Ours were only copies; while they are open, the streams do not end.
        for fd in set(child):
            os.close(fd)


async def _reading(loop: asyncio.AbstractEventLoop, fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    file = os.fdopen(fd, "rb", 0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


async def _writing(loop: asyncio.AbstractEventLoop, fd: int) -> asyncio.WriteTransport:
    file = os.fdopen(fd, "wb", 0)
    transport, _ = await loop.connect_write_pipe(asyncio.Protocol, file)
    return transport
