"""Durable outbox of notifications: pending messages and already reported events, in SQLite.

A change is one commit: messages and the record that they were created are on disk together, or not
at all. A message created again after a crash has the same id.
"""

import asyncio
import logging
import os
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import apsw
import msgspec

from onejob.planning.notify.messages import Message, decode_message, encode_message
from onejob.planning.notify.record import NotificationRecord, RecordChange

log = logging.getLogger(__name__)

FILE: Final = "notify.db"
#: Seconds to wait after a failed write: a full disk may stay full for a while.
_RETRY_SECONDS: Final = 5.0
_BUSY_MILLISECONDS: Final = 2_000
_VERSION: Final = 1
_SCHEMA: Final = f"""
CREATE TABLE since (at TEXT NOT NULL);
CREATE TABLE seen (uid TEXT PRIMARY KEY, what TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE failing (number INTEGER PRIMARY KEY, series TEXT NOT NULL UNIQUE);
CREATE TABLE messages (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
PRAGMA user_version = {_VERSION};
"""


class CannotRead(Exception):
    """The file is damaged, or not an outbox of this version. The message is one line."""


class OutboxFile:
    """Outbox file with blocking methods, for use in threads, one call at a time.

    A call that its caller no longer awaits still finishes its commit: two at once would share a
    transaction.
    """

    def __init__(self, path: Path, now: datetime) -> None:
        """Open the file; create it if it does not exist.

        Raises:
            CannotRead: if the file is damaged or of another version.
            apsw.Error, OSError: if the disk fails.
        """
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        self._database = apsw.Connection(str(path))
        self._lock = threading.Lock()
        try:
            self._database.set_busy_timeout(_BUSY_MILLISECONDS)
            self._prepare(now)
            self.record, self.messages = self._load()
        except (apsw.NotADBError, apsw.CorruptError, msgspec.MsgspecError, ValueError) as error:
            self._database.close()
            raise CannotRead(f"{path}: {error}") from None
        except BaseException:
            self._database.close()
            raise

    def commit(self, changes: Sequence[RecordChange], delivered: Sequence[str]) -> None:
        """Commit changes and removals in one transaction. Raises apsw.Error."""
        with self._lock, self._database:
            for change in changes:
                self._write(change)
            self._run("DELETE FROM messages WHERE id = ?", [(one,) for one in delivered])

    def close(self) -> None:
        """Close the database, after a commit in progress."""
        with self._lock:
            self._database.close()

    def _prepare(self, now: datetime) -> None:
        """Create the tables of a new file. Raises an error for a file of a newer version."""
        [(version,)] = self._database.execute("PRAGMA user_version")
        if version == 0:
            with self._database:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._database.execute(statement)
                self._database.execute("INSERT INTO since VALUES (?)", (now.isoformat(),))
        elif version != _VERSION:
            raise ValueError(f"it has version {version}, but this onejob supports {_VERSION}")

    def _load(self) -> tuple[NotificationRecord, list[Message]]:
        """Return the record and the pending messages."""
        rows = self._database.execute
        [(since,)] = rows("SELECT at FROM since")
        record = NotificationRecord(
            datetime.fromisoformat(since),
            dict(rows("SELECT uid, what FROM seen")),
            {series: None for (series,) in rows("SELECT series FROM failing ORDER BY number")},
        )
        bodies = rows("SELECT body FROM messages ORDER BY number")
        return record, [decode_message(body) for (body,) in bodies]

    def _write(self, change: RecordChange) -> None:
        """Write a change of the record, within a transaction."""
        gone = [(uid,) for uid, what in change.seen.items() if what is None]
        seen = [(uid, what) for uid, what in change.seen.items() if what is not None]
        self._run("DELETE FROM seen WHERE uid = ?", gone)
        self._run("INSERT OR REPLACE INTO seen VALUES (?, ?)", seen)
        recovered = [(series,) for series in change.recovered]
        failing = [(series,) for series in change.failing]
        self._run("DELETE FROM failing WHERE series = ?", recovered)
        self._run("INSERT OR IGNORE INTO failing (series) VALUES (?)", failing)
        messages = [(message.id, encode_message(message)) for message in change.messages]
        self._run("INSERT OR IGNORE INTO messages (id, body) VALUES (?, ?)", messages)

    def _run(self, statement: str, rows: Sequence[tuple[str | bytes, ...]]) -> None:
        """Execute a statement for each row."""
        if rows:
            self._database.executemany(statement, rows)


def count_waiting(path: Path) -> dict[str, int]:
    """Return the number of pending messages by target, of an outbox that a server may be using.

    An unreadable outbox counts as empty.
    """
    if not path.exists():
        return {}
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        database.set_busy_timeout(_BUSY_MILLISECONDS)
        bodies = list(database.execute("SELECT body FROM messages"))
    except apsw.Error:
        return {}
    finally:
        database.close()
    return dict(Counter(decode_message(body).target for (body,) in bodies))


class Outbox:
    """Background writer: many changes in one commit, retried while the disk fails.

    Callers need not wait for it.
    """

    def __init__(self, file: OutboxFile) -> None:
        self._file = file
        self._changes: list[RecordChange] = []
        self._delivered: list[str] = []
        self._written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()

    def write(self, change: RecordChange) -> "asyncio.Future[None]":
        """Queue a change; return a future that completes once it is on disk."""
        self._changes.append(change)
        self._wake.set()
        return self._written

    def remove(self, message: str) -> None:
        """Remove a message that was delivered or dropped."""
        self._delivered.append(message)
        self._wake.set()

    async def run(self) -> None:
        """Commit changes in batches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._commit()

    async def close(self) -> None:
        """Attempt once more to write pending changes, then close the file."""
        if self._changes or self._delivered:
            try:
                await asyncio.to_thread(self._file.commit, self._changes, self._delivered)
            except (apsw.Error, OSError) as error:
                log.warning("cannot write the record of notifications: %s", error)
        await asyncio.to_thread(self._file.close)

    async def _commit(self) -> None:
        """Commit all pending changes; retried until it succeeds."""
        changes, delivered, written = self._changes, self._delivered, self._written
        self._changes, self._delivered = [], []
        self._written = asyncio.get_running_loop().create_future()
        while True:
            try:
                await asyncio.to_thread(self._file.commit, changes, delivered)
            except (apsw.Error, OSError) as error:
                log.warning("cannot write the record of notifications: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            except asyncio.CancelledError:
                self._changes[:0], self._delivered[:0] = changes, delivered
                raise
            else:
                written.set_result(None)
                return


def open_outbox(path: Path, now: datetime) -> OutboxFile:
    """Open the outbox; set a damaged file aside and begin with an empty one.

    Only the contents of the damaged file are lost. Raises apsw.Error or OSError while the disk
    fails.
    """
    try:
        return OutboxFile(path, now)
    except CannotRead as error:
        aside = path.with_name(f"{path.name}.damaged")
        log.error("%s; moved it to %s and started a new record of notifications", error, aside.name)
        path.replace(aside)
        return OutboxFile(path, now)
