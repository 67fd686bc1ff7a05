"""SQLite database file: opening, locking, migration, and queries.

There are two connections: the writer, the only one that writes and checkpoints, and the reader,
which the loop's thread uses for history and cold values. Staging and watches are implemented
elsewhere.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import apsw
from msgspec import Struct

from onejob.objects.meta import Key
from onejob.store.base import CannotOpen, Change, CorruptStore, Stored, StoreFailed
from onejob.store.checksums import DAMAGED, is_intact
from onejob.store.encryption import Cipher, reencrypt_secrets
from onejob.store.limits import MIB
from onejob.store.lock_file import (
    CREATED,
    LockFile,
    log_path,
    prepare_index,
    read_mark,
    refuse_foreign_log,
    refuse_lost_revisions,
    sync,
    was_copied,
)
from onejob.store.migrations import is_empty, migrate, refuse_foreign

#: Documents are about 2 kB: with 4 kB pages, one page in two would be half empty.
PAGE_BYTES = 8192
#: Limit for reports that a person reads.
_MAX_PROBLEMS = 20
#: SQLite busy timeout; longer than any of our checkpoints takes. The lock is held by a person with
#: a SQLite shell, or by `onejob doctor` and `backup` when they are the first to read the log after
#: a kill.
BUSY_MILLISECONDS = 5_000
_LOG_HEADER_BYTES = 32
_VALUES_AT_ONCE = 1_000


class Database(Struct, frozen=True):
    """The two connections, and the lock that excludes other processes."""

    path: Path
    lock: LockFile
    writer: apsw.Connection
    reader: "Reader"
    free_bytes: "FreeBytes"

    def close(self, *, tidy: bool = True) -> None:
        """Close both connections and release the lock.

        `tidy` False leaves the files as they are, for the next start to recover from.
        """
        self.reader.close()
        if tidy:
            self.writer.close()
            self.lock.closed()
        else:
            _close_without_checkpoint(self.writer)
        self.lock.release()


def open_database(
    path: Path,
    vfs: str | None = None,
    free_bytes: "FreeBytes | None" = None,
    cipher: Cipher | None = None,
) -> Database:
    """Lock the database, create it if necessary, and migrate it.

    Raises a subclass of CannotOpen.
    """
    cipher, given = cipher or Cipher(), cipher is not None
    if free_bytes is None:
        free_bytes = partial(_free_bytes, path.parent)
    with ExitStack() as undo:
        lock = LockFile(path)
        undo.callback(lock.release)
        with readable(path):
            mark = read_mark(path)
            refuse_half_repaired(path)
            refuse_lone_log(path)
            refuse_foreign_log(path, mark)
            _create_private(path)
            if vfs is None:
                prepare_index(path)
            writer = apsw.Connection(str(path), vfs=vfs)
            undo.callback(_close_without_checkpoint, writer)
            writer.set_busy_timeout(BUSY_MILLISECONDS)
            refuse_foreign(writer, str(path))
            refuse_lost_revisions(path, mark, newest_revision(writer))
            if was_copied(path):
                _refuse_torn(path, writer)
            lock.begin(mark.revision)
            _configure(writer)
            migrate(writer)
            if _size(log_path(path)) > room_for_log(free_bytes()):
                _truncate_log(writer)
            if given and reencrypt_secrets(writer, cipher):
                # The write-ahead log still contains them in their previous form.
                _truncate_log(writer)
            reader = Reader(path, vfs, cipher)
        undo.pop_all()
        return Database(path, lock, writer, reader, free_bytes)


class LogRow(NamedTuple):
    """One row of the log as read at start-up, without its document."""

    revision: int
    previous: int
    resource: str
    namespace: str
    name: str
    deleted: int
    size: int
    cold: int
    #: None in rows written before schema 2.
    checksum: int | None


FreeBytes: TypeAlias = Callable[[], int]


def room_for_log(free_bytes: int) -> int:
    """Return the maximum length of the write-ahead log in bytes, half of the free space.

    A checkpoint copies the log into the database, which must have room while the log still exists.
    """
    return free_bytes // 2


def shorten_log(connection: apsw.Connection) -> bool:
    """Copy the write-ahead log into the database and truncate it; return whether it was truncated.

    If not, nothing is lost: the log is still complete. Raises StoreFailed.
    """
    try:
        return _truncate_log(connection)
    except apsw.Error as error:
        raise StoreFailed(f"checkpoint: {error}") from error


def _truncate_log(connection: apsw.Connection) -> bool:
    """Checkpoint the write-ahead log and truncate it; return False if that is not possible now."""
    try:
        frames, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.FullError, apsw.BusyError):
        return False
    return copied >= frames


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _size(path: Path) -> int:
    """Return the size of a file; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def repaired_path(path: Path) -> Path:
    """Return the path of a complete database that is about to replace a damaged one."""
    return path.with_name(f"{path.name}.repaired")


