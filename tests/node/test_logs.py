"""Reading of container logs: in part, by time and while they grow."""

import asyncio
import errno
import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from onejob.node.logs import reading as logs
from onejob.node.logs.reading import log_tail, read_logs
from onejob.node.supervisor.capture import LogFile, timestamp
from onejob.virtual_time import NOON, run_virtual
from onejob.wire.requests import LogOptions

pytestmark = pytest.mark.virtual_time

START_NS = int(NOON.timestamp()) * 1_000_000_000


def written(path: Path, *chunks: bytes, max_bytes: int = 1 << 20, files: int = 5) -> Path:
    """Write a log whose n-th chunk was captured n seconds after noon."""
    log = LogFile(str(path / "c.log"), max_bytes, files)
    for number, chunk in enumerate(chunks):
        log.write(chunk, START_NS + number * 1_000_000_000)
    log.close()
    return path / "c.log"


def read(path: Path, **options: object) -> bytes:
    async def read_all() -> bytes:
        now = NOON + timedelta(seconds=100)
        pieces = read_logs(path, LogOptions(**options), now, lambda: False)  # type: ignore[arg-type]
        return b"".join([piece async for piece in pieces])

    return run_virtual(read_all())


def test_lines_come_back_as_they_were_however_they_were_cut(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\ntw", b"o\n", b"\n", b"three")
    assert read(path) == b"one\ntwo\n\nthree"


def test_binary_output_survives(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40
    assert read(written(tmp_path, noise)) == noise


def test_a_line_longer_than_any_buffer_survives(tmp_path: Path) -> None:
    line = b"x" * 100_000
    assert read(written(tmp_path, line, line + b"\n", b"end\n")) == line + line + b"\nend\n"
    assert read(tmp_path / "c.log", tail_lines=1) == b"end\n"


def test_log_lines_have_capture_timestamps(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\nb", b"c\n")
    assert read(path, timestamps=True) == (
        b"2026-01-01T12:00:00.000000000Z a\n2026-01-01T12:00:00.000000001Z bc\n"
    )


def times(path: Path) -> list[bytes]:
    return [line.split(b" ")[0] for line in read(path, timestamps=True).split(b"\n")[:-1]]


def strictly_increasing(stamps: list[bytes]) -> bool:
    return all(before < after for before, after in pairwise(stamps))


def test_no_two_lines_share_a_time_within_a_chunk_or_across_chunks(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "c.log"))
    long_lines = (b"x" * 20_000 + b"\n") * 3
    # The last nanosecond of a second, repeatedly: the next ones are in the next second.
    for chunk in (b"a\nb\nc\n", b"d\ne", b"f\n\n\n", long_lines, b"\n" * 5000):
        log.write(chunk, START_NS + 999_999_999)
    log.close()
    assert len(times(tmp_path / "c.log")) == 3 + 2 + 2 + 3 + 5000
    assert strictly_increasing(times(tmp_path / "c.log"))


def test_times_go_on_when_the_clock_is_set_back(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "c.log"), max_bytes=300)
    for number in range(20):
        log.write(b"%d\nx\n" % number, START_NS - number * 3600 * 1_000_000_000)
    log.close()
    assert len(times(tmp_path / "c.log")) > 20
    assert strictly_increasing(times(tmp_path / "c.log"))


def test_times_go_on_when_a_container_is_restarted_after_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    for attempt in (0, 2, 10):
        log = LogFile(str(tmp_path / f"{attempt}.log"))
        log.write(b"one\rtwo\nthree\n", START_NS - attempt * 1_000_000_000)
        log.close()
    stamps = [stamp for attempt in (0, 2, 10) for stamp in times(tmp_path / f"{attempt}.log")]
    assert len(stamps) == 9 - 3  # a carriage return ends no record
    assert strictly_increasing(stamps)


def test_times_go_on_when_a_log_is_opened_again(tmp_path: Path) -> None:
    for _ in range(3):
        log = LogFile(str(tmp_path / "c.log"))
        log.write(b"a\nb\n", START_NS)
        log.close()
    assert len(times(tmp_path / "c.log")) == 6
    assert strictly_increasing(times(tmp_path / "c.log"))


def test_a_record_cut_by_a_full_disk_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(str(tmp_path / "c.log"))
    log.write(b"first\n", START_NS)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:60]))
        log.write(b"second\nthird is cut\n", START_NS)
    log.write(b"fourth\n", START_NS)
    log.close()
    note = b"[onejob: lost 1 lines of output: No space left on device]\n"
    assert read(tmp_path / "c.log") == b"first\nsecond\n" + note + b"fourth\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tail_lines": 0}, b""),
        ({"tail_lines": 2}, b"c\nd\n"),
        ({"tail_lines": 9}, b"a\nb\nc\nd\n"),
        ({"since_time": NOON + timedelta(seconds=2)}, b"c\nd\n"),
        ({"since_seconds": 98}, b"c\nd\n"),
        ({"since_seconds": 98, "tail_lines": 1}, b"d\n"),
        ({"limit_bytes": 3}, b"a\nb"),
        ({"limit_bytes": 0}, b""),
        ({"tail_lines": 2, "limit_bytes": 3}, b"c\nd"),
    ],
)
def test_options_choose_a_part(tmp_path: Path, options: dict[str, object], expected: bytes) -> None:
    assert read(written(tmp_path, b"a\n", b"b\n", b"c\n", b"d\n"), **options) == expected


