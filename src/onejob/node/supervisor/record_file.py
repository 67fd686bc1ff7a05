"""A file of records, each whole or not there: the journal's view of a disk that may be full.

A record is framed by a mark, its lengths and a checksum. Space is allocated ahead, so that what
must not fail can be written into space that is there already. A write is completed or undone. A
record may carry a slot: room that is filled in later, in place, by whoever knows its offset.

Nothing is synced but a file as it begins: what is written survives the death of every process, and
after the death of the machine nothing that is recorded here runs any more.
"""

import contextlib
import errno
import os
import struct
from binascii import crc32
from collections.abc import Iterator
from typing import NamedTuple

#: Not part of any text in UTF-8, so records can be found again behind a damaged one.
MAGIC = b"\xf5OJ2"
#: The mark, the lengths of payload and slot, and the checksum of all of it but the slot.
_HEADER = struct.Struct("<4sIII")
#: The length of what is in a slot, and its checksum.
_SLOT_HEADER = struct.Struct("<II")
#: Or a torn header of zeros would be a record of nothing.
_SEED = 0x4F4A3201
#: Allocated at once, if there is room.
_CHUNK_BYTES = 64 * 1024


class Record(NamedTuple):
    offset: int
    end: int
    payload: bytes
    #: What was written into the slot; empty if nothing was, or not all of it.
    slot: bytes


def frame(payload: bytes, slot_bytes: int = 0) -> bytes:
    """The record as it stands in the file; the slot is its end."""
    size = len(payload)
    record = _HEADER.pack(MAGIC, size, slot_bytes, _checksum(payload, size, slot_bytes)) + payload
    return record + bytes(slot_bytes) if slot_bytes else record


def _checksum(payload: bytes, size: int, slot_bytes: int) -> int:
    """Begun with the lengths, so that it is about them, too."""
    return crc32(payload, _SEED ^ (size << 12) ^ slot_bytes)


class RecordFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self.fd = -1
        #: Where the next record goes. Behind it there are only zeros, up to `_allocated`.
        self._end = 0
        self._allocated = 0
        #: Something could not be undone: only a new file will do.
        self._spoilt = False
        #: Records were lost to something other than an interrupted write.
        self.damaged = False

    @property
    def usable(self) -> bool:
        return self.fd >= 0 and not self._spoilt

    def load(self, data: bytes) -> list[Record]:
        """The whole records of a file with these contents, which is continued."""
        records = list(records_in(data))
        end = records[-1].end if records else 0
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self.close()
        self.fd, self._end, self._allocated = fd, end, len(data)
        self._spoilt = False
        self.damaged = _lacks_records(records, data)
        if data[end:].strip(b"\0"):
            # The torn end of a write that nobody was told had happened.
            self._undo(len(data) - end)
        return records

    def room(self) -> int:
        """How many bytes can be appended without any further space."""
        return self._allocated - self._end if self.usable else 0

    def reserve(self, size: int) -> None:
        """Have room for so many bytes. Raises OSError."""
        if not self.usable:
            raise OSError(errno.EIO, "the journal cannot be written")
        missing = size - self.room()
        if missing <= 0:
            return
        try:
            self._allocate(max(missing, _CHUNK_BYTES))
        except OSError:
            if missing >= _CHUNK_BYTES:
                raise
            self._allocate(missing)

    def append(self, records: bytes) -> int:
        """Write all of it or nothing; returns where it ends. Raises OSError."""
        if self._spoilt or self._end + len(records) > self._allocated:
            self.reserve(len(records))
        try:
            _write_all(self.fd, records, self._end)
        except OSError:
            self._undo(len(records))
            raise
        self._end += len(records)
        return self._end

    def fill_slot(self, offset: int, size: int, payload: bytes) -> None:
        """Write into the slot of that offset and size. May be done by another process that has
        the descriptor. Raises OSError."""
        _write_all(self.fd, slot_text(payload, size), offset)

    def slot_at(self, offset: int, size: int) -> bytes:
        """What is in that slot by now. Raises OSError."""
        return _slot(os.pread(self.fd, size, offset))

    def replace(self, records: bytes, reserve: int) -> None:
        """Put these records in the place of all that there are. Raises OSError, and then
        everything is as before."""
        fresh = self._path + ".new"
        other = RecordFile(fresh)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            other.fd = os.open(fresh, flags, 0o600)
            other.reserve(len(records) + reserve)
            other.append(records)
            os.fsync(other.fd)
            os.rename(fresh, self._path)
        except OSError:
            other.close()
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
        self.close()
        self.fd, self._end, self._allocated = other.fd, other._end, other._allocated
        self._spoilt = self.damaged = False
        # The new file is in place by now; either of the two serves after a crash.
        with contextlib.suppress(OSError):
            _sync_folder(self._path)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self.fd, self._allocated, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            # A file system that cannot allocate ahead: zeros do, where it writes in place.
            _write_all(self.fd, bytes(size), self._allocated)
        self._allocated += size

    def _undo(self, size: int) -> None:
        """Leave no trace of so many bytes after the last record."""
        try:
            _write_all(self.fd, bytes(size), self._end)
        except OSError:
            self._spoilt = True


def slot_text(payload: bytes, size: int) -> bytes:
    """What is written into a slot of that size. Raises OSError if it does not fit."""
    if len(payload) + _SLOT_HEADER.size > size:
        raise OSError(errno.EMSGSIZE, f"no slot for {len(payload)} bytes")
    return _SLOT_HEADER.pack(len(payload), crc32(payload)) + payload


def _write_all(fd: int, data: bytes, offset: int) -> None:
    """Write, however few bytes are taken at a time. Raises OSError."""
    done = os.pwrite(fd, data, offset)
    while done < len(data):
        count = os.pwrite(fd, data[done:], offset + done)
        if count == 0:
            raise OSError(errno.EIO, "a write of no bytes")
        done += count


def records_in(data: bytes) -> Iterator[Record]:
    """The whole records of a file with these contents, in order."""
    offset = data.find(MAGIC)
    while offset >= 0:
        record = _record_at(data, offset)
        if record is not None:
            yield record
        offset = data.find(MAGIC, offset + 1 if record is None else record.end)


def _record_at(data: bytes, offset: int) -> Record | None:
    """None if it is not whole."""
    body = offset + _HEADER.size
    if body > len(data):
        return None
    _, size, slot_bytes, checksum = _HEADER.unpack_from(data, offset)
    end = body + size + slot_bytes
    payload = data[body : body + size]
    if end > len(data) or _checksum(payload, size, slot_bytes) != checksum:
        return None
    return Record(offset, end, payload, _slot(data[body + size : end]))


def _slot(text: bytes) -> bytes:
    if len(text) < _SLOT_HEADER.size:
        return b""
    size, checksum = _SLOT_HEADER.unpack_from(text)
    payload = text[_SLOT_HEADER.size : _SLOT_HEADER.size + size]
    return payload if len(payload) == size and crc32(payload) == checksum else b""


def is_damaged(data: bytes) -> bool:
    """Whether a file with these contents has lost records to something other than an interrupted
    write."""
    return _lacks_records(list(records_in(data)), data)


def _lacks_records(records: list[Record], data: bytes) -> bool:
    return _has_gaps(records) or (not records and bool(data.strip(b"\0")))


def _has_gaps(records: list[Record]) -> bool:
    expected = 0
    for record in records:
        if record.offset != expected:
            return True
        expected = record.end
    return False


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
