"""Randomly damaged files: only written data is served, and every missing object is reported.

Nothing ends in a traceback.
"""

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw
import msgspec
import pytest

from onejob.api.unreadable import is_readable
from onejob.objects.meta import Key
from onejob.store import lock_file
from onejob.store.base import (
    CannotOpen,
    CorruptStore,
    DamagedDocument,
    MigrationFailed,
    StoreFailed,
    TooFarBehind,
)
from onejob.store.checking.examination import Examination, examine
from onejob.store.checking.repair import complete_repair, repair
from onejob.store.limits import Limits
from onejob.store.lock_file import LockFile
from onejob.store.log import LogStore
from onejob.store.migrations import STEPS
from onejob.store.writer import Done, Job, LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from tests.store.support import no_room_for

pytestmark = pytest.mark.virtual_time

#: Most of the history is compacted: rows are spread over pages with free space.
LIMITS = Limits(history_changes=30)
OBJECTS = 40

Contents = Mapping[Key, bytes]


def document(key: Key, revision: int, text: str) -> bytes:
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": f"uid-{key.name}",
        "resourceVersion": str(revision),
    }
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"t": text}}
    return msgspec.json.encode(content)


async def opened(path: Path) -> LogStore:
    return await LogStore.open(
        path,
        clock=virtual_clock(),
        committer=LoopCommitter(),
        limits=LIMITS,
        is_readable=is_readable,
    )


def stage(store: LogStore, key: Key, text: str, *, cold: bool = False) -> None:
    before = store.newest(key)
    expected = before.revision if before else 0
    store.stage(key, expected, lambda revision: document(key, revision, text), cold=cold)


async def fill(path: Path, *, tidy: bool) -> Contents:
    rng = random.Random(7)
    store = await opened(path)
    for turn in range(4):
        for number in range(OBJECTS):
            key = Key("configmaps", "default", f"object-{number}")
            if store.newest(key) is not None and rng.random() < 0.2:
                store.stage(key, store.newest(key).revision, None)  # type: ignore[union-attr]
            else:
                size = 20_000 if number == 3 else rng.randrange(1_500)
                stage(store, key, "x" * size, cold=turn > 0 and number % 2 == 0)
            await store.durable(store.staged_revision)
    contents = {item.key: item.value for item in store.list("configmaps").items}
    if tidy:
        await store.close()
    else:
        # As a kill leaves it.
        for name in (path.name, f"{path.name}-wal", f"{path.name}.lock"):
            shutil.copyfile(path.with_name(name), path.with_name(f"killed-{name}"))
        await store.close()
        for name in (path.name, f"{path.name}-wal", f"{path.name}.lock"):
            path.with_name(f"killed-{name}").rename(path.with_name(name))
    return contents


def copied(source: Path, folder: Path) -> Path:
    """Copy the files into a folder of their own: a check of the last copy may still be running."""
    folder.mkdir()
    for path in source.parent.glob(f"{source.name}*"):
        if not path.name.endswith("-shm"):
            shutil.copyfile(path, folder / path.name)
    return folder / source.name


class Served(msgspec.Struct):
    contents: dict[Key, bytes]
    damaged: set[Key]


async def serve(path: Path, keys: Contents) -> Served | str:
    """Return all that a server would serve of these files, or its error message."""
    try:
        store = await opened(path)
    except CannotOpen as error:
        return str(error)
    try:
        found = Served({}, set())
        for item in store.list("configmaps").items:
            found.contents[item.key] = item.value
        for key in keys:
            try:
                stored = store.get(key)
            except DamagedDocument:
                continue
            assert (stored.value if stored else None) == found.contents.get(key)
        found.damaged = set(store.damaged)
        return found
    except StoreFailed as error:
        return str(error)
    finally:
        await store.close()


def check(path: Path, expected: Contents) -> str:
    """Return the outcome. Neither server nor doctor may raise anything else or hide a loss."""
    try:
        examined: Examination | None = examine(path, is_readable)
    except CannotOpen as error:
        examined = None
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
    served = run_virtual(serve(path, expected))
    if isinstance(served, str):
        assert "\n" not in served
        assert examined is None or examined.problems, served
        return "refused"
    for key, value in served.contents.items():
        assert expected.get(key) == value, f"{key} is not as it was written"
    missing = expected.keys() - served.contents.keys()
    # If the name itself is damaged, a garbled name is reported instead.
    assert missing <= served.damaged or len(missing) <= len(served.damaged - expected.keys())
    if missing:
        assert examined is not None
        assert len(examined.lost) >= len(missing)
        assert examined.problems
        return "damaged"
    return "whole"


def flip_a_bit(data: bytearray, at: int, rng: random.Random) -> None:
    data[at] ^= 1 << rng.randrange(8)


