"""Takes what the engine writes down of a container's output over into the node's own logs.

The engine's file is read behind its writer and through its rotations. Times are kept, so after
a restart the last line of our own log says where to go on.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import groupby
from pathlib import Path

from onejob.node.runtime import AttemptRef
from onejob.node.supervisor.capture import LogFile, timestamp

_SWEEP_SECONDS = 0.2
_CHUNK_BYTES = 1 << 20
_STAMP_BYTES = len(b"2026-01-01T00:00:00.000000000Z")
_TAIL_BYTES = 1 << 16


class LogKeeper:
    """The logs of all containers that run, read by one thread."""

    def __init__(self) -> None:
        self._open: dict[AttemptRef, Transcript] = {}
        self._some_open = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "container-logs")

    def begin(self, ref: AttemptRef, source: Path, target: Path) -> None:
        if ref not in self._open:
            self._open[ref] = Transcript(source, target)
            self._some_open.set()

    async def finish(self, ref: AttemptRef) -> None:
        """The container has ended: when this returns, all it wrote is on disk."""
        transcript = self._open.pop(ref, None)
        if transcript is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, transcript.finish)

    def forget(self, ref: AttemptRef) -> None:
        transcript = self._open.pop(ref, None)
        if transcript is not None:
            self._thread.submit(transcript.close)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some_open.wait()
            transcripts = list(self._open.values())
            if not transcripts:
                self._some_open.clear()
                continue
            await loop.run_in_executor(self._thread, _catch_up, transcripts)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def close(self) -> None:
        """The containers run on: what they wrote until now is on disk."""
        transcripts = list(self._open.values())
        self._open.clear()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _catch_up, transcripts)
        for transcript in transcripts:
            transcript.close()
        self._thread.shutdown()


class Transcript:
    """One container's output: records of `TIME STREAM F|P TEXT` become lines of our own log."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._log = LogFile(str(target))
        self._done_until = _last_stamp(target)
        self._fd = -1
        self._inode = 0
        self._rest = b""

    def catch_up(self) -> None:
        while True:
            if self._fd < 0 and not self._open():
                return
            while chunk := os.read(self._fd, _CHUNK_BYTES):
                *records, self._rest = (self._rest + chunk).split(b"\n")
                self._take(records)
            if not self._rotated():
                return
            self._close_source()

    def finish(self) -> None:
        """Take over the rest; the engine's own copy is of no more use."""
        self.catch_up()
        self.close()
        self._source.unlink(missing_ok=True)

    def close(self) -> None:
        self._close_source()
        self._log.close()

    def _take(self, records: list[bytes]) -> None:
        for stamp, group in groupby(_parse(records), key=lambda parsed: parsed[0]):
            text = b"".join(piece for _, piece in group)
            if timestamp(stamp) > self._done_until:
                self._log.write(text, stamp)

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._inode = os.fstat(self._fd).st_ino
        self._rest = b""
        return True

    def _rotated(self) -> bool:
        try:
            return os.stat(self._source).st_ino != self._inode
        except FileNotFoundError:
            return False

    def _close_source(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _catch_up(transcripts: list[Transcript]) -> None:
    for transcript in transcripts:
        transcript.catch_up()


def _parse(records: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Time in nanoseconds and text of each record, with its line end if that was reached."""
    second, second_ns = b"", 0
    for record in records:
        stamp, _, rest = record.partition(b" ")
        _, _, tagged = rest.partition(b" ")
        tag, text = tagged[:1], tagged[2:]
        whole, dot, fraction = stamp.partition(b".")
        zone = fraction[9:]
        if tag not in (b"F", b"P") or not dot or not zone:
            # Torn by a full disk.
            continue
        if whole + zone != second:
            second = whole + zone
            second_ns = int(datetime.fromisoformat(second.decode()).timestamp()) * 1_000_000_000
        yield second_ns + int(fraction[:9]), text + b"\n" if tag == b"F" else text


def _last_stamp(target: Path) -> bytes:
    """The time of the last line that is in our log already; it may have just been rotated."""
    for file in (target, target.with_name(target.name + ".1")):
        try:
            with open(file, "rb") as stream:
                stream.seek(max(stream.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
                lines = stream.read().splitlines()
        except FileNotFoundError:
            continue
        if lines:
            return lines[-1][:_STAMP_BYTES]
    return b""
