"""Takes what the engine writes down of a container's output over into the node's own logs.

Podman's file is read behind its writer and through its rotations; docker, which keeps its files
to itself, is asked with a client per container. After a restart the engine's records are read
again from the first: each gets the same time again, and the last line of our own log says
where to go on.
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
#: How long the client of a container that ended may take to tell the rest.
_REST_SECONDS = 10.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OutputCommands:
    """Commands that tell lines of `TIME TEXT`: as they are written, and all there are."""

    follow: Sequence[str]
    whole: Sequence[str]


class LogKeeper:
    """The logs of all containers that run, read by one thread."""

    def __init__(self) -> None:
        self._open: dict[AttemptRef, Transcript] = {}
        self._dictations: dict[AttemptRef, Dictation] = {}
        self._some_open = asyncio.Event()
        self._thread = WorkerThreads(1, "container-logs")

    def begin(self, ref: AttemptRef, source: Path | OutputCommands, target: Path) -> None:
        """`source` is the engine's file, or what to ask the engine."""
        if ref in self._open or ref in self._dictations:
            return
        if isinstance(source, Path):
            self._open[ref] = Transcript(source, target)
            self._some_open.set()
        else:
            self._dictations[ref] = Dictation(source, target)

    async def finish(self, ref: AttemptRef) -> None:
        """The container has ended: when this returns, all it wrote is on disk."""
        transcript = self._open.pop(ref, None)
        if transcript is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, transcript.finish)
        dictation = self._dictations.pop(ref, None)
        if dictation is not None:
            await dictation.finish()

    def forget(self, ref: AttemptRef) -> None:
        transcript = self._open.pop(ref, None)
        if transcript is not None:
            self._thread.submit(transcript.close)
        dictation = self._dictations.pop(ref, None)
        if dictation is not None:
            dictation.cancel()

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
        for dictation in self._dictations.values():
            await dictation.stop()
        self._thread.shutdown()


class Transcript:
    """One container's output: records of `TIME STREAM F|P TEXT` become lines of our own log."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._log = LogFile(str(target), replayed=True)
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
        self._log.write_all(_parse(records))

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


class Dictation:
    """One container's output as the engine's client tells it."""

    def __init__(self, commands: OutputCommands, target: Path) -> None:
        self._commands = commands
        self._target = target
        self._following = asyncio.create_task(_take_down(commands.follow, target))

    async def finish(self) -> None:
        """A client that follows may miss an unfinished last line, so the rest is asked for."""
        await asyncio.wait([self._following], timeout=_REST_SECONDS)
        await self.stop()
        await _take_down(self._commands.whole, self._target)

    async def stop(self) -> None:
        self.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    def cancel(self) -> None:
        self._following.cancel()


async def _take_down(command: Sequence[str], target: Path) -> None:
    """Until the command ends: its lines of `TIME TEXT` become lines of our own log."""
    lines = LogFile(str(target), replayed=True)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, limit=_CHUNK_BYTES,
        )  # fmt: skip
    except OSError as error:
        # Better a log that is incomplete than a Pod whose end is not reported.
        log.warning("%s is incomplete: %s cannot be run: %s", target, command[0], error)
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


def _catch_up(transcripts: list[Transcript]) -> None:
    for transcript in transcripts:
        transcript.catch_up()


def _parse(records: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Time in nanoseconds and text of each record, with its line end if that was reached."""
    for record in records:
        stamp, _, rest = record.partition(b" ")
        _, _, tagged = rest.partition(b" ")
        tag, text = tagged[:1], tagged[2:]
        moment = _nanoseconds(stamp)
        if tag in (b"F", b"P") and moment is not None:
            yield moment, text + b"\n" if tag == b"F" else text


def _nanoseconds(stamp: bytes) -> int | None:
    """None for what a full disk tore, and for what is no time at all."""
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
    """Lines come in the order of time, so a few seconds are asked for again and again."""
    return int(datetime.fromisoformat(text.decode()).timestamp())
