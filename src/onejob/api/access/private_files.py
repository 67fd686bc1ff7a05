"""Files that only their owner may read: keys, tokens, kubeconfigs."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write all of it or nothing, mode 0600, on disk when this returns. A link of that name is
    replaced, never followed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # A leftover of a process that had our number, or somebody's trap: never written to.
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
    """One change of a file at a time: two commands at once must not undo each other's."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class FollowedFile:
    """A file that commands replace while a server reads it."""

    def __init__(self, path: Path) -> None:
        # Asked with every request: a text is not turned into one again.
        self._path = os.fspath(path)
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Whether there is another file than when this was asked last."""
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
