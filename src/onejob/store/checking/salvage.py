"""Reads a log in spite of damaged pages: all rows that can still be had, and which cannot."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, TypeAlias

import apsw
from msgspec import Struct, field

from onejob.objects.meta import Key
from onejob.store.checksums import is_intact

#: Text columns as bytes: what is no UTF-8 must not end the reading.
_NAMES = "CAST(resource AS BLOB), CAST(namespace AS BLOB), CAST(name AS BLOB)"
_Interval: TypeAlias = tuple[int, int]
#: Reads that fail, before what is left is given up: where a page of the tree itself is damaged,
#: all that is below it fails, one by one.
_MOST_FAILURES = 5_000
#: What SQLite answers where a page is not what it should be.
_DAMAGE = (apsw.CorruptError, apsw.IOError, apsw.SQLError)


class Row(Struct, frozen=True):
    revision: int
    previous: int
    key: Key
    #: None for a deletion, and for a document that cannot be had.
    value: bytes | None
    deleted: bool
    #: Whether it is what was written, as far as can be told.
    intact: bool


class Salvaged(Struct):
    rows: dict[int, Row] = field(default_factory=dict)
    #: Intervals of revisions that are on pages that cannot be read, if they were ever used.
    lost: list[_Interval] = field(default_factory=list)
    #: Revision of a missing row -> the one that it replaced; None if the index cannot be read.
    replaced: dict[int, int] | None = field(default_factory=dict)


def salvage(connection: apsw.Connection, newest: int) -> Salvaged:
    """`newest` is the highest revision there may be."""
    found = Salvaged()
    checked = "checksum" if has_checksums(connection) else "NULL"
    # The largest first: what is readable is found early, however much is not.
    open_intervals = [(-newest, 0, newest)]
    lost: list[_Interval] = []
    failures = 0
    while open_intervals:
        _, low, high = heappop(open_intervals)
        reached = low - 1
        try:
            for row in _read(connection, checked, low, high):
                before = found.rows.get(row.revision)
                if reached < row.revision <= high:
                    reached = row.revision
                elif before is not None:
                    # A page that belongs elsewhere. What is on it counts, but only once: from
                    # such pages one could go on for ever.
                    raise apsw.CorruptError(f"revision {row.revision} comes once more")
                if before is None or not before.intact:
                    found.rows[row.revision] = row
            continue
        except _DAMAGE:
            low = reached + 1
            failures += 1
        if low < high and failures <= _MOST_FAILURES:
            # The rows behind a damaged page are found from above.
            middle = (low + high) // 2
            heappush(open_intervals, (low - middle, low, middle))
            heappush(open_intervals, (middle + 1 - high, middle + 1, high))
        elif low < high or not _name(connection, found, low):
            lost.append((low, high))
    found.lost = _merged(lost)
    found.replaced = _from_index(connection, found)
    return found


def _read(connection: apsw.Connection, checked: str, low: int, high: int) -> Iterator[Row]:
    cursor: Any = connection.execute(
        f"SELECT revision, previous, {_NAMES}, value, {checked} FROM log"
        " WHERE revision BETWEEN ? AND ? ORDER BY revision",
        (low, high),
    )
    for revision, previous, resource, namespace, name, value, checksum in cursor:
        key = Key(_text(resource), _text(namespace), _text(name))
        intact = is_intact(revision, key.resource, value, checksum)
        document = value if isinstance(value, bytes) else None
        before = previous if isinstance(previous, int) else 0
        yield Row(revision, before, key, document, value is None, intact)


def _name(connection: apsw.Connection, found: Salvaged, revision: int) -> bool:
    """Its document may be on a page of its own: then at least the object is known."""
    try:
        rows: Any = connection.execute(
            f"SELECT previous, {_NAMES} FROM log WHERE revision = ?", (revision,)
        ).fetchall()
    except _DAMAGE:
        return False
    for previous, *names in rows:
        key = Key(*map(_text, names))
        before = previous if isinstance(previous, int) else 0
        found.rows[revision] = Row(revision, before, key, None, False, False)
    return True


def _merged(intervals: list[_Interval]) -> list[_Interval]:
    merged: list[_Interval] = []
    for low, high in sorted(intervals):
        if merged and merged[-1][1] == low - 1:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


def _from_index(connection: apsw.Connection, found: Salvaged) -> dict[int, int] | None:
    try:
        rows: Any = connection.execute(
            "SELECT revision, previous FROM log INDEXED BY superseded WHERE previous IS NOT NULL"
        ).fetchall()
    except _DAMAGE:
        return None
    return {revision: previous for revision, previous in rows if revision not in found.rows}


def has_checksums(connection: apsw.Connection) -> bool:
    rows: Any = connection.execute("PRAGMA table_info(log)").fetchall()
    return any(row[1] == "checksum" for row in rows)


def _text(value: object) -> str:
    """Fit for one line, whatever it was."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
