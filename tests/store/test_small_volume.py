"""Small volumes: enough space for the data is enough for the store."""

import os
from pathlib import Path

import apsw
import pytest

from onejob.store.base import CannotOpen, CommitFailed, CorruptStore
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from sim.faulty_disk import Entry, FaultyDisk
from tests.store.support import pod, put

pytestmark = pytest.mark.virtual_time

KIB = 1024
LIMITS = Limits(recent_changes=100)


class Volume:
    """FaultyDisk with a capacity in bytes."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder = folder
        self.room = room
        self.others = 0
        self.disk = FaultyDisk(name=f"volume-{folder.name}", before=self._check)

    def free_bytes(self) -> int:
        return max(0, self.room - self.others - sum(self._sizes().values()))

    def _sizes(self) -> dict[str, int]:
        return {f.name: f.stat().st_size for f in self.folder.iterdir() if f.suffix != "-shm"}

    def _check(self, entry: Entry) -> None:
        sizes = self._sizes()
        if entry.what == "write":
            before = sizes.get(entry.name, 0)
            sizes[entry.name] = max(before, entry.offset + len(entry.data))
            if sizes[entry.name] > before and sum(sizes.values()) + self.others > self.room:
                raise apsw.FullError("no room")

    async def open(self) -> LogStore:
        return await LogStore.open(
            self.folder / "db",
            clock=virtual_clock(),
            committer=LoopCommitter(),
            limits=LIMITS,
            vfs=self.disk.name,
            free_bytes=self.free_bytes,
        )


async def _churn(store: LogStore, changes: int) -> None:
    for number in range(changes):
        put(store, pod(f"{number % 20}"), f"{number} " + "x" * 2_000)
        await store.durable(store.staged_revision)


async def test_our_own_log_does_not_fill_it(tmp_path: Path) -> None:
    """20 versions of 2 kB are all that must be kept; 3 MB are written, and 40 MB in pages."""
    volume = Volume(tmp_path, 4_000 * KIB)
    with volume.disk:
        store = await volume.open()
        await _churn(store, 1_500)
        assert store.rollbacks == 0
        await store.close()


async def test_where_there_is_room_it_is_rarely_asked_how_much(tmp_path: Path) -> None:
    """Each query costs about as much as a commit when the loop is busy."""
    asked = 0

    def free_bytes() -> int:
        nonlocal asked
        asked += 1
        return 10**12

    store = await LogStore.open(
        tmp_path / "db", clock=virtual_clock(), committer=LoopCommitter(), free_bytes=free_bytes
    )
    await _churn(store, 1_000)
    await store.close()
    assert asked < 30


async def test_writes_go_on_as_soon_as_there_is_room(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 4_000 * KIB)
    with volume.disk:
        store = await volume.open()
        await _churn(store, 50)
        volume.others = volume.room
        with pytest.raises(CommitFailed):
            await _churn(store, 400)
        volume.others = 0
        await _churn(store, 400)
        await store.close()


def test_a_log_that_an_earlier_server_left_is_shortened_at_start(tmp_path: Path) -> None:
    large = Volume(tmp_path, 100_000 * KIB)

    async def fill() -> None:
        with large.disk:
            store = await large.open()
            await _churn(store, 300)
            store._database.close(tidy=False)  # as if it were killed

    run_virtual(fill())
    length = os.stat(tmp_path / "db-wal").st_size
    assert length > 4_000 * KIB
    # There is no space for another copy of the log, but enough for the data itself.
    small = Volume(tmp_path, length + 1_500 * KIB)

    async def reopen() -> None:
        with small.disk:
            store = await small.open()
            assert os.stat(tmp_path / "db-wal").st_size < length / 4
            assert store.count("pods") == 20
            await _churn(store, 100)
            await store.close()

    run_virtual(reopen())


def test_a_disk_that_fails_while_the_log_is_shortened_is_one_clear_line(tmp_path: Path) -> None:
    """The store is not open yet, so this is not a failure of an open store."""
    large = Volume(tmp_path, 100_000 * KIB)

    async def fill() -> None:
        with large.disk:
            store = await large.open()
            await _churn(store, 20)
            store._database.close(tidy=False)  # as if it were killed

    def fail(entry: Entry) -> None:
        if entry.name == "db":
            raise apsw.IOError("no luck")

    async def reopen() -> None:
        broken = Volume(tmp_path, 0)
        broken.disk.before = fail
        with broken.disk, pytest.raises(CannotOpen, match="cannot open"):
            await broken.open()

    run_virtual(fill())
    run_virtual(reopen())


def test_empty_database_with_full_log_is_rejected_and_untouched(tmp_path: Path) -> None:
    volume = Volume(tmp_path, 100_000 * KIB)

    async def fill() -> None:
        with volume.disk:
            store = await volume.open()
            await _churn(store, 50)
            store._database.close(tidy=False)

    run_virtual(fill())
    before = (tmp_path / "db-wal").read_bytes()
    for still_there in (True, False):
        (tmp_path / "db").unlink()
        if still_there:
            (tmp_path / "db").touch()
        with pytest.raises(CorruptStore, match="is empty, but db-wal is not") as refused:
            run_virtual(fill())
        assert "\n" not in str(refused.value)
        assert (tmp_path / "db-wal").read_bytes() == before
