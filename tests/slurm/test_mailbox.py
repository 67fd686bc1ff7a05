"""Files of lines between server and pilot: interrupted writers, and stale views of network file
systems."""

from pathlib import Path

import pytest

from onejob.node.slurm.mailbox import Inbox, Outbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.touch()
    return path


def lines(inbox: Inbox) -> list[bytes]:
    return [line for line, _ in inbox.read()]


def test_lines_are_read_once_and_in_order(path: Path) -> None:
    outbox, inbox = Outbox(str(path)), Inbox(str(path))
    assert inbox.read() == []
    outbox.append(b"a\nb\n")
    assert inbox.read() == [(b"a", 2), (b"b", 4)]
    outbox.append(b"c\n")
    assert inbox.read() == [(b"c", 6)]
    assert outbox.end == 6


def test_an_incomplete_line_is_not_read(path: Path) -> None:
    inbox = Inbox(str(path))
    path.write_bytes(b"whole\nhal")
    assert lines(inbox) == [b"whole"]
    path.write_bytes(b"whole\nhalf\n")
    assert lines(inbox) == [b"half"]


def test_a_torn_line_does_not_join_the_next_one(path: Path) -> None:
    path.write_bytes(b'{"do":"spa')
    Outbox(str(path)).append(b'{"do":"stop"}\n')
    assert lines(Inbox(str(path))) == [b'{"do":"spa', b'{"do":"stop"}']


def test_zeros_of_a_stale_page_are_not_read_as_lines(path: Path) -> None:
    """A network file system may know a file's new size before it has the new bytes."""
    inbox = Inbox(str(path))
    path.write_bytes(b"first\n" + b"\0" * 7 + b"third\n")
    assert lines(inbox) == [b"first"]
    path.write_bytes(b"first\nsecond\nthird\n")
    assert lines(inbox) == [b"second", b"third"]


def test_a_stale_size_hides_lines_only_until_the_next_read(path: Path) -> None:
    inbox = Inbox(str(path))
    path.write_bytes(b"one\ntwo\n")
    assert lines(inbox) == [b"one", b"two"]
    path.write_bytes(b"one\n")
    assert lines(inbox) == []
    path.write_bytes(b"one\ntwo\nthree\n")
    assert lines(inbox) == [b"three"]


def test_lines_longer_than_a_read_are_whole(path: Path) -> None:
    long = b"x" * (3 << 20)
    Outbox(str(path)).append(long + b"\nshort\n")
    inbox = Inbox(str(path))
    assert lines(inbox) + lines(inbox) == [long, b"short"]
