"""Private files (mode 0600) for keys, tokens and kubeconfigs: atomic writes, locks, watching."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write `content` atomically with mode 0600; durable on return.

    A symbolic link at `path` is replaced, never followed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Never write into an existing file: it may be a leftover of a process with the same PID, or a
    # trap set by another user.
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock while changing the file.

    Concurrent commands must not overwrite each other's changes.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class WatchedFile:
    """Change detection for a file that commands replace while a server uses it."""

    def __init__(self, path: Path) -> None:
        # A str rather than a Path: it is used by every request and need not be converted again.
        self._path = os.fspath(path)
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Return whether the file has been replaced, changed, created or removed since the last
        call."""
        mark: tuple[int, int, int] | None = None
        try:
            found = os.lstat(self._path)
            mark = found.st_ino, found.st_mtime_ns, found.st_size
        except FileNotFoundError:
            pass
        if mark == self._seen:
            return False
        self._seen = mark
        return True
