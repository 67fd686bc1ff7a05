"""Write connection of the store, and the committers that run its jobs.

Every write is a single statement that commits by itself. Python's GIL is released and taken again
around each step of a statement; a thread that takes it back while the loop is busy waits up to five
milliseconds each time. One statement per commit means one such wait: with a busy loop, this was
measured at 40 times the throughput of `executemany`.
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

#: Number of free-space queries per checkpoint interval, while the log grows.
_SPACE_CHECKS_PER_CHECKPOINT = 8

#: Number of free pages returned to the file system per slice.
VACUUM_PAGES = 128

#: Approximate number of documents per page; compacting them together writes the page once. If the
#: removed rows are scattered, the log exceeds its limit before it is restarted.
_ROWS_PER_PAGE = 4
_COLUMNS = 8
_Value: TypeAlias = str | int | bytes | None

#: SQLite reports these before the commit record is complete, and has rolled back.
_NOT_WRITTEN = (apsw.FullError, apsw.BusyError, apsw.TooBigError, apsw.NoMemError)


class Writer:
    """The only connection that writes and checkpoints.

    Concurrency: used by one thread at a time, except for `room`, `checkpoint_due` and `vacuum_due`.
    """

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
        #: Bytes to write before the free space is queried again: the query releases the GIL as
        #: often as a commit does.
        self._written_since_check = 0
        self._check_after = 0
        #: Maximum bytes of the log, and of the history. May be read from any thread.
        self.room = 0
        self._check_disk_space()
        self._since_vacuum = 0

    def append(self, changes: Sequence[Change], size: int) -> None:
        """Commit changes to disk.

        Raises:
            CommitFailed: if nothing was written.
            StoreFailed: if it is unknown whether anything was written.
        """
        try:
            values = self._values(changes)
        except MemoryError as error:
            raise CommitFailed("write failed: out of memory") from error
        self._run(_insert_statement(_next_power_of_two(len(changes))), values)
        self._lock.committed(changes[-1].revision)
        written = size + 4 * PAGE_BYTES
        self._since_checkpoint += written
        self._written_since_check += written
        if self._written_since_check >= self._check_after:
            self._check_disk_space()

    def _values(self, changes: Sequence[Change]) -> list[_Value]:
        """Return the parameters of the statement that inserts `changes`."""
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
        values += repeat(None, (_next_power_of_two(len(changes)) - len(changes)) * _COLUMNS)
        return values

    def _check_disk_space(self) -> None:
        """Update the limits that depend on the free space of the disk."""
        self._written_since_check = 0
        self.room = room_for_log(self._free_bytes())
        self._checkpoint_bytes = min(self._limits.checkpoint_bytes, self.room)
        self._check_after = self._checkpoint_bytes // _SPACE_CHECKS_PER_CHECKPOINT

    def compact(self, revision: int, rows: int, *, erase: bool = False) -> None:
        """Remove the versions superseded up to `revision`.

        That is at most `rows` revisions after the last compaction. `erase` also overwrites them in
        the files; without it, SQLite leaves that to chance.
        """
        if erase:
            self._connection.pragma("secure_delete", 1)
        try:
            self._run_upkeep("UPDATE state SET compacted = ?", (revision,))
        finally:
            if erase:
                self._connection.pragma("secure_delete", 0)
        if erase and shorten_log(self._connection):
            # The write-ahead log contained the values as well.
            self._since_checkpoint = 0
        self._since_checkpoint += rows * PAGE_BYTES // _ROWS_PER_PAGE
        self._since_vacuum += rows

    def add_checksums(self, found: Sequence[tuple[int, int]]) -> None:
        """Set the checksums of rows, by revision. Rows compacted in the meantime are skipped."""
        self._run_upkeep(
            "UPDATE log SET checksum = given.value ->> 1 FROM json_each(?) AS given"
            " WHERE log.revision = given.value ->> 0",
            (str([list(pair) for pair in found]),),
        )
        self._since_checkpoint += len(found) * PAGE_BYTES // _ROWS_PER_PAGE

    @property
    def checkpoint_due(self) -> bool:
        """True once enough was written for a checkpoint.

        May be read from any thread, like `vacuum_due`: only timing depends on it.
        """
        return self._since_checkpoint >= self._checkpoint_bytes

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the database, so that the log can be restarted."""
        if self._checkpoint_bytes < self._limits.checkpoint_bytes:
            # The disk has less free space than before: truncate the log.
            if shorten_log(self._connection):
                self._since_checkpoint = 0
            return
        try:
            frames, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.FullError, apsw.BusyError):
            # Nothing is lost: the log is still complete, and the next commit retries.
            return
        except apsw.Error as error:
            raise StoreFailed(f"checkpoint: {error}") from error
        if copied >= frames:
            self._since_checkpoint = 0

    @property
    def vacuum_due(self) -> bool:
        """Whether enough pages may be free for a vacuum."""
        return self._since_vacuum >= self._limits.spare_pages

    def vacuum(self) -> None:
        """Return a slice of free pages to the file system, if there are many.

        The file shrinks at the next checkpoint. `vacuum_due` stays True until few are left.
        """
        free = self._pragma("freelist_count")
        if free <= self._limits.spare_pages or free * 3 <= self._pragma("page_count"):
            self._since_vacuum = 0
            return
        self._run_upkeep(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
        self._since_checkpoint += VACUUM_PAGES * PAGE_BYTES

    def _pragma(self, name: str) -> int:
        """Return the number of a pragma."""
        return int(self._connection.pragma(name))

    def _run_upkeep(self, statement: str, values: Sequence[_Value] = ()) -> None:
        """Execute a statement that adds no revision, and note the write in the lock file."""
        self._run(statement, values)
        self._lock.wrote()

    def _run(self, statement: str, values: Sequence[_Value] = ()) -> None:
        """Execute a statement; on a full disk, once more after truncating the log.

        Raises CommitFailed if nothing was written, StoreFailed if that is unknown.
        """
        changes = self._connection.total_changes()
        try:
            self._connection.execute(statement, values).fetchall()
        except apsw.FullError as error:
            # The disk may have enough space after truncating the log.
            shortened = shorten_log(self._connection)
            self._check_disk_space()
            if not shortened:
                raise CommitFailed(f"write failed: {error}") from error
            self._since_checkpoint = 0
            self._run_once(statement, values)
        except _NOT_WRITTEN as error:
            raise CommitFailed(f"write failed: {error}") from error
        except MemoryError as error:
            # Of Python, before the statement has run or after it is committed; lack of memory in
            # SQLite is NoMemError.
            if self._connection.total_changes() == changes:
                raise CommitFailed("write failed: out of memory") from error
        except apsw.Error as error:
            raise StoreFailed(f"write may have failed: {error}") from error

    def _run_once(self, statement: str, values: Sequence[_Value]) -> None:
        """Execute a statement. Raises CommitFailed if nothing was written, StoreFailed if that is
        unknown."""
        try:
            self._connection.execute(statement, values).fetchall()
        except _NOT_WRITTEN as error:
            raise CommitFailed(f"write failed: {error}") from error
        except apsw.Error as error:
            raise StoreFailed(f"write may have failed: {error}") from error


def _next_power_of_two(rows: int) -> int:
    """Return the next power of two."""
    return 1 << (rows - 1).bit_length()


_insertions: dict[int, str] = {}


def _insert_statement(rows: int) -> str:
    """Return the INSERT statement for `rows`, a power of two; surplus rows are NULL.

    Powers of two keep the number of different prepared statements small.
    """
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
    """Executor for jobs on the writer.

    Guarantees: jobs run one at a time, in order of submission. `done` is called on the event loop
    after each one, with its StoreError or None.
    """

    def submit(self, job: Job, done: Done) -> None:
        """Run `job`, then call `done` on the event loop with its error or None. Jobs run in
        order."""

    def stop(self) -> None:
        """Stop, and return after the last submitted job has run."""


class ThreadCommitter:
    """Committer with a dedicated thread: the event loop continues during disk I/O."""

    def __init__(self) -> None:
        """Start the thread. Raises CannotOpen."""
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        # A daemon thread: a process that exits without closing the store equals a crash, which is
        # safe.
        try:
            self._thread = start_daemon(self._work, "onejob-store")
        except OSError as error:
            raise CannotOpen(f"cannot open the store: {error.strerror}") from error

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Wait for all jobs, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        """Run jobs in the thread until stopped."""
        while (item := self._jobs.get()) is not None:
            job, done = item
            error = _run_job(job)
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(done, error)


class LoopCommitter:
    """Committer without a thread: jobs run in loop callbacks, `latency_seconds` after submission.

    For simulations and tests in virtual time, where runs must be reproducible.
    """

    def __init__(self, latency_seconds: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._latency_seconds = latency_seconds

    def submit(self, job: Job, done: Done) -> None:
        def work() -> None:
            done(_run_job(job))

        if self._latency_seconds:
            self._loop.call_later(self._latency_seconds, work)
        else:
            self._loop.call_soon(work)

    def stop(self) -> None:
        """Do nothing: no job is in progress between callbacks."""


def _run_job(job: Job) -> StoreError | None:
    """Run a job; return its error, if any."""
    try:
        job()
    except StoreError as error:
        return error
    except Exception as error:  # A bug must stop the store, not silently end its thread.
        failure = StoreFailed(f"unexpected: {error!r}")
        failure.__cause__ = error
        return failure
    return None
