"""Salvage of readable log rows from a database with damaged pages, with a bound on the rest."""

from typing import Any, Final

import apsw
from msgspec import Struct, field

from onejob.objects.meta import Key
from onejob.store.checking.pages import (
    BRANCH,
    FREE,
    INTERIOR_INDEX,
    INTERIOR_TABLE,
    LEAF_INDEX,
    LEAF_TABLE,
    PageFile,
    Record,
    TreePage,
)
from onejob.store.checksums import is_intact
from onejob.store.database import PAGE_BYTES

#: Text columns as bytes: invalid UTF-8 must not abort the query.
_NAMES: Final = "CAST(resource AS BLOB), CAST(namespace AS BLOB), CAST(name AS BLOB)"
#: Number of columns of the log, without and with its checksum.
_COLUMNS: Final = (7, 8)
_TEXT_COLUMNS: Final = slice(2, 5)
#: A readable document has a name, a UID and a resourceVersion: no row with one is shorter.
_MIN_ROW_BYTES: Final = 64
_MAX_ROWS_PER_PAGE: Final = PAGE_BYTES // _MIN_ROW_BYTES
_INDEX: Final = (INTERIOR_INDEX, LEAF_INDEX)


class Row(Struct, frozen=True):
    revision: int
    previous: int
    key: Key
    #: None for a deletion, and for an unreadable document.
    value: bytes | None
    deleted: bool
    #: Whether the row is as written, as far as can be determined.
    intact: bool
    #: False if the page may be free, or a copy of a free one, with deleted rows.
    in_use: bool = True


class Salvaged(Struct):
    rows: dict[int, Row] = field(default_factory=dict)
    #: Revision -> the revision that it replaced, from the index; includes unreadable rows.
    replaced: dict[int, int] = field(default_factory=dict)
    #: False if entries of that index are unreadable.
    index_complete: bool = True
    #: Maximum number of rows with documents on the unreadable pages.
    unread_rows: int = 0


def read_log(connection: apsw.Connection) -> Salvaged:
    """Return all rows of a log whose pages are intact."""
    checked = "checksum" if has_checksums(connection) else "NULL"
    cursor: Any = connection.execute(
        f"SELECT revision, previous, {_NAMES}, value, {checked} FROM log ORDER BY revision"
    )
    return Salvaged({row[0]: _row(*row) for row in cursor})


def salvage_log(connection: apsw.Connection) -> Salvaged:
    """Return all rows on readable pages, reachable from a B-tree root or not.

    SQLite finds no row below a damaged interior page, in some cases without an error. Raises apsw's
    errors if the schema is unreadable.
    """
    roots: Any = connection.execute("SELECT name, rootpage FROM sqlite_schema").fetchall()
    return _Scan(PageFile(connection.serialize("main")), dict(roots)).found


