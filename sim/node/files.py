"""Files of a supervisor: real ones, on a disk with faults.

The disk is full, writes short, fails, and loses unsynced data when the machine goes down.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from sim.faults import Dice

_SECTOR = 64


class Files:
    """Open files with faults. `is_full` returns whether the disk has no space left."""

    def __init__(self, seed: int, dice: Dice, is_full: Callable[[], bool]) -> None:
        self._rng = Random(f"{seed} files")
        self._dice = dice
        self._is_full = is_full
        self._paths: dict[int, str] = {}
        #: Contents that survive a power loss, by path, and below the writes since the last sync.
        self._synced: dict[str, bytes] = {}
        self._since: dict[str, list[tuple[int, bytes]]] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._paths

    def open(self, path: str, flags: int, mode: int) -> int:
        if flags & os.O_CREAT:
            self._refuse_if_full()
        fd = os.open(path, flags, mode)
        self._paths[fd] = path
        if flags & os.O_TRUNC:
            self._since[path] = []
            self._synced.pop(path, None)
        return fd

    def close(self, fd: int) -> None:
        del self._paths[fd]
        os.close(fd)

    def close_all(self) -> None:
        for fd in list(self._paths):
            self.close(fd)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        if self._dice.happens("failed write"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if offset + len(data) > os.fstat(fd).st_size:
            self._refuse_if_full()
        if len(data) > 1 and self._dice.happens("short write"):
            data = data[: self._rng.randrange(1, len(data))]
        written = os.pwrite(fd, data, offset)
        self._since.setdefault(self._paths[fd], []).append((offset, bytes(data[:written])))
        return written

    def allocate(self, fd: int, offset: int, size: int) -> None:
        self._refuse_if_full()
        if self._dice.happens("no allocation"):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        os.posix_fallocate(fd, offset, size)

    def sync(self, fd: int) -> None:
        if self._dice.happens("failed sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        path = self._paths.get(fd)
        if path is not None:
            self._synced[path] = Path(path).read_bytes()
            self._since[path] = []

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)
        for fd, path in list(self._paths.items()):
            if path == source:
                self._paths[fd] = target
            elif path == target:
                # The replaced file is still open, but has no name any more.
                self._paths[fd] = ""
        self._since[target] = self._since.pop(source, [])
        if source in self._synced:
            self._synced[target] = self._synced.pop(source)

    def lose_power(self) -> None:
        """Keep all synced data and a prefix of the later writes, the last of them torn."""
        self.close_all()
        for path, writes in self._since.items():
            if not path or not os.path.exists(path):
                continue
            image = bytearray(self._synced.get(path, b""))
            kept = writes[: self._rng.randrange(len(writes) + 1)]
            if kept and self._rng.random() < 0.5:
                offset, data = kept[-1]
                kept[-1] = offset, data[: self._rng.randrange(len(data) // _SECTOR + 1) * _SECTOR]
            for offset, data in kept:
                image.extend(bytes(max(0, offset - len(image))))
                image[offset : offset + len(data)] = data
            Path(path).write_bytes(image)
            self._synced[path] = bytes(image)
        self._since.clear()

    def _refuse_if_full(self) -> None:
        if self._is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