def test_a_log_is_rotated_by_size_and_old_parts_are_given_up(tmp_path: Path) -> None:
    lines = [b"%04d\n" % number for number in range(100)]
    path = written(tmp_path, *lines, max_bytes=400, files=3)
    assert sum(1 for _ in tmp_path.iterdir()) == 3
    assert all(file.stat().st_size <= 400 for file in tmp_path.iterdir())
    kept = read(path).splitlines(keepends=True)
    assert kept == lines[-len(kept) :]
    assert len(kept) > 20
    assert read(path, tail_lines=15) == b"".join(lines[-15:])


def test_a_silent_container_has_an_empty_log(tmp_path: Path) -> None:
    assert read(tmp_path / "never.log") == b""
    assert read(tmp_path / "never.log", tail_lines=5) == b""


async def test_following_log_continues_across_rotation_until_end(
    tmp_path: Path,
) -> None:
    running = True
    log = LogFile(str(tmp_path / "c.log"), max_bytes=200)

    async def write() -> None:
        nonlocal running
        for number in range(20):
            log.write(b"line %d\n" % number, START_NS)
            await asyncio.sleep(0.3)
        running = False

    writing = asyncio.create_task(write())
    options = LogOptions(follow=True)
    pieces = read_logs(tmp_path / "c.log", options, NOON, lambda: running)
    text = b"".join([piece async for piece in pieces])
    await writing
    assert text == b"".join(b"line %d\n" % number for number in range(20))
    log.close()


def test_a_full_disk_loses_lines_but_never_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = LogFile(str(tmp_path / "file" / "impossible.log"))
    log.write(b"lost\n", START_NS)
    log.close()


def test_last_words_are_bounded_by_lines_and_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, *(b"line %d\n" % number for number in range(100)))
    assert log_tail(path, 2, 1000) == "line 98\nline 99\n"
    assert log_tail(path, 50, 6) == "ne 99\n"


def test_timestamps_sort_as_text() -> None:
    moments = [START_NS, START_NS + 1, START_NS + 999_999_999, START_NS + 1_000_000_000]
    stamps = [timestamp(moment) for moment in moments]
    assert stamps == sorted(stamps)
    assert datetime.fromisoformat(stamps[0].decode()[:19]).replace(tzinfo=UTC) == NOON