class _Scan:
    """One pass over all pages."""

    def __init__(self, pages: PageFile, roots: dict[str, int]) -> None:
        self._pages = pages
        self._free = pages.free_pages()
        self._reachable = pages.below(roots["log"])
        #: Page -> kind of the readable page that refers to it.
        self._parents = {roots["log"]: INTERIOR_TABLE, roots["superseded"]: INTERIOR_INDEX}
        #: Overflow pages of intact rows.
        self._overflow: set[int] = set()
        self.found = Salvaged()
        unread = [number for number in pages.numbers() if not self._read(number)]
        branches = {
            entry[1]
            for number in pages.numbers()
            if (entry := pages.owner(number)) is not None and entry[0] == BRANCH
        }
        for number in unread:
            continues = number in self._overflow or pages.is_overflow(number)
            if not continues and number != roots["state"]:
                self._count_unread(number, has_branches=number in branches)

    def _read(self, number: int) -> bool:
        """Collect the log's content on a page; return whether all of it was readable."""
        if self._is_free(number):
            return True
        page = self._pages.decode(number)
        if page is None:
            return False
        is_new = self._parents.keys().isdisjoint(page.children)
        self._parents.update(dict.fromkeys(page.children, page.kind))
        if page.kind == LEAF_TABLE:
            rowids = self._reachable.get(number)
            in_place = rowids is None or all(record.rowid in rowids for record in page.records)
            in_use = in_place and self._is_in_use(number)
            is_new = self._take_rows(page, number, in_use=in_use) and in_place
        elif page.kind in _INDEX:
            is_new &= self._take_links(page)
        if not is_new:
            # A duplicate of another page, in the place of a lost one of unknown content.
            self.found.index_complete = False
            self.found.unread_rows += _MAX_ROWS_PER_PAGE
        return page.complete

    def _is_free(self, number: int) -> bool:
        """Return whether a page is certainly unused; rows on it may have been deleted."""
        if number in self._reachable:
            return False
        entry = self._pages.owner(number)
        listed = self._free is not None and number in self._free
        return listed if entry is None else entry[0] == FREE and (listed or self._free is None)

    def _is_in_use(self, number: int) -> bool:
        """Return whether a page is certainly in use."""
        if number in self._reachable:
            return True
        entry = self._pages.owner(number)
        listed = self._free is not None and number in self._free
        if entry is None:
            return self._free is not None and not listed
        return entry[0] != FREE and not listed

    def _take_rows(self, page: TreePage, number: int, *, in_use: bool) -> bool:
        """Collect rows; return whether none of them was on another page."""
        is_new = True
        rows = self.found.rows
        for record in page.records:
            row = _row_of(record, in_use=in_use)
            if row is None:
                # Page 1 holds the schema, and a record with one number is the state.
                page.complete &= number == 1 or len(record.values) == 1
                continue
            if row.intact:
                self._overflow.update(record.overflow)
            before = rows.get(row.revision)
            is_new &= before is None
            if before is None or (row.intact, row.in_use) > (before.intact, before.in_use):
                rows[row.revision] = row
        return is_new

    def _take_links(self, page: TreePage) -> bool:
        """Collect index entries; return whether none of them was on another page."""
        links = self.found.replaced
        is_new = True
        before = 0
        for record in page.records:
            match record.values:
                case (int(previous), int(revision)) if before < previous < revision:
                    is_new &= revision not in links
                    links[revision] = before = previous
                case _:
                    page.complete = False
        return is_new

    def _count_unread(self, number: int, *, has_branches: bool) -> None:
        """Account for the possible content of a page that was not read completely."""
        parent = self._parents.get(number)
        if parent != INTERIOR_TABLE:
            self.found.index_complete = False
        if parent != INTERIOR_INDEX and not has_branches:
            self.found.unread_rows += _MAX_ROWS_PER_PAGE


def _row_of(record: Record, *, in_use: bool) -> Row | None:
    """Return the row, or None if the record belongs to another table."""
    values = record.values
    if len(values) not in _COLUMNS or not all(record.is_text[_TEXT_COLUMNS]):
        return None
    _, previous, resource, namespace, name, _, value = values[:7]
    checksum = values[7] if len(values) > 7 else None
    row = _row(record.rowid, previous, resource, namespace, name, value, checksum, in_use=in_use)
    if record.complete:
        return row
    return Row(row.revision, row.previous, row.key, None, False, False, in_use)


def _row(
    revision: int,
    previous: object,
    resource: object,
    namespace: object,
    name: object,
    value: object,
    checksum: object,
    *,
    in_use: bool = True,
) -> Row:
    """Return a row of the log; values of the wrong type make it damaged."""
    key = Key(_text(resource), _text(namespace), _text(name))
    intact = is_intact(revision, key.resource, value, checksum)
    document = value if isinstance(value, bytes) else None
    before = previous if isinstance(previous, int) else 0
    return Row(revision, before, key, document, value is None, intact, in_use)


def has_checksums(connection: apsw.Connection) -> bool:
    rows: Any = connection.execute("PRAGMA table_info(log)").fetchall()
    return any(row[1] == "checksum" for row in rows)


def _text(value: object) -> str:
    """Return printable text for one line, whatever the input."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
