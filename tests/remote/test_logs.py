"""Lines of logs that are requested several times."""

import pytest

from onejob.cli.remote.logs import LogLines

ONE = b"2026-01-01T12:00:01.100000000Z one\n"
TWO = b"2026-01-01T12:00:01.200000000Z two\n"
ALSO = b"2026-01-01T12:00:01.200000000Z two\n"
THREE = b"2026-01-01T12:00:02.5Z three\n"


def test_log_lines_are_delivered_once_after_a_cut() -> None:
    lines = LogLines()
    lines.restart()
    assert lines.feed(ONE + TWO + THREE[:25]) == b"one\ntwo\n"
    assert lines.since == "2026-01-01T12:00:01Z"
    lines.restart()
    assert lines.feed(ONE + TWO) == b""
    assert lines.feed(ALSO + THREE) == b"two\nthree\n"


@pytest.mark.parametrize("cut", range(len(ONE + TWO + ALSO + THREE)))
def test_log_lines_are_complete_whatever_byte_the_cut_is_at(cut: int) -> None:
    whole = ONE + TWO + ALSO + THREE
    lines = LogLines()
    lines.restart()
    got = lines.feed(whole[:cut])
    lines.restart()
    assert got + lines.feed(whole) + lines.finish() == b"one\ntwo\ntwo\nthree\n"


def test_log_lines_continue_if_the_server_leaves_out_what_was_delivered() -> None:
    lines = LogLines()
    lines.restart()
    lines.feed(ONE + TWO)
    lines.restart()
    assert lines.feed(THREE + THREE) == b"three\nthree\n"


def test_log_lines_finish_returns_a_line_without_newline() -> None:
    lines = LogLines()
    lines.restart()
    assert lines.feed(ONE + TWO[:-1]) == b"one\n"
    assert lines.finish() == b"two"


def test_log_lines_compare_times_of_other_zones_and_precisions() -> None:
    lines = LogLines()
    lines.restart()
    lines.feed(b"2026-01-01T12:00:01.25+02:00 a\n")
    assert lines.since == "2026-01-01T12:00:01+02:00"
    lines.restart()
    again = b"2026-01-01T12:00:01.1+02:00 z\n2026-01-01T12:00:01.25+02:00 a\n"
    assert lines.feed(again + b"2026-01-01T12:00:01.250000001+02:00 b\n") == b"b\n"


def test_log_lines_pass_messages_without_a_time() -> None:
    lines = LogLines()
    lines.restart()
    assert lines.feed(b"unable to retrieve container logs\n") == (
        b"unable to retrieve container logs\n"
    )
