"""Simulated disk under SQLite: full, short writes, I/O errors, and the files left after a crash.

A crash of the process keeps everything written. A crash of the machine keeps every write that was
synced, and any part of the rest.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import apsw

from sim.faults import Dice
from sim.faulty_disk import Entry, FaultyDisk, any_part, everything, images_after_power_loss

VFS = "onejob-sim"
_DATABASE = "onejob.db"
#: Shared-memory index. It has no durable contents: the first process to open the database recreates
#: it.
_INDEX = f"{_DATABASE}-shm"
#: Records the last committed revision; written through mapped memory rather than SQLite.
_LOCK = f"{_DATABASE}.lock"


class DatabaseDisk:
    """The disk of the store's database. `is_full` returns whether no space is left."""

    def __init__(self, seed: int, dice: Dice, folder: Path, is_full: Callable[[], bool]) -> None:
        self._rng = Random(f"{seed} database disk")
        self._marks = Random(f"{seed} marks")
        self._dice = dice
        self._folder = folder
        self._is_full = is_full
        self._disk = FaultyDisk(VFS, before=self._before, shorten=self._shorten)
        self._crash: Callable[[str], None] = lambda why: None
        self._images: dict[str, bytearray] | None = None
        self._mark = b""
        #: Contents of the lock file before the first write of this process, which are synced.
        self._first_mark: bytes | None = None
        #: Faults are off until the process has started: a failed start would only be repeated.
        self.reliable = True
        #: Set after a fault that leaves the store unsure of the state on disk: its process must
        #: exit.
        self.broke = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        with self._disk:
            yield

    def begin(self, crash: Callable[[str], None]) -> None:
        """Start a new process on the current files; `crash` kills it."""
        self._crash = crash
        self.reliable, self.broke = True, False
        self._first_mark = None
        self._disk.journal.clear()
        for path in sorted(self._folder.glob(f"{_DATABASE}*")):
            if path.name != _INDEX and not path.name.endswith(".lock"):
                self._disk.journal.append(Entry("write", path.name, 0, path.read_bytes()))
                self._disk.journal.append(Entry("sync", path.name))

    def close(self) -> None:
        """Turn faults off while the store closes.

        SQLite ignores errors at that point because the log holds everything; errors of a file
        system in Python would propagate as exceptions.
        """
        self.reliable = True

    def die(self, *, machine_too: bool) -> None:
        """Freeze the files at the death of the process: its later writes have no effect."""
        keep = any_part(self._rng) if machine_too else everything
        self._images = images_after_power_loss(self._disk.journal, keep)
        # The mark is written after the sync of a commit, so the remaining files have reached that
        # revision. The kernel decides whether the mark itself is on disk.
        self._mark = (self._folder / _LOCK).read_bytes()
        if machine_too and self._first_mark is not None and self._marks.random() < 0.5:
            self._mark = self._first_mark
        self.reliable = True

    def restore(self) -> None:
        """Restore the files to the state in which the dead process left them."""
        images, self._images = self._images, None
        if images is None:
            return
        for path in self._folder.glob(f"{_DATABASE}*"):
            if not path.name.endswith(".lock"):
                path.unlink()
        for name, image in images.items():
            (self._folder / name).write_bytes(image)
        with open(self._folder / _LOCK, "r+b") as lock:
            lock.write(self._mark)

    def _happens(self, kind: str) -> bool:
        return not self.reliable and self._dice.happens(kind)

    def _before(self, entry: Entry) -> None:
        if self._first_mark is None and entry.what == "write":
            self._first_mark = (self._folder / _LOCK).read_bytes()
        if self.reliable:
            return
        if entry.what == "sync":
            if self._happens("failed store sync"):
                self.broke = True
                raise apsw.IOError("the simulated disk failed at a sync")
            return
        if self._happens("crash in a store write"):
            self._crash("in a write of the store")
            raise apsw.IOError("the process is dead")
        if self._happens("failed store write"):
            self.broke = True
            raise apsw.IOError("the simulated disk failed at a write")
        if entry.what == "write" and self._is_full():
            raise apsw.FullError("the simulated disk is full")

    def _shorten(self, entry: Entry) -> int | None:
        if len(entry.data) > 1 and self._happens("short store write"):
            return self._rng.randrange(1, len(entry.data))
        return None
