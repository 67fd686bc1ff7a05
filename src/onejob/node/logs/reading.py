"""Reader of the log files written by `onejob.node.supervisor.capture`: whole, tail, since a time,
or following."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import MAXYEAR, UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from onejob.node.supervisor.paths import open_regular
from onejob.wire.requests import LogOptions

_POLL_SECONDS = 0.1
#: Seconds of the first poll, and after each line: a container that has just started or written may
#: soon write again, or end.
_MIN_POLL_SECONDS = 0.01
#: Bytes read between two yields to the event loop: a few milliseconds' work if all lines are short.
_CHUNK_BYTES = 1 << 16
#: Bytes at the end of a log that contain any termination message.
_LAST_WORDS_BYTES = 1 << 18
_AFTER_ALL_TIMES = b"~"
_STAMP_BYTES = len(b"2026-01-01T00:00:00.000000000Z")


def log_path(data_dir: Path, uid: str, container: str, attempt: int) -> Path:
    """Return the path to which the supervisor writes the output of an attempt."""
    return Path(log_name(data_dir, uid, container, attempt))


def log_name(data_dir: Path, uid: str, container: str, attempt: int) -> str:
    """Return the same path as a string: for callers that only pass it on, creating a `Path` is
    costly."""
    return f"{data_dir}/pods/{uid}/logs/{container}/{attempt}.log"


async def read_logs(
    path: Path, options: LogOptions, now: datetime, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Iterate over pieces of text, with whole lines unless the container left one unfinished or a
    limit cut it.

    With `follow`, continue until `running` returns False and everything is read.
    """
    left = options.limit_bytes
    reader = _Reader(path, _since(options, now), timestamps=options.timestamps)
    pause = _MIN_POLL_SECONDS
    # Evaluated before reading: output written until then is read, so none is missed at the end.
    more = options.follow and running()
    pieces = reader.from_line(options.tail_lines)
    while True:
        for piece in pieces:
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                pause = _MIN_POLL_SECONDS
                yield piece
            if left == 0:
                return
            # A long log must not block the event loop.
            await asyncio.sleep(0)
        if not more:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS)
        more = running()
        pieces = reader.news()


def log_tail(path: Path, max_lines: int, max_bytes: int) -> str:
    """Return the end of a log, for a termination message. Reads no more than necessary for
    `max_bytes`, however long the lines are."""
    text = b""
    for file in reversed(_files(path)):
        with _open_file(file) as stream:
            start = max(stream.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES, 0)
            stream.seek(start)
            records = stream.read(_LAST_WORDS_BYTES).split(b"\n")
        # The first record may have begun before the block.
        part = _Reader(path, b"", timestamps=False).render(records[1:] if start else records)
        text = part + text
        if start or len(text) >= max_bytes:
            break
    lines = text[-max_bytes:].split(b"\n")
    wanted = max_lines + 1 if lines[-1] == b"" else max_lines
    return b"\n".join(lines[-wanted:]).decode("utf-8", "replace")


