"""Reads what `onejob.node.supervisor.capture` wrote: whole, the tail, since a time, or live."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from onejob.api.requests import LogOptions
from onejob.node.supervisor.paths import open_regular

_POLL_SECONDS = 0.1
#: At first and after each line: who has just begun or spoken may soon speak again, or end.
_SHORTEST_POLL_SECONDS = 0.01
_CHUNK_BYTES = 1 << 18
_STAMP_BYTES = len(b"2026-01-01T00:00:00.000000000Z")


def log_path(data_dir: Path, uid: str, container: str, attempt: int) -> Path:
    """Where the supervisor writes what an attempt at running a container says."""
    return Path(log_name(data_dir, uid, container, attempt))


def log_name(data_dir: Path, uid: str, container: str, attempt: int) -> str:
    """The same for those who only pass it on: a `Path` takes longer to make than to say."""
    return f"{data_dir}/pods/{uid}/logs/{container}/{attempt}.log"


async def read_logs(
    path: Path, options: LogOptions, now: datetime, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Pieces of text, lines whole unless the container left one unfinished or a limit cut it.

    With `follow` it goes on until `running` says no and everything was read.
    """
    left = options.limit_bytes
    since = _since(options, now)
    reader = _Reader(path, since, timestamps=options.timestamps)
    pieces = reader.whole() if options.tail_lines is None else reader.tail(options.tail_lines)
    for piece in pieces:
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        if piece:
            yield piece
        if left == 0:
            return
        # A long log must not keep the server from anything else.
        await asyncio.sleep(0)
    pause = _SHORTEST_POLL_SECONDS
    while options.follow:
        # Asked before reading: what was written by then is read, so nothing is missed at the end.
        more = running()
        for piece in reader.news():
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                pause = _SHORTEST_POLL_SECONDS
                yield piece
            if left == 0:
                return
        if not more:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS)


def last_words(path: Path, max_lines: int, max_bytes: int) -> str:
    """The end of a log, for a termination message."""
    text = b"".join(_Reader(path, b"", timestamps=False).tail(max_lines))
    return text[-max_bytes:].decode("utf-8", "replace")


def remove_logs(path: Path) -> None:
    for file in _files(path):
        file.unlink(missing_ok=True)


class _Reader:
    """Follows one log through its rotations by keeping the file open that it reads."""

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

    def whole(self) -> Iterator[bytes]:
        files = _files(self._path)
        for file in files[:-1]:
            yield from self._read_file(file)
        yield from self.news()

    def tail(self, lines: int) -> Iterator[bytes]:
        """The last lines, found from the end so that a huge log costs no more than a small one."""
        files = _files(self._path)
        found: list[bytes] = []
        missing = lines
        for file in reversed(files):
            if missing <= 0:
                break
            records = _last_records(file, missing)
            missing -= sum(1 for record in records if _is_final(record))
            found[:0] = records
        text = self._render(found)
        if files and files[-1] == self._path:
            self._open()
            os.lseek(self._fd, 0, os.SEEK_END)
        whole = text.splitlines(keepends=True)
        yield b"".join(whole[-lines:] if lines > 0 else [])

    def news(self) -> Iterator[bytes]:
        """What was written since the last call."""
        while True:
            if self._fd < 0 and not self._open():
                return
            while chunk := os.read(self._fd, _CHUNK_BYTES):
                text = self._render(self._records(chunk))
                if text:
                    yield text
            if not self._rotated():
                return
            self._close()

    def _read_file(self, file: Path) -> Iterator[bytes]:
        with _opened(file) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                text = self._render(self._records(chunk))
                if text:
                    yield text

    def _records(self, chunk: bytes) -> list[bytes]:
        *records, self._rest = (self._rest + chunk).split(b"\n")
        return records

    def _render(self, records: list[bytes]) -> bytes:
        pieces = []
        for record in records:
            stamp, tag, text = record[:_STAMP_BYTES], record[_STAMP_BYTES : _STAMP_BYTES + 3], b""
            if tag not in (b" F ", b" P "):
                # Cut short when a disk was full.
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
        try:
            self._fd = open_regular(str(self._path), os.O_RDONLY)
        except OSError:
            # Not there yet, or the container put something else in its place.
            return False
        self._inode = os.fstat(self._fd).st_ino
        return True

    def _rotated(self) -> bool:
        try:
            return os.stat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _files(path: Path) -> list[Path]:
    """The pieces of a rotated log, oldest first."""
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


def _opened(file: Path) -> BinaryIO:
    return open(open_regular(str(file), os.O_RDONLY), "rb")


def _last_records(file: Path, lines: int) -> list[bytes]:
    with _opened(file) as stream:
        position = stream.seek(0, os.SEEK_END)
        data = b""
        # One more than asked for: the first found may be the end of a longer line.
        while position > 0 and _finals(data) <= lines:
            size = min(_CHUNK_BYTES, position)
            position -= size
            stream.seek(position)
            data = stream.read(size) + data
    records = data.split(b"\n")
    return records[1:-1] if position > 0 else records[:-1]


def _finals(data: bytes) -> int:
    return sum(1 for record in data.split(b"\n")[1:] if _is_final(record))


def _is_final(record: bytes) -> bool:
    return record[_STAMP_BYTES : _STAMP_BYTES + 3] == b" F "


def _since(options: LogOptions, now: datetime) -> bytes:
    moment = options.since_time
    if options.since_seconds is not None:
        moment = now - timedelta(seconds=options.since_seconds)
    if moment is None:
        return b""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").encode()
