"""Lock file: single-process access to a database, and a durable mark of its newest revision.

To SQLite, a write-ahead log (WAL) that was deleted, truncated or exchanged is a database without
the newest commits: it opens, and acknowledged writes are lost. The lock file therefore records the
newest committed revision as well, in mapped memory: that costs no system call per commit, survives
a kill, and after a power failure is at most older than the log, which was synced before.

The mark also contains the salt of the WAL, which SQLite increments each time that it restarts the
WAL: a WAL with a salt too far away belongs to another database. After a restart of the WAL by
another connection, for instance of a SQLite shell, the next salt may be any number. The salt is
therefore read after each commit, from the WAL index, which SQLite keeps in mapped memory as well.

The mark is synced when a process begins, and when the WAL restarts with an unrelated salt: a WAL
must not be found together with the mark of an earlier process. The mark is followed by the inode of
the database file: if it differs, the database was copied, perhaps while in use, and may contain
pages of different ages.
"""

import fcntl
import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from onejob.store.base import CorruptStore, StoreLocked

CREATED = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_MARK = struct.Struct("<8sQQ")
_CRC = struct.Struct("<I")
_MARK_BYTES = _MARK.size + _CRC.size
_MAGIC = b"onejob-1"
#: Inode of the database. Separate from the mark, whose layout earlier versions read.
_FILE = struct.Struct("<Q")

#: Linux ioctl numbers for file attributes, and the attribute that disables copy-on-write.
_GET_FLAGS = 2 << 30 | struct.calcsize("l") << 16 | ord("f") << 8 | 1
_SET_FLAGS = 1 << 30 | struct.calcsize("l") << 16 | ord("f") << 8 | 2
_NO_COPIES = 0x00800000

_LOG_HEADER = struct.Struct(">8I")
#: Salt in the WAL index, in the byte order of the WAL. See sqlite.org/walformat.html.
_INDEX_SALT = struct.Struct(">32xI")
_LOG_MAGICS = (0x377F0682, 0x377F0683)
#: Maximum number of WAL restarts since the mark was made. After a kill there were one or two; after
#: a power failure, as many as fit into the half minute that a mark may wait to be written, which on
#: a nearly full disk is one per commit.
_MAX_RESTARTS = 1 << 20
_32_BITS = 0xFFFFFFFF


#: Salt if there is no WAL.
_NO_LOG = 0
#: Replaces a salt of 0, which means no WAL.
_MIN_SALT = 1
#: Unknown salt: the process has not committed yet, or the WAL index is inaccessible. Wider than 32
#: bits, so never a real salt.
_NOT_KNOWN = 1 << 32


class Mark(Struct, frozen=True):
    """Newest revision committed by the last process, and the salt of the WAL that it left."""

    revision: int
    salt: int = _NO_LOG


