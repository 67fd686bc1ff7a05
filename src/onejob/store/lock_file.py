"""The file that makes a process the only one to use a database, and says how far that one got.

A write-ahead log that is deleted, cut or exchanged is, for SQLite, a database without the newest
commits: it opens, and acknowledged writes are gone. So the newest committed revision is kept here
as well, in mapped memory: that costs no system call per commit, survives a kill, and after a power
failure is at most older than the log, which was synced before. With it is kept the salt of the
log, which SQLite increases by one each time that it begins anew: a log that is too far from it
belongs to another database. Where somebody else's connection had it begin anew, with a SQLite shell
for instance, the next salt may be any number. So it is read after each commit, from the index of
the log, which SQLite keeps in mapped memory as well.

Only a process that begins syncs the mark: that of an earlier one must not be found beside its log.

Behind the mark stands which file the database was, by its inode: where it is another one, somebody
has copied it, perhaps while it was in use, and pages of different age may be in it.
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
#: Which file the database is. Apart from the mark, which earlier versions read as it is.
_FILE = struct.Struct("<Q")

#: Linux' own numbers, for a file's attributes; that a file is never copied as it is written.
_GET_FLAGS = 2 << 30 | struct.calcsize("l") << 16 | ord("f") << 8 | 1
_SET_FLAGS = 1 << 30 | struct.calcsize("l") << 16 | ord("f") << 8 | 2
_NO_COPIES = 0x00800000

_LOG_HEADER = struct.Struct(">8I")
#: In the index of a log: its salt, in the byte order of the log. See sqlite.org/walformat.html.
_INDEX_SALT = struct.Struct(">32xI")
_LOG_MAGICS = (0x377F0682, 0x377F0683)
#: How often a log may have begun anew since the mark was made. After a kill that is once or twice;
#: after a power failure as often as within the half minute that a mark may wait to be written,
#: which on a nearly full disk is with every commit.
_MOST_RESTARTS = 1 << 20
_32_BITS = 0xFFFFFFFF


#: Of a log: there is none.
_NO_LOG = 0
#: Instead of 0, which is taken.
_LEAST_SALT = 1
#: Of a log: a process has begun, and has not committed yet. More than 32 bits have.
_NOT_KNOWN = 1 << 32


class Mark(Struct, frozen=True):
    """How far the last process got, and the salt of the log that it left."""

    revision: int
    salt: int = _NO_LOG


class LockFile:
    """Held for as long as the process lives; the kernel lets go of it after a kill -9."""

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
                f"{path} is in use by another onejob; stop it or use another data directory"
            ) from None

    def release(self) -> None:
        """After all connections were closed: see `LogIndex`."""
        if self._map is not None:
            self._map.close()
        if self._index is not None:
            self._index.close()
        os.close(self._file)

    def begin(self, revision: int) -> None:
        """Keep the mark from now on: before anything is written, or a process that is killed in
        its first commit would leave a log that is taken for another's, and so would a power
        failure if this were not on disk. Where the disk is full the mark is not kept: what it
        notices is rarer than a full disk."""
        self._revision = revision
        if not keep_in_place(self._file):
            # One of an earlier version. Only an empty file can be changed.
            os.ftruncate(self._file, 0)
            keep_in_place(self._file)
        try:
            mark = _packed(Mark(revision, _NOT_KNOWN))
            os.pwrite(self._file, mark + _packed_file(self._path), 0)
            os.fsync(self._file)
            self._map = mmap.mmap(self._file, _MARK_BYTES)
        except OSError:
            os.ftruncate(self._file, 0)

    def committed(self, revision: int) -> None:
        """Called after each commit, on the thread that commits."""
        self._revision = revision
        self.wrote()

    def wrote(self) -> None:
        """Called after each other write to the log, which may have begun it anew."""
        if self._map is None:
            return
        if self._index is None:
            self._index = LogIndex(self._path)
        before, self._salt = self._salt, self._index.salt()
        self._map[:] = _packed(Mark(self._revision, self._salt))
        if not _may_follow(self._salt, before):
            # After a power failure the log must not be found beside the mark that was before. Where
            # it is, because this failed, the next start refuses the log and nothing is lost.
            with suppress(OSError):
                os.fsync(self._file)

    def closed(self) -> None:
        """The database was closed in an orderly way: usually there is no log any more."""
        if self._map is not None and not log_salt(self._path):
            try:
                # SQLite does not: a power failure would bring the log back.
                sync(self._path.parent)
            except OSError:
                # It may still be there then, and the mark is right as it is.
                return
            self._map[:] = _packed(Mark(self._revision))


class LogIndex:
    """Of the log of a database that this process has open. Its file is closed only after all
    connections are: with any file that a process closes it loses its locks on it, SQLite's, too."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        self._map: mmap.mmap | None = None
        try:
            self._file = os.open(index_path(path), os.O_RDONLY | os.O_CLOEXEC)
            self._map = mmap.mmap(self._file, _INDEX_SALT.size, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            # Somebody has removed it, or it is not where SQLite usually has it.
            return

    def salt(self) -> int:
        """As it was at the last commit or restart of the log."""
        if self._map is None:
            return _NOT_KNOWN
        return _INDEX_SALT.unpack_from(self._map)[0] or _LEAST_SALT

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
        if self._file is not None:
            os.close(self._file)


def read_mark(path: Path) -> Mark:
    """Of the database with this path, whether it is in use or not. An old or a torn one says
    nothing."""
    try:
        data = lock_path(path).read_bytes()[:_MARK_BYTES]
    except OSError:
        return Mark(0)
    if len(data) < _MARK_BYTES or _CRC.unpack_from(data, _MARK.size)[0] != crc32(data[:-4]):
        return Mark(0)
    magic, revision, salt = _MARK.unpack_from(data)
    return Mark(revision, salt) if magic == _MAGIC else Mark(0)


def was_copied(path: Path) -> bool:
    """Whether this database is another file than the one that its last process used. The device
    does not count: it may have another number after each boot."""
    try:
        data = lock_path(path).read_bytes()[_MARK_BYTES : _MARK_BYTES + _FILE.size + _CRC.size]
        now = _packed_file(path)
    except OSError:
        return False
    known = len(data) == len(now) and _CRC.unpack_from(data, _FILE.size)[0] == crc32(data[:-4])
    return known and data != now


def write_mark(path: Path, mark: Mark) -> None:
    """For one who repairs: the database is what it is, and that is accepted."""
    file = os.open(lock_path(path), CREATED, 0o600)
    try:
        os.pwrite(file, _packed(mark), 0)
        os.fsync(file)
    finally:
        os.close(file)


def keep_in_place(file: int) -> bool:
    """Have a file that will be mapped written where it is; whether it is so. On btrfs a page that
    is written goes somewhere else, and on a full disk, where there is no such place, the process
    is killed by SIGBUS: a write through memory can return no error. Elsewhere that is so anyway."""
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, bytes(struct.calcsize("l"))))
        if not flags & _NO_COPIES:
            fcntl.ioctl(file, _SET_FLAGS, struct.pack("l", flags | _NO_COPIES))
            flags = struct.unpack("l", fcntl.ioctl(file, _GET_FLAGS, struct.pack("l", 0)))[0]
    except OSError:
        # A file system that copies nothing does not know of it.
        return True
    return bool(flags & _NO_COPIES)


