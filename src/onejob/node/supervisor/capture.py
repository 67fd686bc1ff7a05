"""What a container writes, line by line with the time of its capture, on disk, within bounds.

A file holds lines of `TIME F|P TEXT`: F ends a line, P is a piece of one that was too long or
not yet finished. `onejob.node.logs` reads them.
"""

import errno
import os
import time

#: The kubelet's defaults.
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_FILES = 5
_READ_BYTES = 65536
#: A longer line is stored in pieces, as the kubelet does.
_MAX_LINE_BYTES = 16 * 1024


class LogFile:
    """Opened at the first byte: a silent container costs nothing."""

    def __init__(self, path: str, max_bytes: int = MAX_FILE_BYTES, files: int = MAX_FILES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._files = files
        self._fd = -1
        self._size = 0

    def write(self, chunk: bytes, now_ns: int) -> None:
        prefix = timestamp(now_ns)
        final = prefix + b" F "
        partial = prefix + b" P "
        pieces = []
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if len(chunk) > _MAX_LINE_BYTES:
            for line in lines:
                while len(line) > _MAX_LINE_BYTES:
                    pieces.append(partial + line[:_MAX_LINE_BYTES] + b"\n")
                    line = line[_MAX_LINE_BYTES:]
                pieces.append(final + line + b"\n")
        elif lines:
            pieces.append(final + (b"\n" + final).join(lines) + b"\n")
        while rest:
            pieces.append(partial + rest[:_MAX_LINE_BYTES] + b"\n")
            rest = rest[_MAX_LINE_BYTES:]
        self._append(b"".join(pieces))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        try:
            if self._fd < 0:
                self._open()
            elif self._size + len(data) > self._max_bytes:
                self._rotate()
            self._size += os.write(self._fd, data)
        except OSError:
            # A full disk costs log lines; it must not stop the workload behind a full pipe.
            self.close()

    def _open(self) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            older = self.path if number == 1 else f"{self.path}.{number - 1}"
            if os.path.exists(older):
                os.rename(older, f"{self.path}.{number}")
        self._open()


class Capture:
    """The reading end of a container's output."""

    def __init__(self, fd: int, log: LogFile) -> None:
        self.fd = fd
        self.log = log
        os.set_blocking(fd, False)

    def drain(self, *, all_of_it: bool = False) -> bool:
        """Move what is there into the log; False once nobody can write any more."""
        while True:
            try:
                chunk = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return True
            except OSError as error:
                # How a terminal says that nobody is left at its other end.
                if error.errno == errno.EIO:
                    return False
                raise
            if not chunk:
                return False
            self.log.write(chunk, time.time_ns())
            if not all_of_it:
                return True

    def close(self) -> None:
        os.close(self.fd)
        self.log.close()


class Input:
    """A container's stdin: nothing, a pipe whose writing end waits for somebody to type, or a
    terminal, which is then its output too."""

    def __init__(self, nothing: int, *, wanted: bool, terminal: bool = False) -> None:
        self._ends = wanted or terminal
        self.terminal = terminal
        if terminal:
            self.ours, self.theirs = os.openpty()
        else:
            self.theirs, self.ours = os.pipe2(os.O_CLOEXEC) if wanted else (nothing, -1)

    def output(self) -> tuple[int, int]:
        """Where to read what the container writes, and where it writes it."""
        if self.terminal:
            return os.dup(self.ours), os.dup(self.theirs)
        return os.pipe2(os.O_CLOEXEC)

    def let_go(self) -> None:
        """The container has its end now, or never will."""
        if self._ends:
            os.close(self.theirs)

    def close(self) -> None:
        if self.ours >= 0:
            os.close(self.ours)
            self.ours = -1


_second = -1
_second_text = b""


def timestamp(now_ns: int) -> bytes:
    """RFC 3339 with nanoseconds, always nine digits, so that texts sort as times."""
    global _second, _second_text
    second, nanos = divmod(now_ns, 1_000_000_000)
    if second != _second:
        _second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        _second = second
    return b"%b.%09dZ" % (_second_text, nanos)
