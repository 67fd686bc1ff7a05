"""What is known of a resource: typed views by key, with indexes. One writer, many readers."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from onejob.objects.meta import Key

V = TypeVar("V")

IndexFunction = Callable[[V], Iterable[Hashable]]


class Delta(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """One difference between two states of a cache; `old` or `new` is None at its ends.

    `old` may also be None for an object that the cache does not keep. `document` is the whole
    object that `new` (of a deletion: `old`) is a view of, where it is known.
    """

    key: Key
    old: V | None
    new: V | None
    document: bytes = b""


class Cache(Generic[V]):
    """Views by key. `keep` leaves out what no reader will ever ask for again (for instance
    finished Pods that are counted), so that memory follows what is live, not what has been.
    """

    def __init__(
        self,
        *,
        keep: Callable[[V], bool] | None = None,
        indexes: Mapping[str, IndexFunction[V]] | None = None,
    ) -> None:
        self._views: dict[Key, V] = {}
        self._keep = keep
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[Key, V]]] = {
            name: {} for name in self._index_functions
        }
        #: Everything up to this revision is reflected here.
        self.revision = 0

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[V]:
        return iter(self._views.values())

    def get(self, key: Key) -> V | None:
        return self._views.get(key)

    def keys(self) -> Iterable[Key]:
        return self._views.keys()

    def find(self, index: str, value: Hashable) -> Iterable[V]:
        """All views that the named index files under `value`; do not write while iterating."""
        found = self._indexes[index].get(value)
        return found.values() if found else ()

    def put(self, key: Key, view: V, document: bytes = b"") -> Delta[V]:
        old = self._views.get(key)
        if self._keep is None or self._keep(view):
            self._views[key] = view
            self._file(key, old, view)
        elif old is not None:
            self._unfile(key, old)
            del self._views[key]
        return Delta(key, old, view, document)

    def remove(self, key: Key, last: V | None = None, document: bytes = b"") -> Delta[V]:
        """Forget a deleted object; `last` is its final state, for those who never saw it."""
        old = self._views.pop(key, None)
        if old is not None:
            self._unfile(key, old)
        return Delta(key, last if last is not None else old, None, document)

    def _file(self, key: Key, old: V | None, new: V) -> None:
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            before = tuple(function(old)) if old is not None else ()
            after = tuple(function(new))
            for value in after:
                index.setdefault(value, {})[key] = new
            # Mostly a view moves nowhere, and then nothing needs to be taken out.
            if before and before != after:
                self._take_out(index, key, [value for value in before if value not in after])

    def _unfile(self, key: Key, view: V) -> None:
        for name, function in self._index_functions.items():
            self._take_out(self._indexes[name], key, function(view))

    @staticmethod
    def _take_out(
        index: dict[Hashable, dict[Key, V]], key: Key, values: Iterable[Hashable]
    ) -> None:
        for value in values:
            filed = index.get(value)
            if filed is not None:
                filed.pop(key, None)
                if not filed:
                    del index[value]
