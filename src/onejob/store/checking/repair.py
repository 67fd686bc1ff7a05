"""Repair: a new database with the intact objects of a damaged one, which is kept as a copy."""

import os
import shutil
from pathlib import Path

from onejob.store.base import CannotOpen
from onejob.store.checking.examination import Examination
from onejob.store.checksums import checksum
from onejob.store.database import open_database, readable, repaired_path
from onejob.store.lock_file import Mark, index_path, lock_path, log_path, sync, write_mark
from onejob.store.migrations import transaction

_INSERTION = "INSERT INTO log VALUES (?, NULL, ?, ?, ?, 0, ?, ?)"


def repair(path: Path, found: Examination) -> Path:
    """Replace a database with one of its intact objects; return the new path of the old one.

    The caller holds the lock. Raises a subclass of CannotOpen, and OSError. Revisions continue from
    the old ones, so that no client mistakes a later version for an earlier one; the history is
    lost, so that all clients list again.
    """
    new = path.with_name(f"{path.name}.repairing")
    _remove(new)
    try:
        with readable(new):
            _write(new, found)
    except CannotOpen:
        # It occupies space on a full disk.
        _remove(new)
        raise
    kept = _keep_damaged(path)
    # Two files must be replaced together, the old database and its log. From here on, an
    # interrupted repair is completed, not started again with only one of them.
    new.rename(repaired_path(path))
    sync(path.parent)
    write_mark(path, Mark(found.revision))
    complete_repair(path)
    _remove(new)
    return kept


def complete_repair(path: Path) -> bool:
    """Complete an interrupted repair; return whether there was one.

    The caller holds the lock. Raises OSError.
    """
    repaired = repaired_path(path)
    if not repaired.exists():
        return False
    for leftover in (log_path(path), index_path(path)):
        leftover.unlink(missing_ok=True)
    sync(path.parent)
    repaired.rename(path)
    sync(path.parent)
    return True


def _write(target: Path, found: Examination) -> None:
    """Create a database with the intact objects."""
    database = open_database(target)
    try:
        with transaction(database.writer):
            database.writer.executemany(
                _INSERTION,
                (
                    (saved.revision, *key, saved.stored,
                     checksum(saved.revision, key.resource, saved.stored))
                    for key, saved in found.saved.items()
                ),
            )  # fmt: skip
            database.writer.execute("UPDATE state SET compacted = ?", (found.revision,))
    finally:
        database.close()
    sync(target)


def _keep_damaged(path: Path) -> Path:
    """Link or copy a damaged file and its log to a free name; return the path."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for source, target in ((path, kept), (log_path(path), log_path(kept))):
        if source.exists():
            _link_or_copy(source, target)
    sync(path.parent)
    return kept


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        target.chmod(0o600)
        sync(target)


def _remove(database: Path) -> None:
    """Delete a database and the files that belong to it."""
    for path in (database, log_path(database), lock_path(database)):
        path.unlink(missing_ok=True)
    index_path(database).unlink(missing_ok=True)
