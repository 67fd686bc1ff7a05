"""Session of a command in a container's context, with attached streams: `kubectl exec`."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from msgspec import Struct

from onejob.node.descriptors import Sink, Source, resize_terminal

#: Starts the command on these descriptors (stdin, stdout, stderr), which it takes over and closes,
#: and waits for the command's end.
Execute = Callable[[tuple[int, int, int]], Awaitable["Finished"]]


class Finished(Struct, frozen=True):
    """Result of a command; `code` is negative if it could not be run, with the reason in
    `message`."""

    code: int
    message: str = ""


class ExecSession:
    """Running command with its streams, created by `open`. The caller must read `stdout` and
    `stderr`, or the command blocks."""

    def __init__(
        self,
        stdin: Sink | None,
        stdout: Source,
        stderr: Source | None,
        terminal: int,
        running: "asyncio.Future[Finished]",
    ) -> None:
        #: None if the session has no stdin.
        self.stdin = stdin
        self._terminal = terminal
        self.stdout = stdout
        #: None with a terminal, which has only one output.
        self.stderr = stderr
        self._running = running

    @classmethod
    def open(cls, execute: Execute, *, stdin: bool, tty: bool) -> "ExecSession":
        """Return a session with new pipes, or with a new terminal if `tty`, after starting its
        command. Raises OSError.

        `execute` is called with the child's descriptors.
        """
        if tty:
            terminal, theirs = os.openpty()
            child = (theirs, theirs, theirs)
            sink = Sink(os.dup(terminal)) if stdin else None
            stdout, stderr = Source(os.dup(terminal)), None
        else:
            terminal = -1
            child_in, ours_in = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
            ours_out, child_out = os.pipe()
            ours_err, child_err = os.pipe()
            child = (child_in, child_out, child_err)
            sink = Sink(ours_in) if stdin else None
            stdout, stderr = Source(ours_out), Source(ours_err)
        running = asyncio.ensure_future(execute(child))
        return cls(sink, stdout, stderr, terminal, running)

    def resize(self, width: int, height: int) -> None:
        """Resize the session's terminal, if it has one."""
        if self._terminal >= 0:
            resize_terminal(self._terminal, width, height)

    async def finished(self) -> Finished:
        """Wait for the command's end. From then on its outputs reach end of file, even if a daemon
        that it left behind keeps them open."""
        finished = await self._running
        for output in (self.stdout, self.stderr):
            if output is not None:
                output.expect_no_more()
        return finished

    async def close(self) -> None:
        """Close all streams; a command that is still running is killed."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1
