"""The schema, as numbered steps. `PRAGMA user_version` says how many of them a file has seen."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from onejob.store.base import CorruptStore, MigrationFailed, NewerStore

#: "1job" in ASCII; distinguishes a onejob store from any other SQLite file.
APPLICATION_ID = 0x316A6F62

#: One table is the log: each row is one version of one object, NULL means deleted.
#:
#: `superseded` is the optimistic lock in the schema: a version can be replaced only once. It
#: is on `previous` alone, not on (key, previous), because revisions are global: a revision
#: names its key. That index is a few bytes per row in almost ascending order; one with the
#: key in it makes every insert half as slow again. That a key is created only once while it
#: exists is checked by the one writer when it stages, and again for the whole log at open.
#:
#: Compaction is an UPDATE whose trigger deletes: one statement, so that the writing thread
#: gives up Python's global lock once per slice instead of once per step.
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
    # Rows that are there have none; `Upkeep` adds theirs in slices.
    "ALTER TABLE log ADD COLUMN checksum INTEGER;",
)


def refuse_foreign(connection: apsw.Connection, path: str) -> None:
    """Raise, before anything is written, if the file is newer than this code or not ours."""
    version = _version(connection)
    application = connection.pragma("application_id")
    if application != APPLICATION_ID and not is_empty(connection):
        raise CorruptStore(f"{path} is not a onejob store; move it away or use another path")
    if version > len(STEPS):
        raise NewerStore(
            f"{path} was written by a newer onejob (schema {version}, this one knows "
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
        # Not damage: it could be read, and is as it was.
        raise MigrationFailed(
            f"{connection.filename} could not be brought from schema {version} to {len(STEPS)}: "
            f"{error}; it is unchanged, and the onejob that wrote it can still use it"
        ) from error


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """All or nothing. Unlike apsw's own, which rolls back once more what SQLite rolled back by
    itself, and raises that this is not possible instead of that the disk is full."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def is_empty(connection: apsw.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
