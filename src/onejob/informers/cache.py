"""Indexed object cache of one resource: typed views by key. One writer, many readers."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from onejob.objects.meta import Key

V = TypeVar("V")

#: Index name and the value under which the index contains a view.
IndexEntry: TypeAlias = tuple[str, Hashable]
IndexFunction = Callable[[V], Sequence[IndexEntry]]


class Delta(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """One change of a cache: `old` is None for an added object, `new` is None for a deleted one.

    `old` is also None if the cache did not keep the object's earlier state. `document` is the
    complete JSON of the object that `new` (for a deletion: `old`) is a view of, or b"" if
    unavailable.
    """

    key: Key
    old: V | None
    new: V | None
    document: bytes = b""


class Cache(Generic[V]):
    """Views by key, with secondary indexes.

    `index_entries` returns the index entries of a view. `keep` is a filter: views for which it
    returns False are reported in deltas but not stored (for instance counted, finished Pods), so
    that memory use depends on the live objects and not on all objects that ever existed.
    """

    def __init__(
        self,
        *,
        keep: Callable[[V], bool] | None = None,
        index_entries: IndexFunction[V] | None = None,
    ) -> None:
        self._views: dict[Key, V] = {}
        self._keep = keep
        self._index_entries = index_entries
        self._indexed: dict[IndexEntry, dict[Key, V]] = {}
        #: Revision up to which the cache contains all changes, except deferred ones.
        self.revision = 0
        #: Revision of the last complete list, which includes all changes up to it.
        self.listed_revision = 0

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[V]:
        return iter(self._views.values())

    def get(self, key: Key) -> V | None:
        return self._views.get(key)

    def keys(self) -> Iterable[Key]:
        return self._views.keys()

    def find(self, index: str, value: Hashable) -> Iterable[V]:
        """Return all views with this value in the named index; do not write while iterating."""
        found = self._indexed.get((index, value))
        return found.values() if found else ()

    def put(
        self, key: Key, view: V, document: bytes = b"", revision: int | None = None
    ) -> Delta[V]:
        """Add or update an object and return the change.

        `revision` is that of the watch event, or None if the object comes from a list.
        """
        # An older event would undo the state from the list, and revive objects deleted before it.
        assert revision is None or revision > self.listed_revision, f"stale event for {key}"
        old = self._views.get(key)
        if self._keep is None or self._keep(view):
            self._views[key] = view
            if self._index_entries is not None:
                self._add_to_indexes(key, old, view, self._index_entries)
        elif old is not None:
            self._remove_from_indexes(key, old)
            del self._views[key]
        return Delta(key, old, view, document)

    def remove(self, key: Key, last: V | None = None, document: bytes = b"") -> Delta[V]:
        """Remove a deleted object and return the change.

        `last` is the object's final state, which handlers receive as `old`; it defaults to the
        cached view.
        """
        old = self._views.pop(key, None)
        if old is not None:
            self._remove_from_indexes(key, old)
        return Delta(key, last if last is not None else old, None, document)

    def _add_to_indexes(
        self, key: Key, old: V | None, new: V, index_entries: IndexFunction[V]
    ) -> None:
        """Replace the index entries of an object."""
        after = index_entries(new)
        # Most updates leave the index entries unchanged, and nothing has to be removed.
        if old is not None and index_entries(old) != after:
            self._remove_from_indexes(key, old)
        for entry in after:
            if entry not in self._indexed:
                self._indexed[entry] = {}
            self._indexed[entry][key] = new

    def _remove_from_indexes(self, key: Key, view: V) -> None:
        if self._index_entries is None:
            return
        for entry in self._index_entries(view):
            entries = self._indexed[entry]
            entries.pop(key, None)
            if not entries:
                del self._indexed[entry]
