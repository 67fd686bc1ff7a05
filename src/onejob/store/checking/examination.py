"""What is wrong with a database, and what of it can be saved. Changes nothing, and may be used
while a server runs."""

from pathlib import Path

import apsw
from msgspec import Struct, field

from onejob.objects.meta import Key
from onejob.store.base import CorruptStore
from onejob.store.checking.copies import open_for_reading, problems_of
from onejob.store.checking.salvage import Row, Salvaged, has_checksums, salvage
from onejob.store.damage import IsReadable, all_readable
from onejob.store.database import Reader, newest_revision, readable, refuse_half_repaired
from onejob.store.encryption import Cipher, is_encrypted
from onejob.store.limits import Limits
from onejob.store.lock_file import Mark, lost_revisions, read_mark, refuse_foreign_log
from onejob.store.migrations import is_empty
from onejob.store.recovery import recover

#: Revisions of a log whose end cannot be found are looked for up to here.
_FAR = 1 << 40


class SavedObject(Struct, frozen=True):
    """The newest version of an object that is whole."""

    revision: int
    #: As it is stored: a Secret may be encrypted.
    stored: bytes


class Examination(Struct):
    #: One line each: what is damaged, so that a server would not start, or refuse an object.
    problems: list[str] = field(default_factory=list)
    saved: dict[Key, SavedObject] = field(default_factory=dict)
    #: Objects whose newest version is lost, with its revision.
    lost: dict[Key, int] = field(default_factory=dict)
    revision: int = 0


def examine(path: Path, is_readable: IsReadable) -> Examination:
    """Raises CannotOpen in its kinds if nothing at all can be read."""
    # Read first: a server that runs meanwhile only goes beyond it.
    mark = read_mark(path)
    refuse_half_repaired(path)
    refuse_foreign_log(path, mark)
    found = Examination([f"{path.name}: {text}" for text in problems_of(path)])
    pages_are_whole = not found.problems
    salvaged, reached = _salvaged(path, mark)
    found.revision = max(salvaged.rows, default=0)
    _sort(found, salvaged, is_readable)
    if reached < mark.revision:
        found.problems.append(lost_revisions(path, mark, reached))
    if pages_are_whole:
        found.problems += _contradictions(path)
    found.revision = max(found.revision, mark.revision, reached)
    return found


def _salvaged(path: Path, mark: Mark) -> tuple[Salvaged, int]:
    """What can be had, and how far the log reaches."""
    with readable(path):
        connection = open_for_reading(path)
        try:
            connection.pragma("cell_size_check", 1)
            # Rows and index are read one after the other, and a server may write in between: of
            # two moments they would contradict each other.
            connection.execute("BEGIN")
            if is_empty(connection):
                # A server that was killed before it had made its tables.
                return Salvaged(), 0
            try:
                newest = reached = newest_revision(connection)
            except apsw.CorruptError:
                newest, reached = mark.revision or _FAR, mark.revision
            return salvage(connection, newest), reached
        finally:
            connection.close()


def _sort(found: Examination, salvaged: Salvaged, is_readable: IsReadable) -> None:
    """Into what is whole and what is lost."""
    newest: dict[Key, Row] = {}
    for _, row in sorted(salvaged.rows.items()):
        newest[row.key] = row
    for key, row in newest.items():
        if row.deleted and row.intact:
            continue
        if row.value is not None and row.intact and _may_be_read(key, row.value, is_readable):
            found.saved[key] = SavedObject(row.revision, row.value)
        else:
            found.lost[key] = row.revision
            found.problems.append(f"{key}: its document (revision {row.revision}) is damaged")
    # Versions of which a lost row is known to have replaced them are not the newest.
    by_revision = {saved.revision: key for key, saved in found.saved.items()}
    if salvaged.replaced is None:
        found.problems.append(
            "which versions were replaced cannot be read: objects may be older than they were"
        )
    for revision, previous in sorted((salvaged.replaced or {}).items()):
        key_or_none = by_revision.get(previous)
        if key_or_none is not None:
            del found.saved[key_or_none]
            found.lost[key_or_none] = revision
            found.problems.append(
                f"{key_or_none}: its newest version (revision {revision}) is on a damaged page"
            )
    for first, last in salvaged.lost:
        found.problems.append(
            f"revisions {first} to {last} are on damaged pages: objects that were created then are "
            "missing"
        )


def _may_be_read(key: Key, stored: bytes, is_readable: IsReadable) -> bool:
    """Of what is encrypted no more is known without its key than that it is what was written."""
    return is_encrypted(stored) or is_readable(key, stored)


def _contradictions(path: Path) -> list[str]:
    """Why a server would refuse the log though all its rows are whole."""
    try:
        reader = _SnapshotReader(path)
    except apsw.Error as error:
        return [f"{path} cannot be opened: {error}"]
    try:
        if not reader.is_empty:
            recover(reader, Limits(), 0.0, all_readable)
    except CorruptStore as error:
        return [str(error)]
    finally:
        reader.close()
    return []


class _SnapshotReader(Reader):
    """Of one moment, and of any schema."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, cipher=_AsStored())
        self._connection.pragma("temp_store", 2)
        self._connection.execute("BEGIN")
        self.is_empty = is_empty(self._connection)
        if not self.is_empty and not has_checksums(self._connection):
            # It is read as if it had been migrated, which only a server may do.
            self._connection.execute(
                "CREATE TEMP VIEW log AS SELECT *, NULL AS checksum FROM main.log"
            )


class _AsStored(Cipher):
    """Decrypts nothing: whether Secrets can be decrypted is not known without their key."""

    def decrypt(self, key: Key, value: bytes) -> bytes:
        return value
