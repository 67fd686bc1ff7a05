"""Fault-injecting SQLite VFS: journals every write and sync, fails any of them, loses power.

It wraps real files. The journal holds, in order, the writes, the syncs and the acknowledgements
given to callers. `after_power_loss` lays out the files as a disk might show them after losing power
at any entry: every synced write is present, and any part of the rest may be.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import apsw

SECTOR = 512

What: TypeAlias = Literal["write", "truncate", "sync", "delete", "told"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One journaled operation."""

    what: What
    #: File name; for `told`, the name of the acknowledged write.
    name: str
    offset: int = 0
    data: bytes = b""


@dataclass(slots=True)
class FaultyDisk(AbstractContextManager["FaultyDisk"]):
    """VFS registered with SQLite while the context is entered; open stores with `vfs=disk.name`."""

    name: str = "faulty"
    journal: list[Entry] = field(default_factory=list)
    #: Called before each write, truncation and sync takes effect; may raise.
    before: Callable[[Entry], None] = lambda _: None
    #: Returns the number of bytes written before the disk is full; None for all of them.
    shorten: Callable[[Entry], int | None] = lambda _: None
    #: Called after each write, truncation and sync took effect; may raise.
    after: Callable[[Entry], None] = lambda _: None
    _vfs: "_Vfs | None" = None

    def __enter__(self) -> Self:
        self._vfs = _Vfs(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._vfs is not None
        self._vfs.unregister()

    def tell(self, name: str) -> None:
        self.journal.append(Entry("told", name))

    def perform(self, entry: Entry, effect: Callable[[], None]) -> None:
        self.before(entry)
        effect()
        self.journal.append(entry)
        self.after(entry)


def after_power_loss(
    journal: list[Entry], directory: Path, keep: Callable[[Entry], bytes | None]
) -> None:
    """Write the files as they are after the journal's last entry and a loss of power."""
    directory.mkdir()
    for name, image in images_after_power_loss(journal, keep).items():
        (directory / name).write_bytes(image)


def images_after_power_loss(
    journal: list[Entry], keep: Callable[[Entry], bytes | None]
) -> dict[str, bytearray]:
    """Return the contents of the files after a loss of power, by name.

    `keep` returns the part of an unsynced write that survives, or None if it is lost.
    """
    synced_upto = {entry.name: at for at, entry in enumerate(journal) if entry.what == "sync"}
    files: dict[str, bytearray] = {}
    for at, entry in enumerate(journal):
        if entry.what == "delete":
            files.pop(entry.name, None)
            continue
        if entry.what in ("told", "sync"):
            continue
        data: bytes | None = entry.data
        if at > synced_upto.get(entry.name, -1):
            data = keep(entry)
        image = files.setdefault(entry.name, bytearray())
        if data is None:
            continue
        if entry.what == "truncate":
            del image[entry.offset :]
        else:
            image.extend(bytes(max(0, entry.offset - len(image))))
            image[entry.offset : entry.offset + len(data)] = data
    return files


def nothing(_: Entry) -> None:
    return None


def everything(entry: Entry) -> bytes:
    """Keep every unsynced write."""
    return entry.data


def any_part(rng: random.Random) -> Callable[[Entry], bytes | None]:
    """Return a `keep` that drops, keeps or tears each unsynced write independently.

    Disks reorder writes. Writes are torn at a sector.
    """

    def keep(entry: Entry) -> bytes | None:
        choice = rng.randrange(3)
        if choice == 0:
            return None
        if choice == 1:
            return entry.data
        return entry.data[: rng.randrange(len(entry.data) // SECTOR + 1) * SECTOR]

    return keep


class _Vfs(apsw.VFS):
    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "_File":
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.journal.append(Entry("delete", Path(filename).name))


class _File(apsw.VFSFile):
    def __init__(
        self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(text).name if text else ""
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        taken = self._disk.shorten(Entry("write", self._name, offset, data))
        part = bytes(data) if taken is None else bytes(data[:taken])
        self._disk.perform(
            Entry("write", self._name, offset, part),
            lambda: super(_File, self).xWrite(part, offset),
        )
        if taken is not None:
            raise apsw.FullError("the disk took a part of the write")

    def xTruncate(self, newsize: int) -> None:
        self._disk.perform(
            Entry("truncate", self._name, newsize),
            lambda: super(_File, self).xTruncate(newsize),
        )

    def xSync(self, flags: int) -> None:
        self._disk.perform(Entry("sync", self._name), lambda: super(_File, self).xSync(flags))
