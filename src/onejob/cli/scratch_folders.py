"""Folders for what is not complete yet, beside where it will be, so that it only has to be renamed.

Each is locked by the process that fills it. The kernel lets go of the lock when that process ends,
however it does, so a folder that can be locked was left behind by a kill, and the next one who
needs such a folder removes it. A file system on which folders cannot be locked keeps what is left.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

#: What their names begin with: beside the file of a backup, and in the data dir.
BACKUP_PREFIX: Final = ".onejob-backup-"
RESTORE_PREFIX: Final = "restoring-"


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A private folder that is removed in the end, if it is still there by then. Those that others
    have left are removed first. Raises OSError."""
    remove_left_folders(parent, prefix)
    folder, lock = _made(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left_folders(parent: Path, prefix: str) -> None:
    """Those of this user whose process is gone."""
    with suppress(OSError):
        for folder in parent.iterdir():
            if folder.name.startswith(prefix):
                _remove_if_left(folder)


def _made(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = _opened(folder)
        except FileNotFoundError:
            continue
        with suppress(OSError):
            # Who looks for what was left may have it for a moment.
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_at(folder, lock):
            return folder, lock
        # It was taken for one that was left, before it was locked.
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):
        lock = _opened(folder)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, lock: int) -> bool:
    try:
        return os.path.samestat(os.lstat(folder), os.fstat(lock))
    except FileNotFoundError:
        return False
