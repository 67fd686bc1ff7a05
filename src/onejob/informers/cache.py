"""What is known of a resource: typed views by key, with indexes. One writer, many readers."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from onejob.objects.meta import Key

V = TypeVar("V")

#: Of an index its name, and the value under which a view is filed there.
Place: TypeAlias = tuple[str, Hashable]
PlacesFunction = Callable[[V], Sequence[Place]]


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
    """Views by key. `places` says where each is filed in the indexes. `keep` leaves out what no
    reader will ever ask for again (for instance finished Pods that are counted), so that memory
    follows what is live, not what has been.
    """

    def __init__(
        self,
        *,
        keep: Callable[[V], bool] | None = None,
        places: PlacesFunction[V] | None = None,
    ) -> None:
        self._views: dict[Key, V] = {}
        self._keep = keep
        self._places = places
        self._filed: dict[Place, dict[Key, V]] = {}
        #: Everything up to this revision is reflected here, but for quiet changes.
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
        found = self._filed.get((index, value))
        return found.values() if found else ()

    def put(self, key: Key, view: V, document: bytes = b"") -> Delta[V]:
        old = self._views.get(key)
        if self._keep is None or self._keep(view):
            self._views[key] = view
            if self._places is not None:
                self._file(key, old, view, self._places)
        elif old is not None:
            self._take_out(key, old)
            del self._views[key]
        return Delta(key, old, view, document)

    def remove(self, key: Key, last: V | None = None, document: bytes = b"") -> Delta[V]:
        """Forget a deleted object; `last` is its final state, for those who never saw it."""
        old = self._views.pop(key, None)
        if old is not None:
            self._take_out(key, old)
        return Delta(key, last if last is not None else old, None, document)

    def _file(self, key: Key, old: V | None, new: V, places: PlacesFunction[V]) -> None:
        after = places(new)
        # Mostly a view moves nowhere, and then nothing needs to be taken out.
        if old is not None and places(old) != after:
            self._take_out(key, old)
        for place in after:
            filed = self._filed.get(place)
            if filed is None:
                filed = self._filed[place] = {}
            filed[key] = new

    def _take_out(self, key: Key, view: V) -> None:
        if self._places is None:
            return
        for place in self._places(view):
            filed = self._filed[place]
            filed.pop(key, None)
            if not filed:
                del self._filed[place]
