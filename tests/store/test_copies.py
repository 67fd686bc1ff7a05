"""Copies of a database in use: complete and consistent."""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from onejob.store import database
from onejob.store.base import CannotOpen, CorruptStore
from onejob.store.checking.copies import copy_database, problems_of, require_whole
from onejob.store.checking.examination import examine
from onejob.store.damage import all_readable
from onejob.store.database import PAGE_BYTES
from onejob.store.limits import Limits
from onejob.virtual_time import run_virtual
from tests.store.support import a_store, delete, names, no_room_for, pod, write

pytestmark = pytest.mark.virtual_time


async def test_copy_contains_acknowledged_writes_only(tmp_path: Path) -> None:
    async with a_store(tmp_path / "store.db") as store:
        for number in range(50):
            await write(store, pod(f"p{number}"), "x" * 500)
        revision = copy_database(tmp_path / "store.db", tmp_path / "copy.db")
        assert revision == store.revision
        await write(store, pod("later"), "x")
    assert problems_of(tmp_path / "copy.db") == []
    async with a_store(tmp_path / "copy.db") as copy:
        assert copy.revision == revision
        assert len(names(copy)) == 50


async def test_a_copy_replaces_nothing(tmp_path: Path) -> None:
    async with a_store(tmp_path / "store.db") as store:
        await write(store, pod("p"), "x")
        (tmp_path / "copy.db").write_text("mine")
        with pytest.raises(FileExistsError):
            copy_database(tmp_path / "store.db", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"


async def test_there_is_no_room_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_store(tmp_path / "store.db") as store:
        await write(store, pod("p"), "x" * 50_000)
        monkeypatch.setattr(apsw, "connection_hooks", [no_room_for("copy.db", pages=2)])
        with pytest.raises(CannotOpen, match="not enough disk space for a copy"):
            copy_database(tmp_path / "store.db", tmp_path / "copy.db")


def test_there_is_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match="does not exist"):
        copy_database(tmp_path / "store.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


async def test_damaged_pages_are_found(tmp_path: Path) -> None:
    async with a_store(tmp_path / "store.db") as store:
        for number in range(100):
            await write(store, pod(f"p{number}"), "x" * 500)
    shutil.copy(tmp_path / "store.db", tmp_path / "damaged.db")
    data = bytearray((tmp_path / "damaged.db").read_bytes())
    middle = len(data) // 2 // 8192 * 8192
    data[middle : middle + 8192] = bytes([0xA5]) * 8192
    (tmp_path / "damaged.db").write_bytes(data)
    require_whole(tmp_path / "store.db")
    with pytest.raises(CorruptStore):
        require_whole(tmp_path / "damaged.db")


async def test_log_next_to_empty_database_is_untouched(tmp_path: Path) -> None:
    """SQLite would remove it, and with it all recoverable data."""
    path, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    async with a_store(path) as store:
        await write(store, pod("p"), "x")
        shutil.copy(log, tmp_path / "log")
    path.write_bytes(b"")
    shutil.move(tmp_path / "log", log)
    (tmp_path / "store.db.lock").unlink()
    before = log.read_bytes()
    with pytest.raises(CorruptStore, match="is empty, but"):
        copy_database(path, tmp_path / "copy.db")
    with pytest.raises(CorruptStore, match="is empty, but"):
        examine(path, all_readable)
    assert log.read_bytes() == before


async def test_copy_keeps_revision_of_compacted_changes(tmp_path: Path) -> None:
    async with a_store(tmp_path / "store.db", limits=Limits(history_changes=1)) as store:
        await write(store, pod("p"), "x")
        await delete(store, pod("p"))
        await write(store, pod("p"), "x")
        await delete(store, pod("p"))
        await asyncio.sleep(3_600)
        assert store.compacted == store.revision
        assert copy_database(tmp_path / "store.db", tmp_path / "copy.db") == store.revision


def test_a_torn_copy_is_refused(tmp_path: Path) -> None:
    """As `cp -r` makes it of a folder in use: some pages are older than others."""
    server = tmp_path / "server"
    server.mkdir()

    async def fill(first: int, last: int) -> None:
        async with a_store(server / "store.db") as store:
            for number in range(first, last):
                await write(store, pod(f"p{number}"), "x" * 500)

    run_virtual(fill(0, 100))
    old = (server / "store.db").read_bytes()
    run_virtual(fill(100, 200))
    torn = served = 0
    for page in range(len(old) // PAGE_BYTES):
        copy = tmp_path / f"copy-{page}"
        shutil.copytree(server, copy)
        with open(copy / "store.db", "r+b") as file:
            file.seek(page * PAGE_BYTES)
            file.write(old[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
        try:
            broken = bool(problems_of(copy / "store.db"))
        except CannotOpen:
            broken = True
        torn += broken
        try:
            run_virtual(_opened(copy / "store.db"))
        except CannotOpen:
            assert broken
            # Nor on another attempt.
            with pytest.raises(CannotOpen):
                run_virtual(_opened(copy / "store.db"))
        else:
            served += broken
    assert torn > 2
    assert served == 0


async def _opened(path: Path) -> None:
    async with a_store(path):
        pass


@pytest.mark.parametrize("copied", [False, True])
def test_only_the_first_start_of_a_copy_looks_at_all_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """A start after a kill, or in a folder that was moved, reads only the necessary pages."""
    server, elsewhere = tmp_path / "server", tmp_path / "elsewhere"
    server.mkdir()

    async def first_start() -> None:
        async with a_store(server / "store.db") as store:
            await write(store, pod("a"), "x")
            if copied:
                shutil.copytree(server, elsewhere)
        if not copied:
            server.rename(elsewhere)

    run_virtual(first_start())
    looked: list[Path] = []

    def look(connection: apsw.Connection) -> list[str]:
        looked.append(Path(connection.filename))
        return []

    monkeypatch.setattr(database, "pages_problems", look)
    for _ in range(2):
        run_virtual(_opened(elsewhere / "store.db"))
    assert looked == [elsewhere / "store.db"] * copied
