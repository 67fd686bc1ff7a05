"""Decoder for SQLite's file format, page by page, without relying on pointers between pages.

The layout is documented at sqlite.org/fileformat2.html. SQLite itself reads rows from the root of a
B-tree downwards: below a damaged interior page it finds nothing. Here each page is decoded by
itself.
"""

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from msgspec import Struct, field

INTERIOR_INDEX: Final = 2
INTERIOR_TABLE: Final = 5
LEAF_INDEX: Final = 10
LEAF_TABLE: Final = 13
_KINDS: Final = (INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE)
_INTERIOR: Final = (INTERIOR_INDEX, INTERIOR_TABLE)

#: Types of pointer map entries.
ROOT: Final = 1
FREE: Final = 2
_OVERFLOW: Final = (3, 4)
BRANCH: Final = 5

_FILE_HEADER_BYTES: Final = 100
_PAGE_HEADER: Final = struct.Struct(">BHHHB")
_FREE_BLOCK: Final = struct.Struct(">HH")
_MAP_ENTRY: Final = struct.Struct(">BI")
_PAGE_NUMBER: Final = struct.Struct(">I")
#: The page that contains this byte is never used: file locks are held on it.
_LOCK_BYTE: Final = 1 << 30
_MIN_CELL_BYTES: Final = 4
_MIN_ROWID: Final = -(1 << 63)
_MAX_ROWID: Final = (1 << 63) - 1
#: Sizes in bytes of the numeric serial types (integers and the float) of a record.
_NUMBER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_FLOAT: Final = 7

#: Text is returned as bytes too: it may not be valid UTF-8.
Value: TypeAlias = int | float | bytes | None


class Record(Struct, frozen=True):
    """A table row or an index entry."""

    #: 0 in an index.
    rowid: int
    values: tuple[Value, ...]
    #: Whether each value is text.
    is_text: tuple[bool, ...]
    #: False if a part of the record is missing because an overflow page is.
    complete: bool
    #: Overflow pages of the record.
    overflow: tuple[int, ...] = ()


class TreePage(Struct):
    kind: int
    records: list[Record] = field(default_factory=list)
    #: Child pages of an interior page, the rightmost one first.
    children: list[int] = field(default_factory=list)
    #: Last rowid below each child but the rightmost; interior table pages only.
    last_rowids: list[int] = field(default_factory=list)
    #: Whether each byte belongs to a decoded cell or to free space.
    complete: bool = True


