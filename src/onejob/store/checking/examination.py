"""Database check: damage found in a database, and the objects that can be saved.

Read-only; may run while a server uses the database.
"""

from pathlib import Path
from sys import maxsize

import apsw
from msgspec import Struct, field

from onejob.objects.meta import Key
from onejob.store.base import CorruptStore
from onejob.store.checking.copies import open_for_reading, problems_of
from onejob.store.checking.salvage import Row, Salvaged, has_checksums, read_log, salvage_log
from onejob.store.damage import IsReadable, all_readable
from onejob.store.database import Reader, newest_revision, readable, refuse_half_repaired
from onejob.store.encryption import NoCipher, is_encrypted
from onejob.store.limits import Limits
from onejob.store.lock_file import Mark, lost_revisions, read_mark, refuse_foreign_log
from onejob.store.migrations import is_empty
from onejob.store.recovery import FIRST_REVISION, recover


class SavedObject(Struct, frozen=True):
    """Newest version of an object, which is intact."""

    revision: int
    #: Stored form: a Secret may be encrypted.
    stored: bytes


class Examination(Struct):
    """Result of a check. `lost` and `unnamed` together are an upper bound on the lost objects."""

    #: One line per damage that would keep a server from starting or from serving an object.
    problems: list[str] = field(default_factory=list)
    saved: dict[Key, SavedObject] = field(default_factory=dict)
    #: Objects whose newest version is lost, with its revision.
    lost: dict[Key, int] = field(default_factory=dict)
    #: Upper bound on further lost objects, whose names are unreadable.
    unnamed: int = 0
    #: Upper bound on saved objects that had a newer version, which is lost.
    outdated: int = 0
    revision: int = 0


def examine(path: Path, is_readable: IsReadable) -> Examination:
    """Check a database. Raises a subclass of CannotOpen if nothing at all can be read."""
    # Read first: a running server can only advance beyond it.
    mark = read_mark(path)
    refuse_half_repaired(path)
    refuse_foreign_log(path, mark)
    found = Examination([f"{path.name}: {text}" for text in problems_of(path)])
    pages_are_whole = not found.problems
    log = _read(path, mark, pages_are_whole=pages_are_whole)
    found.revision = max(log.reached, mark.revision)
    _sort(found, log, is_readable)
    _count_missing(found, log, mark)
    if log.reached < mark.revision:
        found.problems.append(lost_revisions(path, mark, log.reached))
    if pages_are_whole:
        found.problems += _contradictions(path)
    return found


class _Log(Struct, frozen=True):
    salvaged: Salvaged
    #: Newest revision found in the database.
    reached: int
    #: Each later revision up to the newest has a row, unless its page is damaged. None if
    #: unreadable.
    compacted: int | None


def _read(path: Path, mark: Mark, *, pages_are_whole: bool) -> _Log:
    """Return the rows of the log in one consistent snapshot. Raises CorruptStore."""
    with readable(path):
        connection = open_for_reading(path)
        try:
            # A transaction, for a consistent snapshot: a server may write concurrently.
            connection.execute("BEGIN")
            if is_empty(connection):
                # A server was killed before it had created its tables.
                return _Log(Salvaged(), 0, 0)
            if pages_are_whole:
                salvaged = read_log(connection)
                reached = newest_revision(connection)
                return _Log(salvaged, reached, reached)
            salvaged = salvage_log(connection)
            rows = [row.revision for row in salvaged.rows.values() if row.intact]
            try:
                reached = newest_revision(connection)
            except apsw.CorruptError:
                reached = mark.revision
            return _Log(salvaged, max(reached, *rows, 0), _compacted(connection, salvaged))
        finally:
            connection.close()


def _compacted(connection: apsw.Connection, salvaged: Salvaged) -> int | None:
    """Return the revision up to which history was compacted; None if it is unreadable."""
    try:
        ((compacted,),) = connection.execute("SELECT max(compacted) FROM state").fetchall()
    except apsw.Error:
        return None
    if not isinstance(compacted, int):
        return None
    # Compaction leaves no superseded versions and no deletions, so such a row proves that its
    # revision is not compacted.
    later = (
        row.revision
        for row in salvaged.rows.values()
        if row.intact and (row.deleted or row.previous in salvaged.rows)
    )
    return min(compacted, min(later, default=maxsize) - 1)