class _Reader:
    """Reader that follows one log through its rotations by keeping its current file open."""

    def __init__(self, path: Path, since: bytes, *, timestamps: bool) -> None:
        self._path = path
        self._since = since
        self._timestamps = timestamps
        self._fd = -1
        self._inode = 0
        self._rest = b""
        self._line_open = False

    def __del__(self) -> None:
        self._close()

    def from_line(self, tail_lines: int | None) -> Iterator[bytes]:
        """Yield the whole log, or its last lines. Empty pieces only yield control."""
        streams = _open_files(self._path)
        try:
            first, start = 0, 0
            if tail_lines is not None and streams:
                first, start = yield from _tail_start(streams, tail_lines)
            for stream in streams[first:]:
                stream.seek(start)
                start = 0
                while chunk := stream.read(_CHUNK_BYTES):
                    yield self.render(self._split_records(chunk))
            if streams and _is_at(streams[-1], self._path):
                self._fd = os.dup(streams[-1].fileno())
                self._inode = os.fstat(self._fd).st_ino
        finally:
            for stream in streams:
                stream.close()
        yield from self.news()

    def news(self) -> Iterator[bytes]:
        """Yield the text written since the last call."""
        while True:
            if self._fd < 0 and not self._open():
                return
            while chunk := os.read(self._fd, _CHUNK_BYTES):
                yield self.render(self._split_records(chunk))
            if not self._was_rotated():
                return
            self._close()

    def _split_records(self, chunk: bytes) -> list[bytes]:
        """Return the complete lines, and keep the last incomplete one."""
        *records, self._rest = (self._rest + chunk).split(b"\n")
        return records

    def render(self, records: list[bytes]) -> bytes:
        """Return the selected records in the requested format.

        Damaged records are skipped.
        """
        pieces = []
        for record in records:
            stamp, tag, text = record[:_STAMP_BYTES], record[_STAMP_BYTES : _STAMP_BYTES + 3], b""
            if tag not in (b" F ", b" P "):
                # Cut off when the disk was full.
                continue
            if stamp < self._since:
                continue
            text = record[_STAMP_BYTES + 3 :]
            if self._timestamps and not self._line_open:
                pieces.append(stamp + b" ")
            pieces.append(text)
            self._line_open = tag == b" P "
            if not self._line_open:
                pieces.append(b"\n")
        return b"".join(pieces)

    def _open(self) -> bool:
        """Open the current log file; return False if there is none."""
        try:
            self._fd = open_regular(str(self._path), os.O_RDONLY)
        except OSError:
            # Not created yet, or replaced by the container.
            return False
        self._inode = os.fstat(self._fd).st_ino
        return True

    def _was_rotated(self) -> bool:
        """Return whether the path leads to another file now."""
        try:
            return os.stat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        """Close the log file; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _files(path: Path) -> list[Path]:
    """Return the files of a rotated log, oldest first."""
    numbered = []
    for file in path.parent.glob(path.name + ".*"):
        suffix = file.name[len(path.name) + 1 :]
        if suffix.isdigit():
            numbered.append((int(suffix), file))
    files = [file for _, file in sorted(numbered, reverse=True)]
    return [file for file in (*files, path) if _is_regular(file)]


def _is_regular(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except FileNotFoundError:
        return False


def _open_file(file: Path) -> BinaryIO:
    return open(open_regular(str(file), os.O_RDONLY), "rb")


def _open_files(path: Path) -> list[BinaryIO]:
    """Open the files of a log, oldest first, each once even if they are renamed meanwhile."""
    streams: dict[int, BinaryIO] = {}
    for file in reversed(_files(path)):
        try:
            stream = _open_file(file)
        except OSError:
            # Rotated meanwhile, or replaced by the container.
            continue
        inode = os.fstat(stream.fileno()).st_ino
        if inode in streams:
            stream.close()
        else:
            streams[inode] = stream
    return list(reversed(streams.values()))


def _is_at(stream: BinaryIO, path: Path) -> bool:
    try:
        return os.fstat(stream.fileno()).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _tail_start(streams: list[BinaryIO], lines: int) -> Generator[bytes, None, tuple[int, int]]:
    """Return the index of the file, and the offset in it, at which the last `lines` begin,
    searching backwards block by block. Yields only empty pieces, to give up control."""
    if lines == 0:
        return len(streams) - 1, streams[-1].seek(0, os.SEEK_END)
    #: Line ends to go back; set once the last record is read.
    wanted: int | None = None
    for number in reversed(range(len(streams))):
        for position, records in _blocks_backwards(streams[number]):
            ends = [at for at, record in enumerate(records) if _is_complete_record(record)]
            if wanted is None and records:
                # An unfinished last line counts as one of the lines.
                wanted = lines + 1 if _is_complete_record(records[-1]) else lines
            if wanted is not None:
                if len(ends) >= wanted:
                    before = records[: ends[-wanted] + 1]
                    return number, position + sum(map(len, before)) + len(before)
                wanted -= len(ends)
            yield b""
    return 0, 0


def _blocks_backwards(stream: BinaryIO) -> Iterator[tuple[int, list[bytes]]]:
    """Yield, from the last block to the first, the offset of the first record that begins in it and
    all complete records."""
    position = stream.seek(0, os.SEEK_END)
    cut = b""
    while position > 0:
        size = min(_CHUNK_BYTES, position)
        position -= size
        stream.seek(position)
        data = stream.read(size) + cut
        records = data.split(b"\n")
        # After the last line end there is nothing, or a record still being written.
        records.pop()
        if position == 0:
            yield position, records
        elif records:
            head = records.pop(0)
            cut = head + b"\n"
            yield position + len(cut), records
        else:
            cut = data


def _is_complete_record(record: bytes) -> bool:
    return record[_STAMP_BYTES : _STAMP_BYTES + 3] == b" F "


def _since(options: LogOptions, now: datetime) -> bytes:
    """Return the start time as text comparable to the records' times. Out-of-range times select all
    records or none."""
    moment = options.since_time
    try:
        if options.since_seconds is not None:
            moment = now - timedelta(seconds=options.since_seconds)
        if moment is None:
            return b""
        return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26].encode()
    except OverflowError:
        future = moment is not None and moment.year == MAXYEAR
        return _AFTER_ALL_TIMES if future else b""