def refuse_half_repaired(path: Path) -> None:
    """Reject a database whose repair was interrupted: the file may already lack its log.

    Raises CorruptStore.
    """
    if repaired_path(path).exists():
        raise CorruptStore(
            f"a repair of {path} was interrupted; complete it with onejob doctor --repair"
        )


def refuse_lone_log(path: Path) -> None:
    """Reject an empty database with a write-ahead log. Raises CorruptStore.

    SQLite treats an empty database as new and removes its log: all writes since the last
    checkpoint, often everything.
    """
    log = log_path(path)
    if _size(path) == 0 and _size(log) > _LOG_HEADER_BYTES:
        raise CorruptStore(
            f"{path} is empty, but {log.name} is not: the database was lost; restore both from "
            f"the same copy, or move {log.name} away to start with an empty store"
        )


def _refuse_torn(path: Path, connection: apsw.Connection) -> None:
    """Reject a copy with pages of different ages. Raises CorruptStore.

    Reads all pages, which is slow, but only at the first start of a copy: from then on, the lock
    file has its inode.
    """
    if problems := pages_problems(connection):
        raise CorruptStore(
            f"{path} is a damaged copy ({problems[0]}), made while a server was running: copy "
            "it again with onejob backup, or after stopping the server; onejob doctor lists "
            "intact objects"
        )


def pages_problems(connection: apsw.Connection) -> list[str]:
    """Return the problems that SQLite finds in the pages of an open database."""
    found: list[str] = []
    try:
        rows: Any = connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})")
        for (text,) in rows:
            # A row may hold several lines.
            found += str(text).splitlines()
    except apsw.CorruptError as error:
        # Reported only if no problem was found before it.
        found = found or [str(error)]
    return [] if found == ["ok"] else found


def _configure(connection: apsw.Connection) -> None:
    """Set the pragmas of a connection, and those that shape a new file."""
    if connection.pragma("page_count") == 0:
        # Possible only in a new file. Incremental vacuum can then return free pages in slices.
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("auto_vacuum", 2)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    # The store times its own checkpoints: after a commit is acknowledged, not within it.
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("journal_size_limit", 64 * MIB)
    connection.pragma("cache_size", -8_192)


def _close_without_checkpoint(connection: apsw.Connection) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(True)


