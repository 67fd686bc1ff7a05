"""The file: opened by one process, migrated, read back.

Two connections: the writer, which alone writes and checkpoints, and the reader, which the
loop's thread uses for history and cold values. Nothing here knows of staging or watches.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import apsw
from msgspec import Struct

from onejob.objects.meta import Key
from onejob.store.base import CannotOpen, Change, CorruptStore, Stored, StoreFailed, StoreLocked
from onejob.store.encryption import ENCRYPTED_RESOURCE, Cipher, is_encrypted, rewrite_others
from onejob.store.limits import MIB
from onejob.store.migrations import migrate, refuse_foreign

#: Documents are about 2 kB: of 4 kB pages one in two would be half empty.
PAGE_BYTES = 8192
#: Longer than any checkpoint of ours takes; only a person with a SQLite shell makes us wait.
BUSY_MILLISECONDS = 5_000
_LOG_HEADER_BYTES = 32
_VALUES_AT_ONCE = 1_000
_CREATED = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Database(Struct, frozen=True):
    """The two connections and the lock that makes them the only ones."""

    lock: "LockFile"
    writer: apsw.Connection
    reader: "Reader"
    free_bytes: "FreeBytes"

    def close(self, *, tidy: bool = True) -> None:
        """`tidy` False leaves the files as they are, for the next start to recover from."""
        self.reader.close()
        if tidy:
            self.writer.close()
        else:
            _abandon(self.writer)
        self.lock.release()


def open_database(
    path: Path,
    vfs: str | None = None,
    free_bytes: "FreeBytes | None" = None,
    cipher: Cipher | None = None,
) -> Database:
    """Lock, create if need be, migrate. Raises CannotOpen in its kinds."""
    cipher, given = cipher or Cipher(), cipher is not None
    if free_bytes is None:
        free_bytes = partial(_free_bytes, path.parent)
    with ExitStack() as undo:
        lock = LockFile(path)
        undo.callback(lock.release)
        with readable(path):
            _refuse_lone_log(path)
            _create_private(path)
            writer = apsw.Connection(str(path), vfs=vfs)
            undo.callback(_abandon, writer)
            refuse_foreign(writer, str(path))
            _configure(writer)
            migrate(writer)
            if _size(_log_of(path)) > room_for_log(free_bytes()):
                shorten_log(writer)
            if given and rewrite_others(writer, cipher):
                # The log has them as they were before.
                shorten_log(writer)
            reader = Reader(path, vfs, cipher)
        undo.pop_all()
        return Database(lock, writer, reader, free_bytes)


class LogRow(NamedTuple):
    """One row as it is read at start, without its document."""

    revision: int
    previous: int
    resource: str
    namespace: str
    name: str
    deleted: int
    size: int
    cold: int


class LockFile:
    """Held for as long as the process lives; the kernel lets go of it after a kill -9."""

    def __init__(self, path: Path) -> None:
        lock_path = f"{path}.lock"
        self._file = os.open(lock_path, _CREATED, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise StoreLocked(
                f"{path} is in use by another onejob; stop it or use another data directory"
            ) from None

    def release(self) -> None:
        os.close(self._file)


FreeBytes: TypeAlias = Callable[[], int]


def room_for_log(free_bytes: int) -> int:
    """How long the write-ahead log may be: what is in it goes into the database in the end, and
    must find room there while the log still has its own."""
    return free_bytes // 2


def shorten_log(connection: apsw.Connection) -> bool:
    """Copy the write-ahead log into the database and give its room back; whether that was done.
    Nothing is lost if not: the log still has it all."""
    try:
        frames, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.FullError, apsw.BusyError):
        return False
    except apsw.Error as error:
        raise StoreFailed(f"checkpoint: {error}") from error
    return copied >= frames


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _refuse_lone_log(path: Path) -> None:
    """SQLite takes an empty database for a new one, and removes the log that it finds beside it:
    all that was written since the last checkpoint, often everything."""
    log = _log_of(path)
    if _size(path) == 0 and _size(log) > _LOG_HEADER_BYTES:
        raise CorruptStore(
            f"{path} is empty, but {log.name} beside it is not: the database was lost; restore "
            f"both from the same copy, or move {log.name} away to start anew"
        )


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    if connection.pragma("page_count") == 0:
        # Possible only in a new file. Freed pages can then be given back in slices.
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("auto_vacuum", 2)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    # Checkpoints are ours to time: after a commit is acknowledged, not within it.
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("journal_size_limit", 64 * MIB)
    connection.pragma("cache_size", -8_192)


def _abandon(connection: apsw.Connection) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(True)


class Reader:
    """Reads on the loop's thread. Each call is one finished statement, so that no read
    transaction stays open to hold up a checkpoint."""

    def __init__(self, path: Path, vfs: str | None = None, cipher: Cipher | None = None) -> None:
        self._path = path
        self._cipher = cipher or Cipher()
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
        self._connection.set_busy_timeout(BUSY_MILLISECONDS)
        self._connection.pragma("wal_autocheckpoint", 0)

    def close(self) -> None:
        self._connection.close()

    def compacted(self) -> int:
        with readable(self._path):
            rows = self._connection.execute("SELECT compacted FROM state").fetchall()
            if len(rows) != 1:
                raise CorruptStore(f"{self._path} is damaged: it has {len(rows)} states")
            return _number(rows[0][0])

    def rows(self) -> Iterator[LogRow]:
        """The whole log in order, as plain tuples: there may be a hundred thousand."""
        with readable(self._path):
            cursor: Any = self._connection.execute(
                "SELECT revision, ifnull(previous, 0), resource, namespace, name, value IS NULL,"
                " ifnull(length(value), 0), ifnull(cold, 0) FROM log ORDER BY revision"
            )
            yield from cursor

    def first_values(self, wanted: Mapping[int, Key]) -> Iterator[Stored]:
        """These versions, while the store is being opened. Raises MissingKey."""
        revisions = list(wanted)
        with readable(self._path):
            for first in range(0, len(revisions), _VALUES_AT_ONCE):
                rows: Any = self._connection.execute(
                    "SELECT revision, value FROM log"
                    " WHERE revision IN (SELECT value FROM json_each(?))",
                    (str(revisions[first : first + _VALUES_AT_ONCE]),),
                )
                for revision, value in rows:
                    key = wanted[revision]
                    if key.resource == ENCRYPTED_RESOURCE:
                        value = self._cipher.decrypt(key, value)
                    yield Stored(key, revision, value)

    def value(self, revision: int) -> bytes:
        """The document of a version that is still kept."""
        ((value,),) = self._select("SELECT value FROM log WHERE revision = ?", revision)
        assert isinstance(value, bytes), f"revision {revision} is a deletion"
        return self._plain(revision, value)

    def values(self, revisions: Sequence[int]) -> Mapping[int, bytes]:
        """The documents of many versions; a third of the time that one by one would take."""
        rows = self._select(
            "SELECT revision, value FROM log WHERE revision IN (SELECT value FROM json_each(?))",
            str(list(revisions)),
        )
        assert len(rows) == len(revisions), "versions are missing in the log"
        return {revision: self._plain(revision, value) for revision, value in rows}

    def _plain(self, revision: int, value: bytes) -> bytes:
        if not is_encrypted(value):
            return value
        ((resource, namespace, name),) = self._select(
            "SELECT resource, namespace, name FROM log WHERE revision = ?", revision
        )
        return self._cipher.decrypt(Key(resource, namespace, name), value)

    def changes(
        self, resource: str, namespace: str, *, after: int, upto: int, most_bytes: int
    ) -> tuple[list[Change], int]:
        """Changes in (after, upto], and how far they reach: less than `upto` if they are big."""
        sizes = self._select(
            "SELECT new.revision, ifnull(length(new.value), 0) + ifnull(length(old.value), 0)"
            f" FROM {_CHANGES} ORDER BY new.revision",
            after, upto, resource, namespace,
        )  # fmt: skip
        size = 0
        for revision, more in sizes:
            size += more
            if size >= most_bytes:
                upto = revision
                break
        rows = self._select(
            "SELECT new.revision, new.namespace, new.name, new.cold, new.value,"
            f" ifnull(new.previous, 0), old.value FROM {_CHANGES} ORDER BY new.revision",
            after, upto, resource, namespace,
        )  # fmt: skip
        changes = [
            Change(
                Key(resource, place, name), revision, value, previous, previous_revision, bool(cold)
            )
            for revision, place, name, cold, value, previous_revision, previous in rows
        ]
        if resource == ENCRYPTED_RESOURCE:
            for change in changes:
                change.value = self._decrypted(change.key, change.value)
                change.previous = self._decrypted(change.key, change.previous)
        return changes, upto

    def _decrypted(self, key: Key, value: bytes | None) -> bytes | None:
        return None if value is None else self._cipher.decrypt(key, value)

    def superseded(self, resource: str, *, after: int, upto: int) -> Sequence[tuple[str, str, int]]:
        """Namespace, name and replaced revision (0: none) of each change in (after, upto]."""
        return self._select(
            "SELECT namespace, name, ifnull(previous, 0) FROM log"
            " WHERE revision > ? AND revision <= ? AND resource = ? ORDER BY revision",
            after, upto, resource,
        )  # fmt: skip

    def _select(self, statement: str, *values: str | int) -> list[Any]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise StoreFailed(f"{self._path} cannot be read: {error}") from error


#: Changes of a resource in an interval, with what they replaced.
_CHANGES = (
    "log AS new LEFT JOIN log AS old ON old.revision = new.previous"
    " WHERE new.revision > ?1 AND new.revision <= ?2 AND new.resource = ?3"
    " AND (?4 = '' OR new.namespace = ?4)"
)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns SQLite's words for a file that cannot be read into ours."""
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SQLError) as error:
        raise CorruptStore(
            f"{path} is damaged ({error}); restore a copy or use another data directory"
        ) from error
    except apsw.Error as error:
        raise CannotOpen(f"{path} cannot be opened: {error}") from error


def _create_private(path: Path) -> None:
    file = os.open(path, _CREATED, 0o600)
    try:
        # SQLite gives its -wal and -shm files the mode of the main file.
        os.fchmod(file, 0o600)
    finally:
        os.close(file)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
