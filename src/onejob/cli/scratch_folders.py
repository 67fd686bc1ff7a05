"""Scratch folders for incomplete output, next to the final path, so that a rename completes it.

Each is locked by the process that fills it. The kernel releases the lock when that process ends,
however it does, so a folder that can be locked was left behind by a killed process, and the next
process that needs a scratch folder removes it. On a file system that cannot lock folders, leftovers
stay.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

#: Name prefixes: next to the file of a backup, and in the data dir.
BACKUP_PREFIX: Final = ".onejob-backup-"
RESTORE_PREFIX: Final = "restoring-"


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Create a private folder; remove it at exit, unless it was renamed. Raises OSError.

    Leftovers of killed processes are removed first.
    """
    remove_left_folders(parent, prefix)
    folder, lock = _make_locked(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left_folders(parent: Path, prefix: str) -> None:
    """Remove this user's scratch folders whose process has ended."""
    with suppress(OSError):
        for folder in parent.iterdir():
            if folder.name.startswith(prefix):
                _remove_if_abandoned(folder)


def _make_locked(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a scratch folder and lock it; return it with its descriptor."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = _open_folder(folder)
        except FileNotFoundError:
            continue
        with suppress(OSError):
            # A process that searches for leftovers may hold the lock for a moment.
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_at(folder, lock):
            return folder, lock
        # Another process took it for a leftover, and removed it before it was locked.
        os.close(lock)


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):
        lock = _open_folder(folder)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, lock: int) -> bool:
    try:
        return os.path.samestat(os.lstat(folder), os.fstat(lock))
    except FileNotFoundError:
        return False
