"""File of atomic records with preallocated space: the storage layer of the journal, safe on a full
disk.

A record is framed by a magic number, its lengths and a checksum. Space is allocated ahead, so that
writes that must not fail use space that already exists. A write is completed or undone. A record
may carry a slot: space that is filled in later, in place, by any process that has its offset.

Only a new file is synced: written data survives the death of every process, and after the machine's
death none of the recorded processes is running any more.
"""

import contextlib
import errno
import os
import struct
from binascii import crc32
from collections.abc import Iterator
from typing import NamedTuple

#: Invalid in UTF-8 text, so that records can be found again after a damaged one.
MAGIC = b"\xf5OJ2"
#: Magic number, lengths of payload and slot, and a checksum of everything but the slot.
_HEADER = struct.Struct("<4sIII")
#: Length of a slot's content, and its checksum.
_SLOT_HEADER = struct.Struct("<II")
#: Initial checksum value; with 0, a torn header of zeros would be a valid empty record.
_SEED = 0x4F4A3201
#: Bytes allocated at a time, if the disk has space.
_CHUNK_BYTES = 64 * 1024


class Record(NamedTuple):
    offset: int
    end: int
    payload: bytes
    #: Content of the slot; empty if it was not written, or not completely.
    slot: bytes


def frame(payload: bytes, slot_bytes: int = 0) -> bytes:
    """Return the record as stored in the file; the slot is at its end."""
    size = len(payload)
    record = _HEADER.pack(MAGIC, size, slot_bytes, _checksum(payload, size, slot_bytes)) + payload
    return record + bytes(slot_bytes) if slot_bytes else record


def _checksum(payload: bytes, size: int, slot_bytes: int) -> int:
    """Return the checksum, which is seeded with the lengths in order to cover them, too."""
    return crc32(payload, _SEED ^ (size << 12) ^ slot_bytes)


class RecordFile:
    """Append-only file of checksummed records.

    Guarantees: `append` writes all records or none. `replace` is atomic and synced; on OSError the
    old file stays in use. `append` into reserved space needs no further disk space. After a write
    that could not be undone, the file is not `usable` until `replace` succeeds.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.fd = -1
        #: Offset of the next record. Only zeros follow, up to `_allocated`.
        self._end = 0
        self._allocated = 0
        #: A failed write could not be undone: the file has to be replaced.
        self._spoilt = False
        #: Whether records were lost other than by an interrupted write.
        self.damaged = False

    @property
    def usable(self) -> bool:
        """Whether records can be appended."""
        return self.fd >= 0 and not self._spoilt

    def load(self, data: bytes) -> list[Record]:
        """Open the file with these contents for appending; return its complete records."""
        records = list(records_in(data))
        end = records[-1].end if records else 0
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self.close()
        self.fd, self._end, self._allocated = fd, end, len(data)
        self._spoilt = False
        self.damaged = _lacks_records(records, data)
        if data[end:].strip(b"\0"):
            # The torn end of a write that was never confirmed.
            self._undo(len(data) - end)
        return records

    def room(self) -> int:
        """Return the number of bytes that can be appended without allocating space."""
        return self._allocated - self._end if self.usable else 0

    def reserve(self, size: int) -> None:
        """Allocate space for `size` bytes. Raises OSError."""
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
        """Write all records or none; return the end offset. Raises OSError."""
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
        """Write into the slot at that offset and of that size. Another process with the descriptor
        may call this. Raises OSError."""
        _write_all(self.fd, slot_text(payload, size), offset)

    def slot_at(self, offset: int, size: int) -> bytes:
        """Return the current content of that slot. Raises OSError."""
        return _slot(os.pread(self.fd, size, offset))

    def replace(self, records: bytes, reserve: int) -> None:
        """Replace the file's content by these records. Raises OSError, leaving everything
        unchanged."""
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
        # The new file is in place; after a crash, either of the two is valid.
        with contextlib.suppress(OSError):
            _sync_folder(self._path)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self.fd, self._allocated, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            # The file system cannot preallocate: writing zeros is sufficient if it overwrites in
            # place.
            _write_all(self.fd, bytes(size), self._allocated)
        self._allocated += size

    def _undo(self, size: int) -> None:
        """Overwrite `size` bytes after the last record with zeros."""
        try:
            _write_all(self.fd, bytes(size), self._end)
        except OSError:
            self._spoilt = True


def slot_text(payload: bytes, size: int) -> bytes:
    """Return the bytes to write into a slot of that size. Raises OSError if the payload does not
    fit."""
    if len(payload) + _SLOT_HEADER.size > size:
        raise OSError(errno.EMSGSIZE, f"no slot for {len(payload)} bytes")
    return _SLOT_HEADER.pack(len(payload), crc32(payload)) + payload


def _write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data`, repeating partial writes. Raises OSError."""
    done = os.pwrite(fd, data, offset)
    while done < len(data):
        count = os.pwrite(fd, data[done:], offset + done)
        if count == 0:
            raise OSError(errno.EIO, "a write of no bytes")
        done += count


def records_in(data: bytes) -> Iterator[Record]:
    """Yield the complete records of a file with these contents, in order."""
    offset = data.find(MAGIC)
    while offset >= 0:
        record = _record_at(data, offset)
        if record is not None:
            yield record
        offset = data.find(MAGIC, offset + 1 if record is None else record.end)


def _record_at(data: bytes, offset: int) -> Record | None:
    """Return the record at `offset`; None if it is incomplete."""
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
    """Return the payload of a slot; b"" if it is empty or damaged."""
    if len(text) < _SLOT_HEADER.size:
        return b""
    size, checksum = _SLOT_HEADER.unpack_from(text)
    payload = text[_SLOT_HEADER.size : _SLOT_HEADER.size + size]
    return payload if len(payload) == size and crc32(payload) == checksum else b""


def is_damaged(data: bytes) -> bool:
    """Return whether a file with these contents has lost records other than by an interrupted
    write."""
    return _lacks_records(list(records_in(data)), data)


def _lacks_records(records: list[Record], data: bytes) -> bool:
    """Return whether records are missing: there is a gap, or data without any record."""
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