class LockFile:
    """Exclusive lock, held for the lifetime of the process.

    The kernel releases it, even after a kill -9. Raises StoreLocked if another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(lock_path(path), CREATED, 0o600)
        self._map: mmap.mmap | None = None
        self._index: LogIndex | None = None
        self._revision = 0
        self._salt = _NOT_KNOWN
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise StoreLocked(
                f"{path} is in use by another onejob process; stop it or use another data directory"
            ) from None

    def release(self) -> None:
        """Release the lock, after all connections were closed: see `LogIndex`."""
        if self._map is not None:
            self._map.close()
        if self._index is not None:
            self._index.close()
        os.close(self._file)

    def begin(self, revision: int) -> None:
        """Maintain the mark from now on. Call it before anything is written.

        Otherwise a process killed in its first commit would leave a WAL that appears to belong to
        another database; so would a power failure if the mark were not on disk. If the disk is
        full, no mark is kept: the faults that it detects are rarer than a full disk.
        """
        self._revision = revision
        if not disable_copy_on_write(self._file):
            # Created by an earlier version. Only an empty file can change this attribute.
            os.ftruncate(self._file, 0)
            disable_copy_on_write(self._file)
        try:
            mark = _encode_mark(Mark(revision, _NOT_KNOWN))
            os.pwrite(self._file, mark + _packed_file(self._path), 0)
            os.fsync(self._file)
            self._map = mmap.mmap(self._file, _MARK_BYTES)
        except OSError:
            os.ftruncate(self._file, 0)

    def committed(self, revision: int) -> None:
        """Record a commit. Called after each one, on the committing thread."""
        self._revision = revision
        self.wrote()

    def wrote(self) -> None:
        """Record any other write to the WAL, which may have restarted it."""
        if self._map is None:
            return
        if self._index is None:
            self._index = LogIndex(self._path)
        before, self._salt = self._salt, self._index.salt()
        self._map[:] = _encode_mark(Mark(self._revision, self._salt))
        if not _may_follow(self._salt, before):
            # After a power failure the WAL must not be found together with the previous mark. If it
            # is, because this sync failed, the next start rejects the WAL and nothing is lost.
            with suppress(OSError):
                os.fsync(self._file)

    def closed(self) -> None:
        """Record an orderly close of the database, after which there usually is no WAL."""
        if self._map is not None and not log_salt(self._path):
            try:
                # SQLite does not sync the folder: a power failure would bring the WAL back.
                sync(self._path.parent)
            except OSError:
                # The WAL may then still exist, and the mark is correct as it is.
                return
            self._map[:] = _encode_mark(Mark(self._revision))


class LogIndex:
    """Read access to the WAL index (-shm file) of a database that this process has open.

    Its file is closed only after all connections: by closing any descriptor of a file, a process
    loses its locks on that file, SQLite's included.
    """

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        self._map: mmap.mmap | None = None
        try:
            self._file = os.open(index_path(path), os.O_RDONLY | os.O_CLOEXEC)
            self._map = mmap.mmap(self._file, _INDEX_SALT.size, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            # The index was removed, or is not at SQLite's usual path.
            return

    def salt(self) -> int:
        """Return the salt as of the last commit or restart of the WAL."""
        if self._map is None:
            return _NOT_KNOWN
        return _INDEX_SALT.unpack_from(self._map)[0] or _MIN_SALT

    def close(self) -> None:
        """Close the mapped index of the write-ahead log."""
        if self._map is not None:
            self._map.close()
        if self._file is not None:
            os.close(self._file)


def read_mark(path: Path) -> Mark:
    """Return the mark of a database, in use or not; Mark(0) if it is missing, outdated or torn."""
    try:
        data = lock_path(path).read_bytes()[:_MARK_BYTES]
    except OSError:
        return Mark(0)
    if len(data) < _MARK_BYTES or _CRC.unpack_from(data, _MARK.size)[0] != crc32(data[:-4]):
        return Mark(0)
    magic, revision, salt = _MARK.unpack_from(data)
    return Mark(revision, salt) if magic == _MAGIC else Mark(0)


def was_copied(path: Path) -> bool:
    """Return whether the database is another file than the one its last process used.

    The device is not compared: its number may change with each boot.
    """
    try:
        data = lock_path(path).read_bytes()[_MARK_BYTES : _MARK_BYTES + _FILE.size + _CRC.size]
        now = _packed_file(path)
    except OSError:
        return False
    known = len(data) == len(now) and _CRC.unpack_from(data, _FILE.size)[0] == crc32(data[:-4])
    return known and data != now


def write_mark(path: Path, mark: Mark) -> None:
    """Overwrite the mark, for a repair that accepts the database as it is."""
    file = os.open(lock_path(path), CREATED, 0o600)
    try:
        os.pwrite(file, _encode_mark(mark), 0)
        os.fsync(file)
    finally:
        os.close(file)


def disable_copy_on_write(file: int) -> bool:
    """Disable copy-on-write for a file that will be mapped; return whether it is disabled.

    On btrfs a written page goes to a new place. On a full disk there is none, and the process is
    killed by SIGBUS: a write through mapped memory cannot return an error. Other file systems write
    in place anyway.
    """
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, bytes(struct.calcsize("l"))))
        if not flags & _NO_COPIES:
            fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags | _NO_COPIES))
            flags = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, struct.pack("l", 0)))[0]
    except OSError:
        # A file system without copy-on-write does not support the attribute.
        return True
    return bool(flags & _NO_COPIES)


def prepare_index(path: Path) -> None:
    """Create the WAL index without copy-on-write, before SQLite creates and maps it."""
    try:
        file = os.open(index_path(path), CREATED | os.O_EXCL, 0o600)
    except FileExistsError:
        # Left by a kill, so created here; or in use.
        return
    try:
        disable_copy_on_write(file)
    finally:
        os.close(file)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def log_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-shm")


def log_salt(path: Path) -> int:
    """Return the salt of the database's WAL; 0 if there is none that SQLite would read."""
    try:
        with open(log_path(path), "rb", buffering=0) as file:
            header = file.read(_LOG_HEADER.size)
    except OSError:
        return 0
    if len(header) < _LOG_HEADER.size:
        return 0
    magic, _, _, _, salt, *_ = _LOG_HEADER.unpack(header)
    return salt or _MIN_SALT if magic in _LOG_MAGICS else _NO_LOG


def refuse_foreign_log(path: Path, mark: Mark) -> None:
    """Reject a WAL of another database, before SQLite reads its pages as ours.

    Raises CorruptStore.
    """
    if not mark.revision:
        return
    salt = log_salt(path)
    if salt and not _may_follow(salt, mark.salt):
        name = log_path(path).name
        raise CorruptStore(
            f"{name} does not belong to {path} (it was written for another database, or by "
            f"another program): restore the right one, restore a backup, or move {name} away"
        )


def _may_follow(salt: int, before: int) -> bool:
    """Return whether a WAL with this salt may be a continuation of the one with salt `before`."""
    if before == _NOT_KNOWN:
        return True
    return before != _NO_LOG and (salt - before) & _32_BITS <= _MAX_RESTARTS


def refuse_lost_revisions(path: Path, mark: Mark, reached: int) -> None:
    """Raise CorruptStore if acknowledged writes are missing."""
    if reached < mark.revision:
        raise CorruptStore(lost_revisions(path, mark, reached))


def lost_revisions(path: Path, mark: Mark, reached: int) -> str:
    name = log_path(path).name
    return (
        f"{path} is damaged: revision {mark.revision} was acknowledged, but the newest is "
        f"{reached} ({name} was truncated or deleted, or an older file was restored); restore "
        "the right files or a backup, or accept the loss with onejob doctor --repair"
    )


def _encode_mark(mark: Mark) -> bytes:
    data = _MARK.pack(_MAGIC, mark.revision, mark.salt)
    return data + _CRC.pack(crc32(data))


def _packed_file(path: Path) -> bytes:
    data = _FILE.pack(path.stat().st_ino)
    return data + _CRC.pack(crc32(data))
