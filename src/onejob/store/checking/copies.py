"""Online backup and integrity check of a database that a server may be writing to."""

import os
from collections.abc import Callable
from pathlib import Path

import apsw

from onejob.store.base import CannotOpen, CorruptStore
from onejob.store.database import (
    BUSY_MILLISECONDS,
    newest_revision,
    pages_problems,
    readable,
    refuse_half_repaired,
    refuse_lone_log,
)
from onejob.store.lock_file import sync
from onejob.store.migrations import refuse_foreign

#: SQLite virtual machine instructions between two polls of `given_up`; some milliseconds.
_STEPS_BETWEEN_QUESTIONS = 10_000


def copy_database(source: Path, target: Path) -> int:
    """Copy a snapshot of the database into a new file and return its newest revision.

    The file is on disk when this returns. A server that uses the database continues. Raises a
    subclass of CannotOpen.
    """
    with readable(source):
        reader = open_for_reading(source)
        try:
            # As private as the original.
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            writer = apsw.Connection(str(target))
            try:
                # In one step, so that the copy is one snapshot.
                with writer.backup("main", reader, "main") as copying:
                    copying.step()
                # A copy is a single file, without a write-ahead log.
                writer.pragma("journal_mode", "delete")
                revision = newest_revision(writer)
            except apsw.FullError:
                raise CannotOpen(f"not enough disk space for a copy of {source}") from None
            finally:
                writer.close()
        finally:
            reader.close()
    sync(target)
    return revision


def problems_of(path: Path, given_up: Callable[[], bool] | None = None) -> list[str]:
    """Return the problems that SQLite finds in the pages of a database; empty if it is intact.

    Raises a subclass of CannotOpen if the database cannot be opened, or once `given_up` returns
    True.
    """
    with readable(path):
        reader = open_for_reading(path)
        try:
            if given_up is not None:
                reader.set_progress_handler(given_up, _STEPS_BETWEEN_QUESTIONS)
            return pages_problems(reader)
        finally:
            reader.close()


def require_whole(path: Path) -> None:
    """Raise a subclass of CannotOpen if the database is damaged."""
    if found := problems_of(path):
        raise CorruptStore(f"{path} is damaged: {found[0]}")


def open_for_reading(path: Path) -> apsw.Connection:
    """Open a database read-only.

    Raises a subclass of CannotOpen, and apsw's errors: see `readable`.
    """
    refuse_half_repaired(path)
    if not path.exists():
        raise CannotOpen(f"database {path} does not exist")
    refuse_lone_log(path)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        refuse_foreign(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection
