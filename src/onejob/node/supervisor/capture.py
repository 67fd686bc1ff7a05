"""Capture of container output: timestamped lines in rotated log files of bounded size.

A file contains lines of `TIME F|P TEXT`: F is a full line or its last piece, P a piece of a line
that was too long or not yet finished. `onejob.node.logs.reading` reads them.
"""

import errno
import os
import time
from collections.abc import Iterable
from functools import lru_cache

from onejob.node.supervisor.paths import open_regular

#: The kubelet's defaults (containerLogMaxSize, containerLogMaxFiles).
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_FILES = 5
_READ_BYTES = 65536
#: Longer lines are stored in pieces, as the kubelet does.
_MAX_LINE_BYTES = 16 * 1024
_SECOND_NS = 1_000_000_000
_STAMP_BYTES = len(b"2026-01-01T00:00:00.000000000Z")
#: Bytes to read back from the end: contains the last record of a log, and the one before.
_TAIL_BYTES = 1 << 16


class LogFile:
    """Log of one attempt, opened at the first byte: a silent container costs nothing.

    The time of each record is later than that of the previous one, by at least a nanosecond, even
    if the clock is set back or the container is restarted: clients use the time of a line as its
    identity, to skip lines they have already read.

    With `replayed`, the records come from a source that is read from its beginning again after a
    restart: they get the same times again, and records that are already in the file are skipped.
    """

    def __init__(
        self,
        path: str,
        max_bytes: int = MAX_FILE_BYTES,
        files: int = MAX_FILES,
        *,
        replayed: bool = False,
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._files = files
        self._replayed = replayed
        self._fd = -1
        self._size = 0
        #: Time of the newest record in nanoseconds; None until it is read from existing files.
        self._last_ns: int | None = None
        #: Number of records that could not be written, the time of the first, and the error.
        self._lost = 0
        self._lost_at = b""
        self._lost_why = ""
        self._skip_until_ns = 0

    def write(self, chunk: bytes, now_ns: int) -> None:
        """Append output that was captured at one moment."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        self._append(self._stamped(lines, rest, now_ns, long=len(chunk) > _MAX_LINE_BYTES))

    def write_all(self, texts: Iterable[tuple[int, bytes]]) -> None:
        """Append lines and pieces of lines, each with its own time in nanoseconds."""
        records: list[bytes] = []
        for now_ns, text in texts:
            lines = text.split(b"\n")
            rest = lines.pop()
            records += self._stamped(lines, rest, now_ns, long=len(text) > _MAX_LINE_BYTES)
        self._append(records)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _stamped(self, lines: list[bytes], rest: bytes, now_ns: int, *, long: bool) -> list[bytes]:
        """Return the records for full lines and for the unfinished rest of a chunk."""
        if long:
            pieces = [piece for line in lines for piece in _cut(line, b" F ")]
        else:
            pieces = [b" F " + line for line in lines]
        if rest:
            pieces += _cut(rest, b" P ")
        if self._last_ns is None:
            self._read_last_times()
        assert self._last_ns is not None
        first_ns = max(now_ns, self._last_ns + 1)
        self._last_ns = first_ns + len(pieces) - 1
        if self._last_ns <= self._skip_until_ns:
            return []
        new = max(self._skip_until_ns + 1 - first_ns, 0)
        return _timed(pieces[new:], first_ns + new)

    def _read_last_times(self) -> None:
        own, previous = last_time_ns(self.path), _previous_attempt(self.path)
        self._last_ns = last_time_ns(previous) if previous else 0
        if self._replayed:
            self._skip_until_ns = own
        else:
            self._last_ns = max(self._last_ns, own)

    def note_losses(self) -> bool:
        """Append a note about lost lines; return False if even that cannot be written."""
        if self._lost:
            self._append([])
        return not self._lost

    def _append(self, records: list[bytes]) -> None:
        """Write records, after a note about lost ones if there are any; lost ones are counted."""
        if self._lost:
            why = f"[onejob: lost {self._lost} lines of output: {self._lost_why}]"
            note = self._lost_at + b" F " + why.encode() + b"\n"
            if not self._write(note):
                self._lost += len(records)
                return
            self._lost = 0
        if not records:
            return
        data = b"".join(records)
        written = self._write(data)
        if written < len(data):
            self._lost = data.count(b"\n", written)
            self._lost_at = data[written : written + _STAMP_BYTES]

    def _write(self, data: bytes) -> int:
        """Write records; return the number of bytes written, always full records.

        A full disk loses lines, and must not block the workload behind a full pipe.
        """
        try:
            if self._fd < 0:
                self._open()
            elif self._size + len(data) > self._max_bytes:
                self._rotate()
            written = os.write(self._fd, data)
            if written < len(data):
                # Half a record would merge with the next one.
                written = data.rfind(b"\n", 0, written) + 1
                os.ftruncate(self._fd, self._size + written)
                self._lost_why = os.strerror(errno.ENOSPC)
            self._size += written
        except OSError as error:
            self._lost_why = error.strerror or str(error)
            self.close()
            return 0
        return written

    def _open(self) -> None:
        """Open the file, created if necessary. Raises OSError."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self._fd = open_regular(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        """Rename the files by one number, dropping the oldest, and open a new one. Raises
        OSError."""
        self.close()
        for number in range(self._files - 1, 0, -1):
            older = self.path if number == 1 else f"{self.path}.{number - 1}"
            if os.path.exists(older):
                os.rename(older, f"{self.path}.{number}")
        self._open()


def _cut(text: bytes, tag: bytes) -> list[bytes]:
    """Split a line, or an unfinished one, into pieces of at most `_MAX_LINE_BYTES`."""
    pieces = [
        b" P " + text[start : start + _MAX_LINE_BYTES]
        for start in range(0, len(text), _MAX_LINE_BYTES)
    ]
    if not pieces:
        return [tag]
    pieces[-1] = tag + pieces[-1][3:]
    return pieces


def _timed(pieces: list[bytes], first_ns: int) -> list[bytes]:
    """Return records with consecutive times, one nanosecond apart."""
    second, nanos = divmod(first_ns, _SECOND_NS)
    if nanos + len(pieces) > _SECOND_NS:
        return [
            b"%b%b\n" % (timestamp(now_ns), piece) for now_ns, piece in enumerate(pieces, first_ns)
        ]
    text = _second_text(second)
    return [b"%b.%09dZ%b\n" % (text, now, piece) for now, piece in enumerate(pieces, nanos)]


class Capture:
    """Read end of a container's output, and the log to write it to."""

    def __init__(self, fd: int, log: LogFile) -> None:
        self.fd = fd
        self.log = log
        os.set_blocking(fd, False)

    def drain(self, *, all_of_it: bool = False) -> bool:
        """Copy available output to the log; return False at end of file, when no writer is left."""
        while True:
            try:
                chunk = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return True
            except OSError as error:
                # EIO: the other end of the terminal is closed.
                if error.errno == errno.EIO:
                    return False
                raise
            if not chunk:
                return False
            self.log.write(chunk, time.time_ns())
            if not all_of_it:
                return True

    def close(self) -> bool:
        """Close both ends; return False if the log still lacks its note about lost lines."""
        os.close(self.fd)
        noted = self.log.note_losses()
        self.log.close()
        return noted


class Input:
    """Stdin of a container: /dev/null, a pipe whose write end waits for a client to attach, or a
    terminal, which then serves as its output, too."""

    def __init__(self, nothing: int, *, wanted: bool, terminal: bool = False) -> None:
        self._ends = wanted or terminal
        self.terminal = terminal
        if terminal:
            self.ours, self.theirs = os.openpty()
        else:
            self.theirs, self.ours = os.pipe2(os.O_CLOEXEC) if wanted else (nothing, -1)

    def output(self) -> tuple[int, int]:
        """Return the descriptor to read the container's output from, and the one it writes to."""
        if self.terminal:
            ours = os.dup(self.ours)
            try:
                return ours, os.dup(self.theirs)
            except OSError:
                os.close(ours)
                raise
        return os.pipe2(os.O_CLOEXEC)

    def close_child_end(self) -> None:
        """Close our copy of the container's end, once it has been inherited or the start has
        failed."""
        if self._ends:
            os.close(self.theirs)

    def close(self) -> None:
        """Close our end; further calls do nothing."""
        if self.ours >= 0:
            os.close(self.ours)
            self.ours = -1


@lru_cache(4)
def _second_text(second: int) -> bytes:
    """Return a timestamp up to its seconds, from a cache."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


def timestamp(now_ns: int) -> bytes:
    """Return RFC 3339 text with exactly nine digits of nanoseconds, so that texts sort as times."""
    second, nanos = divmod(now_ns, _SECOND_NS)
    return b"%b.%09dZ" % (_second_text(second), nanos)


def last_time_ns(path: str) -> int:
    """Return the time of a log's last record, even if it was just rotated; 0 if there is none."""
    for file in (path, path + ".1"):
        try:
            with open(open_regular(file, os.O_RDONLY), "rb") as stream:
                stream.seek(max(stream.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
                records = stream.read().split(b"\n")
        except OSError:
            continue
        for record in reversed(records[:-1]):
            if record[_STAMP_BYTES : _STAMP_BYTES + 3] in (b" F ", b" P "):
                return _parse_stamp(record[:_STAMP_BYTES])
    return 0


def _parse_stamp(stamp: bytes) -> int:
    # Imported on demand: only needed after a restart.
    from calendar import timegm

    fields = (stamp[:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:19])
    try:
        return timegm(tuple(map(int, fields))) * _SECOND_NS + int(stamp[20:29])
    except ValueError:
        return 0


def _previous_attempt(path: str) -> str:
    """Return the newest log of the container's earlier attempts: `N.log` in the same folder."""
    folder, name = os.path.split(path)
    number = _attempt_number(name)
    if number <= 0:
        return ""
    try:
        earlier = [name for name in os.listdir(folder) if -1 < _attempt_number(name) < number]
    except OSError:
        return ""
    return os.path.join(folder, max(earlier, key=_attempt_number)) if earlier else ""


def _attempt_number(name: str) -> int:
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "log" and stem.isdecimal() else -1
