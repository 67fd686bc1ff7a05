"""Safe removal of a workload's files: nothing outside the tree is touched, whatever it contains.

Links are removed, never followed. Mounts below the tree are detached first, and emptied only if
they are ours. A tree may have any depth: its folders are moved up one by one, so that two
descriptors are sufficient.
"""

import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from onejob.node.supervisor import linux

log = logging.getLogger(__name__)

#: Source of a volume's tmpfs in the kernel's list of mounts.
MEMORY_VOLUME = "onejob-volume"
_MOVED = "..removing-"
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Mounted(NamedTuple):
    path: str
    #: Whether it belongs to a volume, and is deleted with its files.
    ours: bool


def remove_trees(paths: Iterable[str]) -> None:
    """Remove folders recursively; failures are logged."""
    mounts: Sequence[_Mounted] | None = None
    for path in paths:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            if mounts is None:
                mounts = _mounts()
            try:
                _remove_tree(path, mounts)
            except OSError as error:
                log.warning("cannot remove %s: %s", path, error)


def remove_beneath(folder: int, name: str) -> None:
    """Remove a file, a link or a tree from the folder. Raises OSError."""
    pending = [name]
    number = 0
    while pending:
        name = pending.pop()
        if _remove_single(folder, name):
            continue
        with _open_folder(folder, name) as tree:
            for entry in os.listdir(tree):
                if not _remove_single(tree, entry):
                    while _exists(folder, moved := f"{_MOVED}{number}"):
                        number += 1
                    _restore_access(tree, entry)
                    os.rename(entry, moved, src_dir_fd=tree, dst_dir_fd=folder)
                    pending.append(moved)
        os.rmdir(name, dir_fd=folder)


def _remove_tree(path: str, mounts: Sequence[_Mounted]) -> None:
    real = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
    # Later mounts are listed later, and may cover earlier ones.
    for mounted in reversed(mounts):
        if mounted.path == real or mounted.path.startswith(real + "/"):
            if mounted.ours:
                # Other mount namespaces may keep the mount as long as they exist, but not its
                # files.
                _empty_folder(mounted.path)
            linux.detach(mounted.path)
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_beneath(parent, os.path.basename(path))
    finally:
        os.close(parent)


def _empty_folder(path: str) -> None:
    """Delete the contents of a folder. Raises OSError."""
    folder = os.open(path, _LIST)
    try:
        for name in os.listdir(folder):
            remove_beneath(folder, name)
    finally:
        os.close(folder)


def _remove_single(folder: int, name: str) -> bool:
    """Remove a file, a link or an empty folder; return False for a folder with entries."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return True
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError:
        return False
    return True


@contextmanager
def _open_folder(folder: int, name: str) -> Iterator[int]:
    """Open a folder after restoring our access to it, for a `with` block."""
    _restore_access(folder, name)
    fd = os.open(name, _LIST, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _restore_access(folder: int, name: str) -> None:
    """Restore the owner's access: a folder without it can neither be listed nor moved."""
    if os.geteuid() == 0:
        return
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def _exists(folder: int, name: str) -> bool:
    """Return whether the folder has an entry of this name, be it a broken link."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


_ESCAPE = re.compile(rb"\\([0-7]{3})")


def _mounts() -> list[_Mounted]:
    """Return all mounts, in the order of mounting."""
    with open("/proc/self/mountinfo", "rb") as file:
        lines = file.read().splitlines()
    found = []
    for line in lines:
        front, _, back = line.partition(b" - ")
        path = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), front.split(b" ")[4])
        found.append(_Mounted(os.fsdecode(path), back.split(b" ")[1] == MEMORY_VOLUME.encode()))
    return found
