"""Examination of intact databases: no problems are found, also while a server writes."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from onejob.store.checking.examination import examine
from onejob.store.damage import all_readable
from onejob.store.database import PAGE_BYTES
from tests.store.support import a_store, pod, write
from tests.upgrade.support import database, unpack

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("version", [1, 2])
def test_a_database_of_each_schema_is_whole(tmp_path: Path, version: int) -> None:
    """Users may run the doctor before the first start after an upgrade."""
    path = tmp_path / "db"
    unpack(database(version), path)
    found = examine(path, all_readable)
    assert found.problems == []
    assert found.saved


def test_a_contradiction_in_an_older_schema_is_found(tmp_path: Path) -> None:
    path = tmp_path / "db"
    unpack(database(1), path)
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE log SET previous = 1 WHERE revision = (SELECT max(revision) FROM log)"
    )
    connection.close()
    (problem,) = examine(path, all_readable).problems
    assert "cannot follow revision" in problem


def test_a_file_that_is_still_empty_is_no_damage(tmp_path: Path) -> None:
    """A server that is killed early enough leaves it."""
    (tmp_path / "db").touch()
    found = examine(tmp_path / "db", all_readable)
    assert (found.problems, found.saved, found.revision) == ([], {}, 0)


class BusyServer:
    """Writes a new version, and compacts, before each statement of a reader."""

    def __init__(self, path: Path) -> None:
        self._writer = apsw.Connection(str(path))
        self.writes = 0

    def watch(self, connection: apsw.Connection) -> None:
        if connection.open_flags & apsw.SQLITE_OPEN_READONLY:
            connection.exec_trace = self._write

    def _write(self, *_: object) -> bool:
        self.writes += 1
        self._writer.execute(
            "INSERT INTO log SELECT revision + 1, revision, resource, namespace, name, 0, value,"
            " NULL FROM log ORDER BY revision DESC LIMIT 1"
        )
        self._writer.execute("UPDATE state SET compacted = (SELECT max(revision) - 1 FROM log)")
        return True

    def stop(self) -> None:
        self._writer.close()


async def test_a_server_that_writes_meanwhile_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    async with a_store(path) as store:
        for _ in range(3):
            await write(store, pod("p"), "x")
    server = BusyServer(path)
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, server.watch])
    found = examine(path, all_readable)
    monkeypatch.undo()
    server.stop()
    assert server.writes > 5
    assert found.problems == []
    assert list(found.saved) == [pod("p")]


def _leaves(path: Path) -> list[int]:
    """Return the offsets of the pages with rows, in revision order."""
    connection = apsw.Connection(str(path))
    rows: Any = connection.execute(
        "SELECT pgoffset FROM dbstat WHERE name = 'log' AND pagetype = 'leaf' ORDER BY path"
    ).fetchall()
    connection.close()
    return [offset for (offset,) in rows]


async def _filled(path: Path) -> int:
    """Fill a database; return the number of objects."""
    async with a_store(path) as store:
        for number in range(400):
            await write(store, pod(f"p{number}"), "x" * 1_000)
    return 400


async def test_examination_ends_with_pages_in_the_wrong_places(tmp_path: Path) -> None:
    """As in a copy made file by file while a server wrote.

    Regression: the doctor went back at each of them, and did not end.
    """
    path = tmp_path / "db"
    count = await _filled(path)
    leaves = _leaves(path)
    data = bytearray(path.read_bytes())
    for place in range(10, len(leaves) - 1, 10):
        early, late, destroyed = leaves[place // 10], leaves[place], leaves[place + 1]
        data[late : late + PAGE_BYTES] = data[early : early + PAGE_BYTES]
        data[destroyed : destroyed + PAGE_BYTES] = bytes([0xA5]) * PAGE_BYTES
    path.write_bytes(data)
    found = examine(path, all_readable)
    assert found.problems
    pages = len(range(10, len(leaves) - 1, 10))
    assert len(found.saved) >= count - 3 * pages * count // len(leaves)
    assert len(found.saved) + len(found.lost) + found.unnamed >= count


async def test_pages_that_have_changed_places_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    count = await _filled(path)
    one, other = (slice(at, at + PAGE_BYTES) for at in _leaves(path)[5:20:14])
    data = bytearray(path.read_bytes())
    data[one], data[other] = data[other], data[one]
    path.write_bytes(data)
    found = examine(path, all_readable)
    assert found.problems
    assert len(found.saved) == count
