"""Copying of the engine's logs into our own: once and in order, despite rotation and restarts."""

from datetime import UTC, datetime
from pathlib import Path

from onejob.node.logs.reading import read_logs
from onejob.node.podman.logs import LogFileImport
from onejob.wire.requests import LogOptions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(second: int, text: str, tag: str = "F", stream: str = "stdout", zone: str = "") -> str:
    return f"2026-01-01T10:00:{second:02}.123456789{zone or '+00:00'} {stream} {tag} {text}\n"


async def logged(path: Path, *, timestamps: bool = False) -> str:
    options = LogOptions(timestamps=timestamps)
    return b"".join(
        [piece async for piece in read_logs(path, options, NOW, lambda: False)]
    ).decode()


def append(path: Path, *records: str) -> None:
    with open(path, "a") as file:
        file.write("".join(records))


async def test_lines_and_pieces_of_lines_keep_their_order_and_times(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "logs" / "target"
    transcript = LogFileImport(source, target)
    transcript.catch_up()
    append(source, record(1, "one"), record(1, "two", stream="stderr"), record(2, "thr", "P"))
    transcript.catch_up()
    append(source, record(3, "ee"), record(4, ""), record(5, "unfinished", "P"))
    transcript.finish()
    assert await logged(target) == "one\ntwo\nthree\n\nunfinished"
    assert (await logged(target, timestamps=True)).splitlines()[
        1
    ] == "2026-01-01T10:00:01.123456790Z two"
    assert not source.exists()


async def test_timestamps_are_converted_to_utc(tmp_path: Path) -> None:
    append(tmp_path / "source", record(1, "x", zone="+05:30"))
    LogFileImport(tmp_path / "source", tmp_path / "target").finish()
    expected = "2026-01-01T04:30:01.123456789Z x\n"
    assert await logged(tmp_path / "target", timestamps=True) == expected


async def test_a_record_that_is_half_written_waits_for_its_other_half(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    transcript = LogFileImport(source, target)
    whole = record(1, "whole")
    append(source, whole[:20])
    transcript.catch_up()
    append(source, whole[20:])
    transcript.finish()
    assert await logged(target) == "whole\n"


async def test_nothing_is_missed_when_the_engine_rotates_its_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    transcript = LogFileImport(source, target)
    append(source, record(1, "first"))
    transcript.catch_up()
    append(source, record(2, "before"))
    fresh = tmp_path / "fresh"
    append(fresh, record(3, "after"))
    fresh.rename(source)
    transcript.finish()
    assert await logged(target) == "first\nbefore\nafter\n"


async def test_restarted_node_continues_truncated_log(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    append(source, record(1, "one"), record(2, "two"))
    cut_off = LogFileImport(source, target)
    cut_off.catch_up()
    cut_off.close()
    append(source, record(3, "three"))
    LogFileImport(source, target).finish()
    assert await logged(target) == "one\ntwo\nthree\n"


async def test_record_torn_by_full_disk_is_skipped(tmp_path: Path) -> None:
    source = tmp_path / "source"
    append(source, "2026-01-01T10:0\n", "\n", record(2, "good"), "2026-01-01T10:00:03.1 x F no\n")
    LogFileImport(source, tmp_path / "target").finish()
    assert await logged(tmp_path / "target") == "good\n"


async def test_lines_the_engine_stamped_alike_get_times_of_their_own(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    append(source, record(2, "a"), record(2, "b"), record(1, "clock set back"), record(3, "c"))
    LogFileImport(source, target).finish()
    lines = [line.split(" ", 1) for line in (await logged(target, timestamps=True)).splitlines()]
    assert [text for _, text in lines] == ["a", "b", "clock set back", "c"]
    stamps = [stamp for stamp, _ in lines]
    assert sorted(set(stamps)) == stamps


async def test_a_restart_between_lines_that_the_engine_stamped_alike_loses_and_doubles_none(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    expected = ""
    for number in range(6):
        # The third and later ones after the clock was set back.
        second = 5 if number < 2 else 1
        append(source, record(second, f"{number}a"), record(second, f"{number}b", "P"))
        expected += f"{number}a\n{number}b"
        cut_off = LogFileImport(source, target)
        cut_off.catch_up()
        cut_off.close()
    assert await logged(target) == expected