class Reader:
    """Read queries for the loop's thread.

    Each call is one finished statement, so that no open read transaction blocks a checkpoint.
    """

    def __init__(self, path: Path, vfs: str | None = None, cipher: Cipher | None = None) -> None:
        self._path = path
        self._cipher = cipher or Cipher()
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
        self._connection.set_busy_timeout(BUSY_MILLISECONDS)
        self._connection.pragma("wal_autocheckpoint", 0)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def compacted(self) -> int:
        """Return the revision up to which history is compacted. Raises CorruptStore."""
        with readable(self._path):
            rows = self._connection.execute("SELECT compacted FROM state").fetchall()
            if len(rows) != 1:
                raise CorruptStore(f"{self._path} is damaged: it has {len(rows)} states")
            return _number(rows[0][0])

    @contextmanager
    def rows(self) -> Iterator[Iterator[LogRow]]:
        """Yield a cursor over the whole log, in order.

        Its rows are plain tuples: there may be a hundred thousand.
        """
        with readable(self._path):
            cursor: Any = self._connection.execute(
                "SELECT revision, ifnull(previous, 0), resource, namespace, name, value IS NULL,"
                " ifnull(length(value), 0), ifnull(cold, 0), checksum FROM log ORDER BY revision"
            )
            yield cursor

    def first_values(self, wanted: Mapping[int, Key]) -> Iterator[Stored]:
        """Yield these versions, while the store is being opened. Raises MissingKey."""
        revisions = list(wanted)
        with readable(self._path):
            for first in range(0, len(revisions), _VALUES_AT_ONCE):
                rows: Any = self._connection.execute(
                    "SELECT revision, value, checksum FROM log"
                    " WHERE revision IN (SELECT value FROM json_each(?))",
                    (str(revisions[first : first + _VALUES_AT_ONCE]),),
                )
                for revision, value, checksum in rows:
                    key = wanted[revision]
                    yield Stored(key, revision, self._plain(key, revision, value, checksum))

    def value(self, key: Key, revision: int) -> bytes:
        """Return the document of a retained version; DAMAGED if its checksum does not match."""
        return self.values({revision: key})[revision]

    def values(self, wanted: Mapping[int, Key]) -> Mapping[int, bytes]:
        """Return the documents of many versions; a third of the time of single reads."""
        rows = self._select(
            "SELECT revision, value, checksum FROM log"
            " WHERE revision IN (SELECT value FROM json_each(?))",
            str(list(wanted)),
        )
        assert len(rows) == len(wanted), "versions are missing in the log"
        return {
            revision: self._plain(wanted[revision], revision, value, checksum)
            for revision, value, checksum in rows
        }

    def without_checksum(self, *, after: int, most: int) -> Sequence[tuple[int, str, bytes]]:
        """Return revision, resource and stored bytes of rows written before schema 2."""
        return self._select(
            "SELECT revision, resource, value FROM log"
            " WHERE checksum IS NULL AND value IS NOT NULL AND revision > ?"
            " ORDER BY revision LIMIT ?",
            after, most,
        )  # fmt: skip

    def _plain(self, key: Key, revision: int, value: Any, checksum: Any) -> bytes:
        """Return the decrypted value of a row; DAMAGED if it is absent or its checksum is wrong."""
        if value is None or not is_intact(revision, key.resource, value, checksum):
            return DAMAGED
        return self._cipher.decrypt(key, value)

    def changes(
        self, resource: str, namespace: str, *, after: int, upto: int, most_bytes: int
    ) -> tuple[list[Change], int]:
        """Return the changes in (after, upto], and the last revision covered.

        That is less than `upto` if the changes exceed `most_bytes`.
        """
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
            "SELECT new.revision, new.namespace, new.name, new.cold, new.value, new.checksum,"
            " ifnull(new.previous, 0), old.value, old.checksum"
            f" FROM {_CHANGES} ORDER BY new.revision",
            after, upto, resource, namespace,
        )  # fmt: skip
        return [self._change(resource, *row) for row in rows], upto

    def _change(
        self,
        resource: str,
        revision: int,
        namespace: str,
        name: str,
        cold: int,
        value: bytes | None,
        checksum: int | None,
        previous_revision: int,
        previous: bytes | None,
        previous_checksum: int | None,
    ) -> Change:
        key = Key(resource, namespace, name)
        if value is not None:
            value = self._plain(key, revision, value, checksum)
        if previous is not None:
            previous = self._plain(key, previous_revision, previous, previous_checksum)
        return Change(key, revision, value, previous, previous_revision, bool(cold))

    def superseded(self, resource: str, *, after: int, upto: int) -> Sequence[tuple[str, str, int]]:
        """Return namespace, name and replaced revision (or 0) of each change in (after, upto]."""
        return self._select(
            "SELECT namespace, name, ifnull(previous, 0) FROM log"
            " WHERE revision > ? AND revision <= ? AND resource = ? ORDER BY revision",
            after, upto, resource,
        )  # fmt: skip

    def _select(self, statement: str, *values: str | int) -> list[Any]:
        """Return the rows of a query. Raises StoreFailed."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise StoreFailed(
                f"cannot read {self._path} ({error}): onejob doctor lists the damage"
            ) from error


#: Changes of a resource in an interval of revisions, joined with the versions they replaced.
_CHANGES = (
    "log AS new LEFT JOIN log AS old ON old.revision = new.previous"
    " WHERE new.revision > ?1 AND new.revision <= ?2 AND new.resource = ?3"
    " AND (?4 = '' OR new.namespace = ?4)"
)


#: SQLite errors for a file with unexpected content.
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SQLError)


def in_one_line(error: Exception) -> str:
    """Return the message on one line. SQLite may quote a whole statement as found in the file."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Convert SQLite errors into CorruptStore or CannotOpen."""
    try:
        yield
    except (*_DAMAGE, UnicodeDecodeError) as error:
        raise CorruptStore(
            f"{path} is damaged ({in_one_line(error)}): onejob doctor lists lost objects, saves "
            "intact ones and repairs; or restore a backup"
        ) from error
    except apsw.Error as error:
        raise CannotOpen(f"cannot open {path}: {_cause(error)}") from error


def _cause(error: apsw.Error) -> str:
    """Return the cause in words, on one line.

    The shared-memory index of the log needs space as well; SQLite reports an I/O error if there is
    none.
    """
    no_index = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    if isinstance(error, apsw.FullError) or no_index:
        return "the disk is full"
    return in_one_line(error)


def newest_revision(connection: apsw.Connection) -> int:
    """Return the newest revision of a log; 0 if there is none yet."""
    if is_empty(connection):
        return 0
    ((revision,),) = connection.execute(
        "SELECT max(ifnull((SELECT max(revision) FROM log), 0),"
        " ifnull((SELECT max(compacted) FROM state), 0))"
    ).fetchall()
    return _number(revision)


def _create_private(path: Path) -> None:
    file = os.open(path, CREATED, 0o600)
    try:
        # SQLite gives its -wal and -shm files the mode of the main file.
        os.fchmod(file, 0o600)
    finally:
        os.close(file)
    sync(path.parent)


def _number(value: object) -> int:
    """Return the value, which is an int."""
    assert isinstance(value, int)
    return value
