"""Opening of databases: old and new ones, never a damaged or foreign one."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import apsw
import pytest

from onejob.objects.meta import Key
from onejob.store.base import CannotOpen, CorruptStore, NewerStore, Stored, StoreLocked
from onejob.store.database import Reader
from onejob.store.log import LogStore
from onejob.store.migrations import APPLICATION_ID, STEPS
from onejob.virtual_time import run_virtual, virtual_clock
from tests.store.support import a_store, delete, names, pod, write

pytestmark = pytest.mark.virtual_time


async def _open(path: Path) -> None:
    async with a_store(path):
        pass


async def _filled(path: Path) -> Path:
    async with a_store(path) as store:
        for number in range(200):
            await write(store, pod(f"{number}"), "x" * 500)
        await write(store, pod("0"), "changed")
        await delete(store, pod("1"))
    return path


def _edit(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


async def test_a_new_file_gets_the_newest_schema(tmp_path: Path) -> None:
    await _open(tmp_path / "db")
    connection = apsw.Connection(str(tmp_path / "db"))
    assert connection.pragma("user_version") == len(STEPS)
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("auto_vacuum") == 2
    assert connection.pragma("page_size") == 8_192
    assert connection.pragma("journal_mode") == "wal"


#: Holds the locks that SQLite takes while it reads a log into its index, until it is stopped.
_RECOVERING = """
import fcntl, sys
file = open(sys.argv[1] + "-shm", "w+b")
file.write(bytes(32768))
file.flush()
fcntl.lockf(file, fcntl.LOCK_SH, 1, 128)
fcntl.lockf(file, fcntl.LOCK_EX, 8, 120)
print("held", flush=True)
sys.stdin.read()
"""


async def test_opening_waits_for_recovery_by_other_process(tmp_path: Path) -> None:
    """`onejob doctor`, for instance, right after a kill."""
    path = tmp_path / "db"
    async with a_store(path) as store:
        await write(store, pod("a"), "x")
        for name in ("db", "db-wal", "db.lock"):
            shutil.copyfile(tmp_path / name, tmp_path / f"killed-{name}")
    for name in ("db", "db-wal", "db.lock"):
        (tmp_path / f"killed-{name}").rename(tmp_path / name)
    command = [sys.executable, "-c", _RECOVERING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert other.stdin is not None
        threading.Timer(0.3, other.stdin.close).start()
        await _open(path)


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = await _filled(tmp_path / "db")
    _edit(path, f"PRAGMA user_version = {len(STEPS) + 1}")
    before = path.read_bytes()
    with pytest.raises(NewerStore, match="written by a newer onejob") as refused:
        await _open(path)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"somebody's own text, not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 8_176],
    ids=["text", "a header and noise"],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "db"
    path.write_bytes(content)
    with pytest.raises(CorruptStore) as refused:
        await _open(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == content


async def test_foreign_database_is_rejected_and_untouched(tmp_path: Path) -> None:
    _edit(tmp_path / "db", "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(CorruptStore, match="not a onejob store"):
        await _open(tmp_path / "db")
    _edit(tmp_path / "db", "INSERT INTO recipes VALUES ('still there')")


async def test_a_damaged_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = await _filled(tmp_path / "db")
    damaged = bytearray(path.read_bytes())
    for page in range(3, len(damaged) // 8_192):
        damaged[page * 8_192 : page * 8_192 + 100] = b"\xff" * 100
    path.write_bytes(damaged)
    with pytest.raises(CorruptStore, match="is damaged"):
        await _open(path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM log WHERE revision = 2",
        "UPDATE log SET previous = 9 WHERE revision = 202",
        "UPDATE log SET value = NULL WHERE revision = 50",
        "INSERT INTO log SELECT 999, NULL, resource, namespace, name, cold, value, NULL"
        " FROM log LIMIT 1",
        "UPDATE state SET compacted = 10; INSERT INTO log SELECT -1, NULL, resource, namespace,"
        " 'back', cold, NULL, NULL FROM log LIMIT 1",
        "DELETE FROM state",
        "DROP TABLE log",
    ],
)
async def test_a_log_that_contradicts_itself_is_refused(tmp_path: Path, sql: str) -> None:
    path = await _filled(tmp_path / "db")
    _edit(path, sql)
    with pytest.raises(CorruptStore):
        await _open(path)


async def test_a_refused_file_can_be_opened_once_it_is_mended(tmp_path: Path) -> None:
    """Nothing stays locked or running after a refusal."""
    path = await _filled(tmp_path / "db")
    _edit(path, f"PRAGMA user_version = {len(STEPS) + 1}")
    for _ in range(2):
        with pytest.raises(NewerStore):
            await _open(path)
    _edit(path, f"PRAGMA user_version = {len(STEPS)}")
    async with a_store(path) as store:
        assert len(names(store)) == 199


async def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "db").touch(mode=0o644)
    await _open(tmp_path / "db")
    assert (tmp_path / "db").stat().st_mode & 0o777 == 0o600


async def test_two_versions_cannot_supersede_the_same_one(tmp_path: Path) -> None:
    """The optimistic lock is in the schema too."""
    path = await _filled(tmp_path / "db")
    with pytest.raises(apsw.ConstraintError):
        _edit(path, "INSERT INTO log SELECT 999, previous, resource, namespace, name, cold, value,"
                    " NULL FROM log WHERE revision = 202")  # fmt: skip


@pytest.mark.parametrize("kind", [StoreLocked, NewerStore, CorruptStore])
def test_all_refusals_are_of_one_kind(kind: type[CannotOpen]) -> None:
    assert issubclass(kind, CannotOpen)


async def test_a_directory_is_refused_by_the_operating_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        await LogStore.open(tmp_path / "absent" / "db", clock=virtual_clock())


def test_only_documents_that_are_needed_are_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither replaced versions nor finished objects are read."""

    async def fill() -> set[int]:
        async with a_store(tmp_path / "db") as store:
            for version in range(3):
                for number in range(50):
                    await write(store, pod(f"{number}"), f"{version}", cold=version == 2)
            await delete(store, pod("1"))
            return {await write(store, pod(name), "new") for name in ("alive", "49")}

    live = run_virtual(fill())
    read: list[int] = []
    original = Reader.first_values

    def counted(reader: Reader, wanted: Mapping[int, Key]) -> Iterator[Stored]:
        read.extend(wanted)
        return original(reader, wanted)

    monkeypatch.setattr(Reader, "first_values", counted)

    async def reopen() -> None:
        async with a_store(tmp_path / "db") as store:
            assert set(read) == live
            assert len(names(store)) == 50
            held = {name: store.get(pod(name)) for name in ("alive", "49", "2", "1")}
            assert [stored and stored.value for stored in held.values()] == [
                *(b"new", b"new", b"2", None),
            ]

    run_virtual(reopen())
