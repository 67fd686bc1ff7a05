"""Import of container output from the engine's logs into the node's own log files.

Podman's file is read while it is being written, and through its rotations; Docker's files are
private, so one `logs` client per container is used. After a restart, the engine's records are read
again from the beginning: each gets the same time again, and the last line of our own log determines
where to continue.
"""

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from onejob.node.runtime import AttemptRef
from onejob.node.supervisor.capture import LogFile
from onejob.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 0.2
#: Seconds that the client of an ended container may take to deliver the rest.
_REST_SECONDS = 10.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OutputCommands:
    """Commands that print lines of `TIME TEXT`: as they are written, and all existing ones."""

    follow: Sequence[str]
    whole: Sequence[str]


class LogKeeper:
    """Importer of the logs of all running containers; reads files in a single thread."""

    def __init__(self) -> None:
        self._open: dict[AttemptRef, LogFileImport] = {}
        self._dictations: dict[AttemptRef, LogClientImport] = {}
        self._some_open = asyncio.Event()
        self._thread = WorkerThreads(1, "container-logs")

    def begin(self, ref: AttemptRef, source: Path | OutputCommands, target: Path) -> None:
        """Start importing. `source` is the engine's file, or the commands to get the output from
        the engine."""
        if ref in self._open or ref in self._dictations:
            return
        if isinstance(source, Path):
            self._open[ref] = LogFileImport(source, target)
            self._some_open.set()
        else:
            self._dictations[ref] = LogClientImport(source, target)

    async def finish(self, ref: AttemptRef) -> None:
        """Import the rest of an ended container's output; all of it is on disk when this
        returns."""
        transcript = self._open.pop(ref, None)
        if transcript is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, transcript.finish)
        dictation = self._dictations.pop(ref, None)
        if dictation is not None:
            await dictation.finish()

    def forget(self, ref: AttemptRef) -> None:
        """Stop importing the output of an attempt."""
        transcript = self._open.pop(ref, None)
        if transcript is not None:
            self._thread.submit(transcript.close)
        dictation = self._dictations.pop(ref, None)
        if dictation is not None:
            dictation.cancel()

    async def run(self) -> None:
        """Import new output of all open logs until cancelled."""
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
        """Import the output written so far, and stop; containers continue to run."""
        transcripts = list(self._open.values())
        self._open.clear()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _catch_up, transcripts)
        for transcript in transcripts:
            transcript.close()
        for dictation in self._dictations.values():
            await dictation.stop()
        self._thread.shutdown()


class LogFileImport:
    """Import of one container's log file: records of `TIME STREAM F|P TEXT` become lines of our own
    log."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._log = LogFile(str(target), replayed=True)
        self._fd = -1
        self._inode = 0
        self._rest = b""

    def catch_up(self) -> None:
        """Import all new records, across rotations. Blocks."""
        while True:
            if self._fd < 0 and not self._open():
                return
            while chunk := os.read(self._fd, _CHUNK_BYTES):
                *records, self._rest = (self._rest + chunk).split(b"\n")
                self._write_records(records)
            if not self._was_rotated():
                return
            self._close_source()

    def finish(self) -> None:
        """Import the rest, and delete the engine's own copy."""
        self.catch_up()
        self.close()
        self._source.unlink(missing_ok=True)

    def close(self) -> None:
        """Close both files."""
        self._close_source()
        self._log.close()

    def _write_records(self, records: list[bytes]) -> None:
        self._log.write_all(_parse(records))

    def _open(self) -> bool:
        """Open the engine's log; return False if it does not exist yet."""
        try:
            self._fd = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._inode = os.fstat(self._fd).st_ino
        self._rest = b""
        return True

    def _was_rotated(self) -> bool:
        try:
            return os.stat(self._source).st_ino != self._inode
        except FileNotFoundError:
            return False

    def _close_source(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LogClientImport:
    """Import of one container's output from the engine's `logs` client."""

    def __init__(self, commands: OutputCommands, target: Path) -> None:
        self._commands = commands
        self._target = target
        self._following = asyncio.create_task(_take_down(commands.follow, target))

    async def finish(self) -> None:
        """Import the rest: a following client may miss an unfinished last line, so the whole is
        read again."""
        await asyncio.wait([self._following], timeout=_REST_SECONDS)
        await self.stop()
        await _take_down(self._commands.whole, self._target)

    async def stop(self) -> None:
        """Cancel the import and wait for its end."""
        self.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel the import without waiting."""
        self._following.cancel()


async def _take_down(command: Sequence[str], target: Path) -> None:
    """Import the command's lines of `TIME TEXT` into our own log until the command ends."""
    lines = LogFile(str(target), replayed=True)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, limit=_CHUNK_BYTES,
        )  # fmt: skip
    except OSError as error:
        # An incomplete log is better than an unreported end of a Pod.
        log.warning("%s is incomplete: cannot run %s: %s", target, command[0], error)
        lines.close()
        return
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            stamp, _, text = line.partition(b" ")
            moment = _nanoseconds(stamp)
            if moment is not None:
                lines.write(text, moment)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        lines.close()


def _catch_up(transcripts: list[LogFileImport]) -> None:
    for transcript in transcripts:
        transcript.catch_up()


def _parse(records: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the time in nanoseconds and the text of each record, with a line end if it completes a
    line."""
    for record in records:
        stamp, _, rest = record.partition(b" ")
        _, _, tagged = rest.partition(b" ")
        tag, text = tagged[:1], tagged[2:]
        moment = _nanoseconds(stamp)
        if tag in (b"F", b"P") and moment is not None:
            yield moment, text + b"\n" if tag == b"F" else text


def _nanoseconds(stamp: bytes) -> int | None:
    """Return the time, or None for a record cut off by a full disk or for any other text."""
    whole, _, fraction = stamp.partition(b".")
    digits, zone = fraction[:9], fraction[9:]
    if len(digits) != 9 or not digits.isdigit():
        return None
    try:
        return _whole_second(whole + zone) * 1_000_000_000 + int(digits)
    except ValueError:
        return None


@lru_cache(64)
def _whole_second(text: bytes) -> int:
    """Return a timestamp in seconds. Lines are in order of time, so a small cache suffices."""
    return int(datetime.fromisoformat(text.decode()).timestamp())