def zeros(data: bytearray, at: int, _: random.Random) -> None:
    data[at : at + 64] = bytes(len(data[at : at + 64]))


def noise(data: bytearray, at: int, rng: random.Random) -> None:
    data[at : at + 512] = rng.randbytes(len(data[at : at + 512]))


def cut(data: bytearray, at: int, _: random.Random) -> None:
    del data[at:]


Damage = Callable[[bytearray, int, random.Random], None]


@pytest.mark.parametrize("damage", [flip_a_bit, zeros, noise, cut])
@pytest.mark.parametrize("which", ["database", "log"])
def test_damage_anywhere_is_noticed(tmp_path: Path, which: str, damage: Damage) -> None:
    original = tmp_path / "db"
    expected = run_virtual(fill(original, tidy=which == "database"))
    outcomes: dict[str, int] = {}
    rng = random.Random(f"{which} {damage.__name__}")
    for case in range(int(os.environ.get("ROT", "30"))):
        path = copied(original, tmp_path / f"copy-{case}")
        target = path if which == "database" else path.with_name("db-wal")
        data = bytearray(target.read_bytes())
        damage(data, rng.randrange(len(data)), rng)
        target.write_bytes(data)
        outcome = check(path, expected)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    # If not, the damage was none.
    assert outcomes.get("refused", 0) + outcomes.get("damaged", 0) > 0, outcomes


def test_database_is_intact_after_kill(tmp_path: Path) -> None:
    expected = run_virtual(fill(tmp_path / "db", tidy=False))
    assert check(tmp_path / "db", expected) == "whole"


def test_a_deleted_log_is_noticed_and_the_loss_can_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "db"
    expected = run_virtual(fill(path, tidy=False))
    path.with_name("db-wal").unlink()
    assert check(path, expected) == "refused"
    # Also by a second server, and one after that.
    with pytest.raises(CorruptStore, match="accept the loss with onejob doctor --repair"):
        run_virtual(opened(path))
    found = examine(path, is_readable)
    lock = LockFile(path)
    repair(path, found)
    lock.release()
    served = run_virtual(serve(path, expected))
    assert isinstance(served, Served)
    assert examine(path, is_readable).problems == []


def test_the_log_of_another_database_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    run_virtual(fill(tmp_path / "other" / "db", tidy=False))
    foreign = (tmp_path / "other" / "db-wal").read_bytes()
    for tidy in (True, False):
        path = tmp_path / f"db-{tidy}"
        run_virtual(fill(path, tidy=tidy))
        log = path.with_name(f"{path.name}-wal")
        log.write_bytes(foreign)
        before = path.read_bytes()
        for _ in range(2):
            with pytest.raises(CorruptStore, match="does not belong to"):
                run_virtual(opened(path))
        with pytest.raises(CorruptStore, match="does not belong to"):
            examine(path, is_readable)
        assert (path.read_bytes(), log.read_bytes()) == (before, foreign)


class KilledBeforeEachStep(LoopCommitter):
    """Committer that copies the files before each step, as a kill would leave them.

    Steps are commits, checkpoints and compactions.
    """

    def __init__(self, path: Path, kept: Path) -> None:
        super().__init__()
        self._path = path
        self._kept = kept
        self.steps = 0

    def submit(self, job: Job, done: Done) -> None:
        def after_a_copy() -> None:
            copied(self._path, self._kept / str(self.steps))
            self.steps += 1
            job()

        super().submit(after_a_copy, done)


