"""Audit log file, written by its own thread and rotated. Requests never wait for it.

Lines pass through a bounded queue. If the disk is full or too slow, lines are dropped, counted and
reported once on stderr: a server that stops working because its log is full would be worse.
"""

import logging
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final, TypeAlias

from onejob.worker_threads import start_daemon

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_MAX_QUEUED_LINES: Final = 10_000
_MAX_QUEUED_BYTES: Final = 64 * _MIB
_STOP_SECONDS: Final = 5.0
_TIME: Final = "%Y-%m-%dT%H-%M-%S.%f"


Make: TypeAlias = Callable[[], bytes]


class CannotAudit(Exception):
    """The file cannot be written, or the policy cannot be read. The message is one line."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotation limits. 0 means unlimited, except that the default file size is 100 MiB."""

    max_mib: int = 0
    max_backups: int = 0
    max_age_days: int = 0


class AuditLog:
    """Queue of audit lines and the thread that writes them. Lines beyond the queue's limit are
    dropped and counted."""

    def __init__(self, path: str, rotation: Rotation, now: Callable[[], datetime]) -> None:
        """Open the file and start the thread. A `path` of "-" is stdout. Raises CannotAudit."""
        self._path = None if path == "-" else Path(path)
        self._rotation = rotation
        self._now = now
        self._most_bytes = (rotation.max_mib or 100) * _MIB
        #: Lines, or functions that create one, with their sizes; None ends the thread.
        self._queue: queue.Queue[tuple[bytes | Make, int] | None] = queue.Queue(_MAX_QUEUED_LINES)
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._failing = False
        self.written = 0
        self.dropped = 0
        try:
            self._file = self._open()
            self._thread = start_daemon(self._run, "audit-log")
        except OSError as error:
            raise CannotAudit(f"cannot write the audit log {path}: {error.strerror}") from None

    def write(self, line: bytes) -> None:
        """Queue a line without waiting. Drops it if the queue is full."""
        self._put(line, len(line))

    def write_later(self, make: Make, size: int) -> None:
        """Queue a line that is expensive to create: the writing thread calls `make`.

        `size` is the approximate memory that is held meanwhile, in bytes.
        """
        self._put(make, size)

    def _put(self, line: bytes | Make, size: int) -> None:
        """Queue a line without waiting, or drop it if the queue is full."""
        with self._lock:
            if self._waiting_bytes + size > _MAX_QUEUED_BYTES:
                self.dropped += 1
                return
            self._waiting_bytes += size
        try:
            self._queue.put_nowait((line, size))
        except queue.Full:
            with self._lock:
                self._waiting_bytes -= size
                self.dropped += 1

    def stop(self) -> None:
        """Write the queued lines within a time limit and stop the thread."""
        try:
            self._queue.put(None, timeout=_STOP_SECONDS)
        except queue.Full:
            return
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        """Write queued lines in batches, in the log's thread, until the log is closed."""
        while True:
            lines = [self._queue.get()]
            while len(lines) < 1000:
                try:
                    lines.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            kept = [line for line in lines if line is not None]
            made = [line if isinstance(line, bytes) else self._render(line) for line, _ in kept]
            self._append([line for line in made if line])
            with self._lock:
                self._waiting_bytes -= sum(size for _, size in kept)
            if len(kept) < len(lines):
                self._file.close()
                return

    def _render(self, make: Make) -> bytes:
        """Return the encoded event; b"" if it cannot be encoded."""
        try:
            return make()
        except Exception:
            # Other events must not be lost with it.
            log.exception("an event of the audit log cannot be written")
            with self._lock:
                self.dropped += 1
            return b""

    def _append(self, lines: list[bytes]) -> None:
        """Write lines, all or none; rotate the file first if it is full.

        A failure is logged once, and its lines are counted as dropped.
        """
        if not lines:
            return
        try:
            self._rotate_if_full(sum(map(len, lines)))
            start = self._size()
            try:
                self._file.write(b"".join(lines))
                self._file.flush()
            except OSError:
                self._cut_back(start)
                raise
        except OSError as error:
            with self._lock:
                self.dropped += len(lines)
            if not self._failing:
                self._failing = True
                log.error(
                    "the audit log %s cannot be written (%s): requests go on, and are not recorded",
                    self._path or "on stdout",
                    error.strerror,
                )
            return
        if self._failing:
            self._failing = False
            log.error("the audit log is written again; %d events were lost", self.dropped)
        with self._lock:
            self.written += len(lines)

    def _cut_back(self, start: int) -> None:
        """Truncate the file, so that a full disk leaves no partial line."""
        if self._path is not None:
            os.ftruncate(self._file.fileno(), start)

    def _size(self) -> int:
        """Return the size of the file; 0 for stdout."""
        return os.fstat(self._file.fileno()).st_size if self._path is not None else 0

    def _open(self) -> IO[bytes]:
        """Return the open log: the file, created if necessary, or a copy of stdout. Raises
        OSError."""
        if self._path is None:
            return os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "it is not a regular file")
        # Unbuffered: a line that could not be written must not be written later.
        return os.fdopen(descriptor, "ab", buffering=0)

    def _rotate_if_full(self, more: int) -> None:
        if self._path is None:
            return
        size = self._size()
        if size and size + more > self._most_bytes:
            stamp = self._now().astimezone(UTC).strftime(_TIME)[:-3]
            self._path.rename(self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}"))
            self._file.close()
            self._file = self._open()
            self._delete_old_backups()

    def _delete_old_backups(self) -> None:
        assert self._path is not None
        backups: list[tuple[datetime, Path]] = []
        prefix, suffix = f"{self._path.stem}-", self._path.suffix
        for file in self._path.parent.iterdir():
            name = file.name
            if name.startswith(prefix) and name.endswith(suffix):
                stamp = name[len(prefix) : len(name) - len(suffix)]
                try:
                    made = datetime.strptime(stamp, _TIME).replace(tzinfo=UTC)
                except ValueError:
                    continue
                backups.append((made, file))
        backups.sort(reverse=True)
        rotation = self._rotation
        doomed = backups[rotation.max_backups :] if rotation.max_backups else []
        if rotation.max_age_days:
            oldest = self._now() - timedelta(days=rotation.max_age_days)
            doomed += [backup for backup in backups if backup[0] < oldest]
        for _, file in doomed:
            file.unlink(missing_ok=True)