def _sort(found: Examination, log: _Log, is_readable: IsReadable) -> None:
    """Classify the objects as saved or lost."""
    salvaged = log.salvaged
    compacted = maxsize if log.compacted is None else log.compacted
    successors = _successors(salvaged)
    #: Whether the newest row of an object is intact.
    settled: dict[Key, bool] = {}
    misnamed: list[Row] = []
    for _, row in sorted(salvaged.rows.items(), reverse=True):
        key = row.key
        successor = successors.get(row.revision)
        if key in settled:
            if successor is None and not (settled[key] and _is_whole(row, is_readable)):
                # No known row replaced it: one of the two may carry the name of another object.
                misnamed.append(row)
            continue
        settled[key] = _is_whole(row, is_readable)
        if successor is not None:
            found.lost[key] = successor
            found.problems.append(
                f"{key}: its newest version (revision {successor}) is on a damaged page"
            )
        elif not settled[key]:
            found.lost[key] = row.revision
            found.problems.append(f"{key}: its document (revision {row.revision}) is damaged")
        elif not row.in_use and row.revision <= compacted:
            found.lost[key] = row.revision
            found.problems.append(
                f"{key}: revision {row.revision} is on a page that may be unused: the object "
                "may have been deleted or replaced since"
            )
        elif row.value is not None:
            found.saved[key] = SavedObject(row.revision, row.value)
    for row in misnamed:
        found.unnamed += 1
        found.problems.append(
            f"revision {row.revision} may be damaged and belong to another object than {row.key}"
        )


def _successors(salvaged: Salvaged) -> dict[int, int]:
    """Return revision -> the revision that replaced it.

    The index is redundant to the rows: it adds information only for unreadable rows.
    """
    replaced = dict(salvaged.replaced)
    for row in salvaged.rows.values():
        if row.intact or row.revision not in replaced:
            replaced[row.revision] = row.previous
    return {previous: revision for revision, previous in replaced.items() if previous}


def _count_missing(found: Examination, log: _Log, mark: Mark) -> None:
    """Bound the loss among revisions without any readable trace, not even an object's name."""
    salvaged, newest, compacted = log.salvaged, found.revision, log.compacted or 0
    gone = salvaged.rows.keys() | _successors(salvaged).keys() | set(found.lost.values())
    gone.add(FIRST_REVISION)
    old = compacted - sum(0 < revision <= compacted for revision in gone)
    recent = newest - compacted - sum(compacted < revision <= newest for revision in gone)
    if mark.revision < log.reached:
        # The end of the log is unknown: only the capacity of the pages bounds the loss.
        old = maxsize
    missing = recent + min(old, salvaged.unread_rows)
    unlinked = recent if not salvaged.index_complete else newest - log.reached
    found.unnamed += missing
    found.outdated = min(unlinked, len(found.saved))
    if missing:
        found.problems.append(
            f"up to {missing} objects created or changed before revision {newest + 1} cannot be "
            "read or identified"
        )
    if found.outdated:
        found.problems.append(
            f"up to {found.outdated} of the intact objects may be outdated: their newest "
            "version may be unreadable"
        )


def _is_whole(row: Row, is_readable: IsReadable) -> bool:
    if not row.intact or row.value is None:
        return row.intact and row.deleted
    return _may_be_read(row.key, row.value, is_readable)


def _may_be_read(key: Key, stored: bytes, is_readable: IsReadable) -> bool:
    """Return whether a server could read a document.

    Without its key, an encrypted document can only be checked against its checksum.
    """
    return is_encrypted(stored) or is_readable(key, stored)


def _contradictions(path: Path) -> list[str]:
    """Return why a server would reject the log although all its rows are intact."""
    try:
        reader = _SnapshotReader(path)
    except apsw.Error as error:
        return [f"cannot open {path}: {error}"]
    try:
        if not reader.is_empty:
            recover(reader, Limits(), 0.0, all_readable)
    except CorruptStore as error:
        return [str(error)]
    finally:
        reader.close()
    return []


class _SnapshotReader(Reader):
    """Reader of one consistent snapshot, for any schema version."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, cipher=NoCipher())
        self._connection.pragma("temp_store", 2)
        self._connection.execute("BEGIN")
        self.is_empty = is_empty(self._connection)
        if not self.is_empty and not has_checksums(self._connection):
            # Read as if it had been migrated; only a server may migrate.
            self._connection.execute(
                "CREATE TEMP VIEW log AS SELECT *, NULL AS checksum FROM main.log"
            )