def prepare_index(path: Path) -> None:
    """The index of the log is mapped by SQLite, which makes the file if there is none."""
    try:
        file = os.open(index_path(path), CREATED | os.O_EXCL, 0o600)
    except FileExistsError:
        # Left by a kill; it was made like this, or somebody uses it.
        return
    try:
        keep_in_place(file)
    finally:
        os.close(file)


def sync(path: Path) -> None:
    """Have a file, or what is in a folder, on disk. Raises OSError."""
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
    """Of the write-ahead log beside this database; 0 if there is none that SQLite would read."""
    try:
        with open(log_path(path), "rb", buffering=0) as file:
            header = file.read(_LOG_HEADER.size)
    except OSError:
        return 0
    if len(header) < _LOG_HEADER.size:
        return 0
    magic, _, _, _, salt, *_ = _LOG_HEADER.unpack(header)
    return salt or _LEAST_SALT if magic in _LOG_MAGICS else _NO_LOG


def refuse_foreign_log(path: Path, mark: Mark) -> None:
    """Raises CorruptStore, before SQLite reads the log: it would take another's pages for ours."""
    if not mark.revision:
        return
    salt = log_salt(path)
    if salt and not _may_follow(salt, mark.salt):
        name = log_path(path).name
        raise CorruptStore(
            f"{name} beside {path} is not the log that its last server left (that of another "
            f"database, or of another program): put the right one there, restore a backup, or "
            f"move {name} away"
        )


def _may_follow(salt: int, before: int) -> bool:
    """Whether a log with this salt may be the one that had the other salt before."""
    if before == _NOT_KNOWN:
        return True
    return before != _NO_LOG and (salt - before) & _32_BITS <= _MOST_RESTARTS


def refuse_lost_revisions(path: Path, mark: Mark, reached: int) -> None:
    """Raises CorruptStore if acknowledged writes are missing."""
    if reached < mark.revision:
        raise CorruptStore(lost_revisions(path, mark, reached))


def lost_revisions(path: Path, mark: Mark, reached: int) -> str:
    name = log_path(path).name
    return (
        f"{path} is damaged: revision {mark.revision} was acknowledged, but it reaches only to "
        f"{reached} ({name} was cut or deleted, or an older file was put in its place); put the "
        f"right files there, restore a backup, or accept the loss: onejob doctor --repair"
    )


def _packed(mark: Mark) -> bytes:
    data = _MARK.pack(_MAGIC, mark.revision, mark.salt)
    return data + _CRC.pack(crc32(data))


def _packed_file(path: Path) -> bytes:
    data = _FILE.pack(path.stat().st_ino)
    return data + _CRC.pack(crc32(data))