def test_a_log_that_begins_anew_with_every_commit_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a nearly full disk.

    It took hours until the log was refused as foreign; here it takes a few commits.
    """
    monkeypatch.setattr(lock_file, "_MAX_RESTARTS", 4)
    path, kept = tmp_path / "db", tmp_path / "kept"
    kept.mkdir()
    key = Key("configmaps", "default", "one")

    async def fill() -> int:
        committer = KilledBeforeEachStep(path, kept)
        store = await LogStore.open(
            path, clock=virtual_clock(), committer=committer, free_bytes=lambda: 0
        )
        for number in range(12):
            stage(store, key, str(number))
            await store.durable(store.staged_revision)
            await asyncio.sleep(1)
        await store.close()
        return committer.steps

    steps = run_virtual(fill())
    assert steps > 20, "there is a checkpoint after each commit"
    for step in range(steps):
        assert not isinstance(served := run_virtual(serve(kept / str(step) / "db", {})), str), (
            served
        )


@pytest.mark.parametrize("compacts_first", [False, True])
def test_log_emptied_by_other_process_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacts_first: bool
) -> None:
    """By an administrator with a SQLite shell, while the server runs.

    The next salt is then random.
    """
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "db"
    failures = PowerFailures(path, monkeypatch)
    left: list[tuple[Path, int]] = []
    key = Key("configmaps", "default", "a")

    async def live() -> None:
        store = await opened(path)

        def note() -> None:
            for newest_mark in (False, True):
                folder = tmp_path / f"left-{len(left)}"
                left.append((failures.leave(folder, newest_mark=newest_mark), store.revision))

        async def change() -> None:
            stage(store, key, "x")
            await store.durable(store.staged_revision)
            note()

        await change()
        await change()
        failures.write_mark()
        shell = apsw.Connection(str(path))
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        shell.close()
        note()
        if compacts_first:
            await asyncio.sleep(2 * LIMITS.history_seconds)
            assert store.compacted == store.revision
            note()
        await change()
        await store.close()

    run_virtual(live())
    for copy, revision in left:
        served = run_virtual(serve(copy, {}))
        assert isinstance(served, Served), served
        assert served.contents == {key: document(key, revision, "x")}


class PowerFailures:
    """Simulated power loss: lock file and deletion of the log survive only if synced.

    All writes of SQLite survive.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._lock, self._log = path.with_name("db.lock"), path.with_name("db-wal")
        self._mark = self._lock.read_bytes() if self._lock.exists() else b""
        self._old_log = b""
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._synced)

    def _synced(self, fd: int) -> None:
        self._sync(fd)
        if self._lock.exists() and os.path.samestat(os.fstat(fd), self._lock.stat()):
            self._mark = self._lock.read_bytes()
        if os.path.samestat(os.fstat(fd), self._path.parent.stat()) and not self._log.exists():
            self._old_log = b""

    def write_mark(self) -> None:
        """Write the mark to disk, as the kernel does periodically."""
        self._mark = self._lock.read_bytes()

    def note_log(self) -> None:
        self._old_log = self._log.read_bytes()

    def leave(self, folder: Path, *, newest_mark: bool) -> Path:
        """Return a copy as a power loss leaves it.

        The kernel may have written the mark at any time.
        """
        path = copied(self._path, folder)
        if not newest_mark:
            (folder / "db.lock").write_bytes(self._mark)
        if self._old_log and not self._log.exists():
            (folder / "db-wal").write_bytes(self._old_log)
        return path