class _Disk:
    """File that takes so many bytes and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(fd, data[: self.room])
        self.room -= written
        return written


def test_output_lost_to_full_disk_is_noted_in_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    log = LogFile(str(tmp_path / "log"))
    lines = _written_to(log, disk, [(1000, b"one\n"), (40, b"two\nthree\n"), (0, b"four\nfi")])
    assert lines == ["one", "two"]
    assert not log.note_losses()
    lines = _written_to(log, disk, [(1000, b"ve\nsix\n")])
    note = "[onejob: lost 3 lines of output: No space left on device]"
    assert lines == ["one", "two", note, "ve", "six"]
    disk.room = 1000
    assert log.note_losses()
    records = (tmp_path / "log").read_text().splitlines()
    times = [record.split()[0] for record in records]
    assert times == sorted(set(times))


def test_lost_output_note_can_be_written_after_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    log = LogFile(str(tmp_path / "log"))
    assert _written_to(log, disk, [(0, b"one\ntwo\n")]) == []
    log.close()
    disk.room = 1000
    assert log.note_losses()
    lines = _written_to(log, disk, [])
    assert lines == ["[onejob: lost 2 lines of output: No space left on device]"]


def _written_to(log: LogFile, disk: _Disk, chunks: list[tuple[int, bytes]]) -> list[str]:
    for number, (room, chunk) in enumerate(chunks):
        disk.room = room
        log.write(chunk, START_NS + number * 1_000_000_000)
    try:
        text = Path(log.path).read_text()
    except FileNotFoundError:
        return []
    return [line.split(" ", 2)[2] for line in text.splitlines()]


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 17, 60, 1000, 10**9])
@pytest.mark.parametrize("ending", [b"", b"unfinished", b"a\rb\n"])
def test_the_tail_is_the_end_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int, ending: bytes
) -> None:
    # Blocks shorter than some records, so that every cut happens.
    monkeypatch.setattr(logs, "_CHUNK_BYTES", 97)
    chunks = [b"x" * (number * 7 % 150) + b"\ny\n\n"[: number % 4] for number in range(60)]
    path = written(tmp_path, *chunks, ending, max_bytes=1500)
    lines = read(path).split(b"\n")
    unfinished = lines.pop()
    kept = [line + b"\n" for line in lines] + ([unfinished] if unfinished else [])
    assert read(path, tail_lines=tail) == b"".join(kept[-tail:] if tail else [])


def test_finding_the_tail_of_a_long_log_gives_others_their_turn(tmp_path: Path) -> None:
    path = written(tmp_path, *[b"line\n" * 1000] * 40, max_bytes=1 << 24)

    async def turns_taken(**options: object) -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        pieces = read_logs(path, LogOptions(**options), NOON, lambda: False)  # type: ignore[arg-type]
        async for _ in pieces:
            pass
        counting.cancel()
        return turns

    blocks = path.stat().st_size // logs._CHUNK_BYTES
    assert blocks > 20
    assert asyncio.run(turns_taken(tail_lines=10**6)) > blocks
    assert asyncio.run(turns_taken(since_time=NOON + timedelta(days=9))) > blocks
    # From the end: a short tail of a long log reads two blocks at most.
    assert asyncio.run(turns_taken(tail_lines=1)) < 8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"since_seconds": 2**63 - 1}, b"a\nb\n"),
        ({"since_time": datetime.fromisoformat("0001-01-01T00:00:00+14:00")}, b"a\nb\n"),
        ({"since_time": datetime.fromisoformat("0300-01-01T00:00:00+00:00")}, b"a\nb\n"),
        ({"since_time": datetime.fromisoformat("9999-12-31T23:59:59-14:00")}, b""),
    ],
)
def test_any_time_can_be_asked_for(
    tmp_path: Path, options: dict[str, object], expected: bytes
) -> None:
    assert read(written(tmp_path, b"a\n", b"b\n"), **options) == expected


def test_the_last_words_of_a_huge_line_cost_no_more_than_a_short_one(tmp_path: Path) -> None:
    path = written(tmp_path, b"first\n", *[b"x" * 60_000] * 30, b"end\n", max_bytes=1 << 24)
    assert log_tail(path, 80, 10) == "xxxxxxend\n"
    assert log_tail(path, 1, 2048) == "x" * 2044 + "end\n"
