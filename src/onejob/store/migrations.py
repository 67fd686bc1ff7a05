"""Schema migrations, as numbered steps. `PRAGMA user_version` is the number of applied steps."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from onejob.store.base import CorruptStore, MigrationFailed, NewerStore

#: "1job" in ASCII; distinguishes a onejob store from any other SQLite file.
APPLICATION_ID = 0x316A6F62

#: The log is one table: each row is one version of one object; a NULL value is a deletion.
#:
#: `superseded` is the optimistic lock in the schema: a version can be replaced only once. It
#: indexes `previous` alone, not (key, previous), because revisions are global: a revision
#: identifies its key. That index takes a few bytes per row in almost ascending order; an index with
#: the key makes every insert half as slow again. The schema does not enforce that a key is created
#: only once while it exists: the single writer checks it when it stages, and opening checks the
#: whole log.
#:
#: Compaction is an UPDATE whose trigger deletes: a single statement, so that the writer thread
#: releases the GIL once per slice instead of once per step.
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE log (
        revision INTEGER PRIMARY KEY,
        previous INTEGER,
        resource TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        cold INTEGER NOT NULL,
        value BLOB
    ) STRICT;
    CREATE UNIQUE INDEX superseded ON log (previous) WHERE previous IS NOT NULL;
    CREATE TABLE state (compacted INTEGER NOT NULL) STRICT;
    INSERT INTO state VALUES (0);
    CREATE TRIGGER compact AFTER UPDATE OF compacted ON state BEGIN
        DELETE FROM log WHERE revision IN (
            SELECT previous FROM log
            WHERE revision > old.compacted AND revision <= new.compacted
            AND previous IS NOT NULL
        );
        DELETE FROM log
        WHERE revision > old.compacted AND revision <= new.compacted AND value IS NULL;
    END;
    """,
    # Existing rows have none; `Maintenance` adds theirs in slices.
    "ALTER TABLE log ADD COLUMN checksum INTEGER;",
)


def refuse_foreign(connection: apsw.Connection, path: str) -> None:
    """Reject a file of a newer schema or of another application, before anything is written.

    Raises:
        NewerStore: if this version of onejob does not have the file's schema.
        CorruptStore: if the file is not a onejob store.
    """
    version = _version(connection)
    application = connection.pragma("application_id")
    if application != APPLICATION_ID and not is_empty(connection):
        raise CorruptStore(f"{path} is not a onejob store; move it away or use another path")
    if version > len(STEPS):
        raise NewerStore(
            f"{path} was written by a newer onejob (schema {version}, this one supports "
            f"{len(STEPS)}); upgrade onejob or use another data directory"
        )


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, in one transaction. Raises MigrationFailed."""
    version = _version(connection)
    if version == len(STEPS):
        return
    try:
        with transaction(connection):
            for step in STEPS[version:]:
                connection.execute(step)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", len(STEPS))
    except apsw.CorruptError:
        raise
    except apsw.Error as error:
        # Not corruption: the file was readable, and is unchanged.
        raise MigrationFailed(
            f"cannot migrate {connection.filename} from schema {version} to {len(STEPS)}: "
            f"{error}; the file is unchanged and still usable with the onejob that wrote it"
        ) from error


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run the block in a transaction: commit at its end, roll back on an exception.

    Replaces apsw's own context manager: after SQLite has rolled back by itself, that one attempts a
    second rollback and raises its failure instead of the original error, such as a full disk.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: apsw.Connection) -> int:
    """Return the number of applied migrations."""
    return int(connection.pragma("user_version"))


def is_empty(connection: apsw.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
