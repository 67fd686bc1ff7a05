"""The connection that writes, and the thread on which it runs.

Every write is a single statement that commits by itself. Python's lock is released and taken
again around each step of a statement; a thread that takes it back while the loop is busy waits
for up to five milliseconds each time. One statement per commit means one such wait: measured
with a busy loop, 40 times the throughput of `executemany`.
"""

import asyncio
import queue
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Protocol, TypeAlias

import apsw

from onejob.store.base import CannotOpen, Change, CommitFailed, StoreError, StoreFailed
from onejob.store.checksums import checksum
from onejob.store.database import PAGE_BYTES, FreeBytes, room_for_log, shorten_log
from onejob.store.encryption import Cipher
from onejob.store.limits import Limits
from onejob.store.lock_file import LockFile
from onejob.worker_threads import start_daemon

#: How often the free space is read while the log grows.
_SPACE_CHECKS_PER_CHECKPOINT = 8

#: Free pages are given back this many at a time.
VACUUM_PAGES = 128

#: About this many documents share a page, so compacting them together writes it once. Where the
#: removed rows are scattered, the log grows beyond its limit before it is restarted.
_ROWS_PER_PAGE = 4
_COLUMNS = 8
_Value: TypeAlias = str | int | bytes | None

#: SQLite answers these before the commit record is complete, and has rolled back.
_NOT_WRITTEN = (apsw.FullError, apsw.BusyError, apsw.TooBigError, apsw.NoMemError)


