"""Copies of a database, made while a server writes to it, and whether a database is whole."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from onejob.store.base import CannotOpen, CorruptStore
from onejob.store.database import (
    BUSY_MILLISECONDS,
    newest_revision,
    readable,
    refuse_half_repaired,
    refuse_lone_log,
)
from onejob.store.lock_file import sync
from onejob.store.migrations import refuse_foreign

#: As many as a person would read.
_MOST_PROBLEMS = 20
#: Of SQLite's machine: some milliseconds.
_STEPS_BETWEEN_QUESTIONS = 10_000


def copy_database(source: Path, target: Path) -> int:
    """Copy the database as it is at one moment into a new file, on disk when this returns; the
    newest revision of the copy. A server that uses it goes on. Raises CannotOpen in its kinds."""
    with readable(source):
        reader = open_for_reading(source)
        try:
            # As private as what it is a copy of.
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            writer = apsw.Connection(str(target))
            try:
                # In one step: what is copied is one snapshot.
                with writer.backup("main", reader, "main") as copying:
                    copying.step()
                # A copy is one file, without a log beside it.
                writer.pragma("journal_mode", "delete")
                revision = newest_revision(writer)
            except apsw.FullError:
                raise CannotOpen(f"there is no room for a copy of {source}") from None
            finally:
                writer.close()
        finally:
            reader.close()
    sync(target)
    return revision


def problems_of(path: Path, given_up: Callable[[], bool] | None = None) -> list[str]:
    """What SQLite finds wrong with the pages of a database; nothing if it is whole. Raises
    CannotOpen in its kinds if it cannot even be opened, or once `given_up` says so."""
    with readable(path):
        reader = open_for_reading(path)
        try:
            if given_up is not None:
                reader.set_progress_handler(given_up, _STEPS_BETWEEN_QUESTIONS)
            return pages_problems(reader)
        finally:
            reader.close()


def pages_problems(connection: apsw.Connection) -> list[str]:
    """The same of a database that is open."""
    found: list[str] = []
    try:
        rows: Any = connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})")
        for (text,) in rows:
            # A row may hold several lines.
            found += str(text).splitlines()
    except apsw.CorruptError as error:
        # Said after what was found until then, if anything.
        found = found or [str(error)]
    return [] if found == ["ok"] else found


def require_whole(path: Path) -> None:
    """Raises CannotOpen in its kinds."""
    if found := problems_of(path):
        raise CorruptStore(f"{path} is damaged: {found[0]}")


def open_for_reading(path: Path) -> apsw.Connection:
    """Raises CannotOpen in its kinds, and apsw's errors: see `readable`."""
    refuse_half_repaired(path)
    if not path.exists():
        raise CannotOpen(f"there is no database {path}")
    refuse_lone_log(path)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        refuse_foreign(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection
