"""Provisioner of folders below the data directory.

Guarantees: a folder is removed recursively only by `delete`; `sweep` removes empty ones. Paths are
derived from the volume's name, never read from its document.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, Unpack

from onejob.node.removal import remove_trees
from onejob.planning.claims.capacity import Disk, refusal

log = logging.getLogger(__name__)

T = TypeVar("T")
Args = TypeVarTuple("Args")

#: Mode of a volume: Pods may run as any user. The folder above is open to the server's user only.
_VOLUME_MODE: Final = 0o777


class FolderProvisioner:
    """Provisioner of one node. Its work runs in a thread, one folder at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, "claims")

    def path_of(self, name: str) -> str:
        """Return the path of a volume's folder."""
        return f"{self._folder}/{name}"

    async def make(self, name: str, size: int, promised: int) -> str:
        """Make the folder of a volume; return why that is not possible, or ""."""
        return await self._run(self._make, name, size, promised)

    async def delete(self, name: str) -> str:
        """Delete the folder of a volume with its contents; return why that failed, or ""."""
        return await self._run(self._delete, name)

    async def sweep(self, names: frozenset[str]) -> None:
        """Remove the empty folders of volumes that were never created."""
        await self._run(self._sweep, names)

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    def _make(self, name: str, size: int, promised: int) -> str:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if problem := self._shortage(size, promised):
                return problem
            path = self.path_of(name)
            if not os.path.lexists(path):
                os.mkdir(path)
                # Independent of our umask.
                os.chmod(path, _VOLUME_MODE)
            # The folder must not be lost in a crash after its volume was written.
            _sync(path)
            _sync(str(self._folder))
        except OSError as error:
            return f"cannot make the folder of the volume: {error.strerror}"
        return ""

    def _shortage(self, size: int, promised: int) -> str:
        """Return why a volume of this size does not fit on the disk; "" if it does."""
        found = os.statvfs(self._folder)
        disk = Disk(str(self._folder), found.f_bavail * found.f_frsize, 0)
        if not refusal(size, promised, disk):
            return ""
        # Only now, because it reads all folders.
        used = sum(map(_usage, self._volumes()))
        return refusal(size, promised, Disk(disk.path, disk.free, used))

    def _delete(self, name: str) -> str:
        path = self.path_of(name)
        if not os.path.lexists(path):
            return ""
        remove_trees([path])
        if os.path.lexists(path):
            return f"cannot delete {path}"
        return ""

    def _sweep(self, names: frozenset[str]) -> None:
        for path in self._volumes():
            if os.path.basename(path) in names:
                continue
            try:
                os.rmdir(path)
            except OSError:
                log.warning("%s belongs to no volume; delete it if it is not needed", path)

    def _volumes(self) -> list[str]:
        try:
            return [entry.path for entry in os.scandir(self._folder)]
        except FileNotFoundError:
            return []


def _usage(path: str) -> int:
    """Return the bytes that a folder occupies; every hard link counts."""
    total = 0
    pending = [path]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            # Removed meanwhile, or closed by its owner: its contents count as unused.
            continue
    return total


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