def test_a_power_failure_leaves_no_mark_that_has_the_log_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the mark of an earlier process, which had no log any more, nor one that is ahead."""
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "db"
    keys = [Key("configmaps", "default", name) for name in ("a", "b")]
    left: list[tuple[Path, Key]] = []

    async def live(key: Key, failures: PowerFailures) -> None:
        store = await opened(path)
        stage(store, key, "x")
        await store.durable(store.staged_revision)
        failures.note_log()
        note(key, failures)
        await store.close()
        note(key, failures)

    def note(key: Key, failures: PowerFailures) -> None:
        for newest_mark in (False, True):
            folder = tmp_path / f"left-{len(left)}"
            left.append((failures.leave(folder, newest_mark=newest_mark), key))

    for key in keys:
        with monkeypatch.context() as patched:
            run_virtual(live(key, PowerFailures(path, patched)))
    for copy, key in left:
        served = run_virtual(serve(copy, {}))
        assert isinstance(served, Served), served
        assert key in served.contents


def test_an_older_database_in_the_place_of_the_newest_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "db"
    run_virtual(fill(path, tidy=True))
    older = path.read_bytes()

    async def more() -> None:
        store = await opened(path)
        stage(store, Key("configmaps", "default", "one-more"), "x")
        await store.close()

    run_virtual(more())
    newest = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(CorruptStore, match="was acknowledged, but the newest is"):
        run_virtual(opened(path))
    path.unlink()
    with pytest.raises(CorruptStore, match="the newest is 0"):
        run_virtual(opened(path))
    path.write_bytes(newest)
    run_virtual(more())


def test_a_repaired_database_has_all_that_is_whole_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "db"
    expected = run_virtual(fill(path, tidy=True))
    rng = random.Random(3)
    exact = 0
    for attempt in range(12):
        path = copied(tmp_path / "db", tmp_path / f"copy-{attempt}")
        data = bytearray(path.read_bytes())
        # Not the first pages: without them nothing can be read.
        noise(data, rng.randrange(3 * 8_192, len(data)), rng)
        path.write_bytes(data)
        found = examine(path, is_readable)
        if not found.problems:
            continue
        lock = LockFile(path)
        kept = repair(path, found)
        lock.release()
        assert kept.read_bytes() == bytes(data)
        assert examine(path, is_readable).problems == []
        served = run_virtual(serve(path, expected))
        assert isinstance(served, Served), (attempt, served)
        assert not served.damaged
        assert {key: saved.stored for key, saved in found.saved.items()} == served.contents
        if "may be outdated" not in " ".join(found.problems):
            for key, value in served.contents.items():
                assert expected[key] == value
            exact += 1
        run_virtual(_goes_on(path, found.revision))
    assert exact > 3


@pytest.mark.parametrize("pages", [1, 2, 8])
def test_a_repair_without_room_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    path = tmp_path / "db"
    expected = run_virtual(fill(path, tidy=False))
    _damage_a_document(path)
    before = {file.name for file in tmp_path.iterdir()}
    found = examine(path, is_readable)
    lock = LockFile(path)
    with monkeypatch.context() as patched:
        patched.setattr(apsw, "connection_hooks", [no_room_for("db.repairing", pages=pages)])
        with pytest.raises(CannotOpen, match="disk is full"):
            repair(path, found)
    lock.release()
    assert {file.name for file in tmp_path.iterdir()} == before
    assert check(path, expected) == "damaged"


class Killed(BaseException):
    """Not an Exception: nothing handles it."""


class KilledBefore:
    """Process that is killed before the nth of these calls."""

    def __init__(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = number
        for name in ("fsync", "rename", "unlink", "link", "pwrite"):
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if not self._left:
                raise Killed
            self._left -= 1
            return function(*arguments, **options)

        return call


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_repair_that_is_killed_anywhere_loses_no_more_than_one_that_is_not(
    tmp_path: Path, has_mark: bool
) -> None:
    """Most of the data is in the log. Without a mark its absence would go unnoticed."""
    original = tmp_path / "db"
    run_virtual(fill(original, tidy=False))
    interrupted = completed = 0
    while completed == 0:
        path = copied(original, tmp_path / f"killed-before-{interrupted}")
        if not has_mark:
            path.with_name("db.lock").unlink()
        _damage_a_document(path)
        found = examine(path, is_readable)
        lock = LockFile(path)
        with pytest.MonkeyPatch.context() as patched:
            KilledBefore(interrupted, patched)
            try:
                repair(path, found)
                completed += 1
            except Killed:
                interrupted += 1
        lock.release()
        served = run_virtual(serve(path, {}))
        if isinstance(served, str):
            assert "complete it with onejob doctor --repair" in served
            with pytest.raises(CorruptStore, match="complete it with"):
                examine(path, is_readable)
            lock = LockFile(path)
            assert complete_repair(path)
            lock.release()
            served = run_virtual(serve(path, {}))
        assert isinstance(served, Served), served
        assert served.contents == {key: saved.stored for key, saved in found.saved.items()}
    assert interrupted > 10


def _damage_a_document(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("wal_autocheckpoint", 0)
    connection.execute(
        "UPDATE log SET value = x'7b' WHERE revision ="
        " (SELECT max(revision) FROM log WHERE value IS NOT NULL)"
    )
    connection.close()


async def _goes_on(path: Path, newest: int) -> None:
    store = await opened(path)
    key = Key("configmaps", "default", "another")
    stage(store, key, "x")
    await store.durable(store.staged_revision)
    assert store.revision > newest
    await store.close()


def test_rows_of_an_older_schema_get_their_checksums(tmp_path: Path) -> None:
    path = tmp_path / "db"
    expected = run_virtual(fill(path, tidy=True))
    connection = apsw.Connection(str(path))
    connection.execute("ALTER TABLE log DROP COLUMN checksum; PRAGMA user_version = 1;")
    connection.close()

    async def live() -> None:
        store = await opened(path)
        stage(store, Key("configmaps", "default", "new"), "x")
        await asyncio.sleep(5)
        await store.close()

    run_virtual(live())
    connection = apsw.Connection(str(path))
    without = connection.execute(
        "SELECT count(*) FROM log WHERE checksum IS NULL AND value IS NOT NULL"
    ).fetchall()
    connection.close()
    assert without == [(0,)]
    served = run_virtual(serve(path, expected))
    assert isinstance(served, Served)
    assert not served.damaged


def test_a_migration_that_fails_is_not_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "db"
    run_virtual(fill(path, tidy=True))
    connection = apsw.Connection(str(path))
    # The step that adds the column will find it there.
    connection.pragma("user_version", len(STEPS) - 1)
    connection.close()
    with pytest.raises(MigrationFailed, match="from schema 1 to 2") as refused:
        run_virtual(opened(path))
    assert "damage" not in str(refused.value)
    assert "the file is unchanged" in str(refused.value)


async def test_history_that_is_damaged_sends_watchers_back_to_a_list(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = await opened(path)
    key = Key("configmaps", "default", "a")
    for text in ("first", "second"):
        stage(store, key, text)
        await store.durable(store.staged_revision)
    await store.close()
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE log SET value = CAST(replace(value, 'first', 'thirst') AS BLOB)"
        " WHERE revision = (SELECT min(revision) FROM log)"
    )
    connection.close()
    store = await opened(path)
    assert not store.damaged
    watch = store.watch("configmaps", after=1)
    with pytest.raises(TooFarBehind, match="history of configmaps/default/a is damaged"):
        await anext(watch)
    await store.close()