class Writer:
    """The one connection that writes and checkpoints. Used by one thread at a time."""

    def __init__(
        self,
        connection: apsw.Connection,
        lock: LockFile,
        limits: Limits,
        free_bytes: FreeBytes,
        cipher: Cipher | None = None,
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._cipher = cipher
        self._limits = limits
        self._free_bytes = free_bytes
        self._since_checkpoint = 0
        self._checkpoint_bytes = limits.checkpoint_bytes
        #: How much may be written before the free space is read again: reading it releases
        #: Python's lock as often as a commit does.
        self._written_since_check = 0
        self._check_after = 0
        #: How much the log may take, and history as well. May be read from any thread.
        self.room = 0
        self._read_free_space()
        self._since_vacuum = 0

    def append(self, changes: Sequence[Change], size: int) -> None:
        """Commit to disk. Raises CommitFailed if nothing was written, StoreFailed if that is
        unknown."""
        values: list[_Value] = []
        for change in changes:
            value = change.value
            if self._cipher is not None and value is not None:
                value = self._cipher.encrypt(change.key, value)
            values += (
                change.revision,
                change.previous_revision or None,
                *change.key,
                change.cold,
                value,
                checksum(change.revision, change.key.resource, value),
            )
        rows = 1 << (len(changes) - 1).bit_length()
        values += repeat(None, (rows - len(changes)) * _COLUMNS)
        self._run(_insertion(rows), values)
        self._lock.committed(changes[-1].revision)
        written = size + 4 * PAGE_BYTES
        self._since_checkpoint += written
        self._written_since_check += written
        if self._written_since_check >= self._check_after:
            self._read_free_space()

    def _read_free_space(self) -> None:
        self._written_since_check = 0
        self.room = room_for_log(self._free_bytes())
        self._checkpoint_bytes = min(self._limits.checkpoint_bytes, self.room)
        self._check_after = self._checkpoint_bytes // _SPACE_CHECKS_PER_CHECKPOINT

    def compact(self, revision: int, rows: int, *, erase: bool = False) -> None:
        """Remove what was superseded up to `revision`, which is at most `rows` after the last.
        `erase` overwrites it in the files, too, which SQLite otherwise leaves to chance."""
        if erase:
            self._connection.pragma("secure_delete", 1)
        try:
            self._run_upkeep("UPDATE state SET compacted = ?", (revision,))
        finally:
            if erase:
                self._connection.pragma("secure_delete", 0)
        if erase and shorten_log(self._connection):
            # The log had it as well.
            self._since_checkpoint = 0
        self._since_checkpoint += rows * PAGE_BYTES // _ROWS_PER_PAGE
        self._since_vacuum += rows

    def add_checksums(self, found: Sequence[tuple[int, int]]) -> None:
        """To rows that have none, by revision. Those that were compacted meanwhile stay away."""
        self._run_upkeep(
            "UPDATE log SET checksum = given.value ->> 1 FROM json_each(?) AS given"
            " WHERE log.revision = given.value ->> 0",
            (str([list(pair) for pair in found]),),
        )
        self._since_checkpoint += len(found) * PAGE_BYTES // _ROWS_PER_PAGE

    @property
    def checkpoint_due(self) -> bool:
        """May be read from any thread, like `vacuum_due`: nothing but timing depends on it."""
        return self._since_checkpoint >= self._checkpoint_bytes

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the database, so that the log can be restarted."""
        if self._checkpoint_bytes < self._limits.checkpoint_bytes:
            # The disk has less room than before: shrink the log.
            if shorten_log(self._connection):
                self._since_checkpoint = 0
            return
        try:
            frames, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.FullError, apsw.BusyError):
            # Nothing is lost: the log still has everything, and the next commit tries again.
            return
        except apsw.Error as error:
            raise StoreFailed(f"checkpoint: {error}") from error
        if copied >= frames:
            self._since_checkpoint = 0

    @property
    def vacuum_due(self) -> bool:
        return self._since_vacuum >= self._limits.spare_pages

    def vacuum(self) -> None:
        """Return a slice of free pages to the file system, if there are many. The file shrinks at
        the next checkpoint. Stays due until there are few."""
        free = self._pragma("freelist_count")
        if free <= self._limits.spare_pages or free * 3 <= self._pragma("page_count"):
            self._since_vacuum = 0
            return
        self._run_upkeep(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
        self._since_checkpoint += VACUUM_PAGES * PAGE_BYTES

    def _pragma(self, name: str) -> int:
        return int(self._connection.pragma(name))

    def _run_upkeep(self, statement: str, values: Sequence[_Value] = ()) -> None:
        self._run(statement, values)
        self._lock.wrote()

    def _run(self, statement: str, values: Sequence[_Value] = ()) -> None:
        try:
            self._connection.execute(statement, values).fetchall()
        except apsw.FullError as error:
            # The disk may have enough room once the log is shortened.
            shortened = shorten_log(self._connection)
            self._read_free_space()
            if not shortened:
                raise CommitFailed(f"not written: {error}") from error
            self._since_checkpoint = 0
            self._run_once(statement, values)
        except _NOT_WRITTEN as error:
            raise CommitFailed(f"not written: {error}") from error
        except apsw.Error as error:
            raise StoreFailed(f"unknown whether written: {error}") from error

    def _run_once(self, statement: str, values: Sequence[_Value]) -> None:
        try:
            self._connection.execute(statement, values).fetchall()
        except _NOT_WRITTEN as error:
            raise CommitFailed(f"not written: {error}") from error
        except apsw.Error as error:
            raise StoreFailed(f"unknown whether written: {error}") from error


_insertions: dict[int, str] = {}


def _insertion(rows: int) -> str:
    """The number of rows is a power of two, and surplus rows are NULL, so that SQLite has few
    different statements to keep prepared."""
    text = _insertions.get(rows)
    if text is None:
        row = "(" + ",".join("?" * _COLUMNS) + ")"
        text = _insertions[rows] = (
            f"INSERT INTO log SELECT * FROM (VALUES {','.join([row] * rows)})"
            " WHERE column1 IS NOT NULL"
        )
    return text


Job: TypeAlias = Callable[[], None]
Done: TypeAlias = Callable[[StoreError | None], object]


class Committer(Protocol):
    """Runs jobs on the writer, one after the other, and calls `done` on the loop after each."""

    def submit(self, job: Job, done: Done) -> None: ...

    def stop(self) -> None:
        """Return when the last submitted job has run."""


class ThreadCommitter:
    """A thread of its own: the loop goes on while the disk works."""

    def __init__(self) -> None:
        """Raises CannotOpen."""
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        # A daemon: a process that dies without closing the store is a crash, which is safe.
        try:
            self._thread = start_daemon(self._work, "onejob-store")
        except OSError as error:
            raise CannotOpen(f"the store cannot be opened: {error.strerror}") from error

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.put((job, done))

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            error = _attempt(job)
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(done, error)


class LoopCommitter:
    """No thread: jobs run in callbacks of the loop, `latency_seconds` after they were submitted.
    For simulations and tests in virtual time, where runs must repeat exactly."""

    def __init__(self, latency_seconds: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._latency_seconds = latency_seconds

    def submit(self, job: Job, done: Done) -> None:
        def work() -> None:
            done(_attempt(job))

        if self._latency_seconds:
            self._loop.call_later(self._latency_seconds, work)
        else:
            self._loop.call_soon(work)

    def stop(self) -> None:
        """Nothing is under way between callbacks."""


def _attempt(job: Job) -> StoreError | None:
    try:
        job()
    except StoreError as error:
        return error
    except Exception as error:  # A bug must stop the store, not silently end its thread.
        failure = StoreFailed(f"unexpected: {error!r}")
        failure.__cause__ = error
        return failure
    return None