class PageFile:
    """The pages of a database file, numbered from 1."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        size = int.from_bytes(data[16:18], "big")
        self._size = 65536 if size == 1 else size
        self._usable = self._size - data[20]
        self.count = len(data) // self._size
        self._has_map = int.from_bytes(data[52:56], "big") != 0
        self._map = self._read_map()

    def numbers(self) -> Iterator[int]:
        """Yield all pages that may hold rows, index entries or overflow."""
        lock_page = _LOCK_BYTE // self._size + 1
        for number in range(1, self.count + 1):
            if number != lock_page and not self._is_map(number):
                yield number

    def owner(self, number: int) -> tuple[int, int] | None:
        """Return type and parent of a page by the pointer map; None if its entry is unreadable."""
        return self._map.get(number)

    def is_overflow(self, number: int) -> bool:
        """Return whether the pointer map lists it as an overflow page."""
        entry = self._map.get(number)
        return entry is not None and entry[0] in _OVERFLOW

    def free_pages(self) -> set[int] | None:
        """Return the pages on the freelist; None if the list cannot be followed to its end."""
        trunk, expected = struct.unpack_from(">II", self._data, 32)
        found: set[int] = set()
        while trunk:
            if not self._exists(trunk) or trunk in found:
                return None
            found.add(trunk)
            page = self._page(trunk)
            following, count = struct.unpack_from(">II", page)
            if 4 * count + 8 > self._usable:
                return None
            leaves = struct.unpack_from(f">{count}I", page, 8)
            if not all(map(self._exists, leaves)) or not found.isdisjoint(leaves):
                return None
            found.update(leaves)
            trunk = following
        return found if len(found) == expected else None

    def below(self, root: int) -> dict[int, range]:
        """Return the pages reachable from a table's root, with the possible rowids of each."""
        reached: dict[int, range] = {}
        following = [(root, range(_MIN_ROWID, _MAX_ROWID + 1))]
        while following:
            number, rowids = following.pop()
            if not self._exists(number) or number in reached:
                continue
            reached[number] = rowids
            page = self.decode(number)
            if page is None or page.kind != INTERIOR_TABLE:
                continue
            rightmost, *others = page.children
            first = rowids.start
            for child, last in zip(others, page.last_rowids, strict=True):
                following.append((child, range(first, last + 1)))
                first = last + 1
            following.append((rightmost, range(first, rowids.stop)))
        return reached

    def decode(self, number: int) -> TreePage | None:
        """Return the decoded cells of a page.

        Returns None if it is not a B-tree page, or too damaged to have any cells.
        """
        page = self._page(number)
        start = _FILE_HEADER_BYTES if number == 1 else 0
        kind, free_block, count, content, fragments = _PAGE_HEADER.unpack_from(page, start)
        header_end = start + (12 if kind in _INTERIOR else 8)
        cells_start = header_end + 2 * count
        if kind not in _KINDS or cells_start > self._usable:
            return None
        found = TreePage(kind)
        if kind in _INTERIOR:
            found.children += _PAGE_NUMBER.unpack_from(page, header_end - 4)
        known = max(cells_start, content or 65536) + fragments
        for at in struct.unpack_from(f">{count}H", page, header_end):
            try:
                known += self._cell(page, at, found)
            except (IndexError, struct.error):
                found.complete = False
        free_bytes = self._free_bytes(page, free_block)
        found.complete &= known + free_bytes == self._usable
        return found

    def _free_bytes(self, page: bytes, block: int) -> int:
        """Return the size of the free blocks between cells, which are in ascending order."""
        total = 0
        last = 0
        while last < block <= self._usable - _FREE_BLOCK.size:
            last = block
            block, size = _FREE_BLOCK.unpack_from(page, block)
            total += size
        return total

    def _cell(self, page: bytes, at: int, found: TreePage) -> int:
        """Decode one cell into `found`, and return its size on this page in bytes."""
        start = at
        if found.kind in _INTERIOR:
            (child,) = _PAGE_NUMBER.unpack_from(page, at)
            at += 4
            if found.kind == INTERIOR_TABLE:
                rowid, at = _varint(page, at)
                found.last_rowids.append(_to_signed(rowid))
            found.children.append(child)
        if found.kind == INTERIOR_TABLE:
            return max(at - start, _MIN_CELL_BYTES)
        size, at = _varint(page, at)
        rowid = 0
        if found.kind == LEAF_TABLE:
            rowid, at = _varint(page, at)
        local = self._local_bytes(size, found.kind)
        end = at + local + (4 if local < size else 0)
        if end > self._usable:
            raise IndexError(end)
        payload = page[at : at + local]
        chain: dict[int, bytes] = {}
        if local < size:
            (first,) = _PAGE_NUMBER.unpack_from(page, at + local)
            chain = self._continued(first, size - local)
        payload = b"".join((payload, *chain.values()))
        found.records.append(_record(_to_signed(rowid), payload, size, tuple(chain)))
        return max(end - start, _MIN_CELL_BYTES)

    def _local_bytes(self, size: int, kind: int) -> int:
        """Return the number of bytes of a record that are stored on the page itself."""
        usable = self._usable
        most = usable - 35 if kind == LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        return local if local <= most else least

    def _continued(self, number: int, size: int) -> dict[int, bytes]:
        """Return the overflow pages of a record, as far as they exist, and their parts of it."""
        chain: dict[int, bytes] = {}
        while size > 0 and self._exists(number) and number not in chain:
            page = self._page(number)
            chain[number] = page[4 : 4 + size]
            size -= len(chain[number])
            (number,) = _PAGE_NUMBER.unpack_from(page)
        return chain

    def _page(self, number: int) -> bytes:
        """Return the usable bytes of a page."""
        start = (number - 1) * self._size
        return self._data[start : start + self._usable]

    def _exists(self, number: int) -> bool:
        """Return whether the file has the page."""
        return 0 < number <= self.count

    def _read_map(self) -> dict[int, tuple[int, int]]:
        """Return all entries of the pointer map pages that contain only valid entries."""
        found: dict[int, tuple[int, int]] = {}
        for number in range(2, self.count + 1) if self._has_map else ():
            if self._is_map(number):
                page = self._page(number)
                last = min(self.count, number + self._usable // _MAP_ENTRY.size)
                entries = {
                    described: _MAP_ENTRY.unpack_from(page, (described - number - 1) * 5)
                    for described in range(number + 1, last + 1)
                    if described != _LOCK_BYTE // self._size + 1
                }
                if all(self._is_possible(*entry) for entry in entries.values()):
                    found.update(entries)
        return found

    def _is_possible(self, kind: int, parent: int) -> bool:
        if kind in (ROOT, FREE):
            return parent == 0
        return (kind in _OVERFLOW or kind == BRANCH) and self._exists(parent)

    def _is_map(self, number: int) -> bool:
        if not self._has_map or number < 2:
            return False
        described = self._usable // _MAP_ENTRY.size + 1
        first = (number - 2) // described * described + 2
        if first == _LOCK_BYTE // self._size + 1:
            first += 1
        return number == first


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer and its end offset."""
    number = 0
    for offset in range(8):
        byte = page[at + offset]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + offset + 1
    return number << 8 | page[at + 8], at + 9


def _to_signed(number: int) -> int:
    return number - (number >> 63 << 64)


def _record(rowid: int, payload: bytes, size: int, overflow: tuple[int, ...]) -> Record:
    """Return the record in a cell's payload."""
    end, at = _varint(payload, 0)
    values: list[Value] = []
    is_text: list[bool] = []
    value_at = end
    while at < end:
        kind, at = _varint(payload, at)
        length = (kind - 12) // 2 if kind >= 12 else _NUMBER_BYTES[kind]
        values.append(_value(kind, payload[value_at : value_at + length]))
        value_at += length
        is_text.append(kind >= 12 and kind % 2 == 1)
    complete = len(payload) == size == value_at
    return Record(rowid, tuple(values), tuple(is_text), complete, overflow)


def _value(kind: int, data: bytes) -> Value:
    """Return a value of the record format."""
    if kind >= 12:
        return data
    if kind == 0:
        return None
    if kind == _FLOAT:
        return float(struct.unpack(">d", data)[0]) if len(data) == 8 else None
    return kind - 8 if kind in (8, 9) else int.from_bytes(data, "big", signed=True)
