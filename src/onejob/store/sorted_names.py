"""A sorted set of names for many small changes and few reads of the whole."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

#: A chunk that has grown to this is cut in two.
_CHUNK = 512


class SortedNames:
    """Kept in chunks: adding or removing a name moves its neighbours in one chunk only, so it takes
    the same short time however many names there are; in one sorted list it would move half of all
    names."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names` are in any order, and none is there twice."""
        ordered = sorted(names)
        half = _CHUNK // 2
        #: None is empty.
        self._chunks: list[list[str]] = [
            ordered[first : first + half] for first in range(0, len(ordered), half)
        ]
        #: The first name of each chunk.
        self._firsts: list[str] = [chunk[0] for chunk in self._chunks]

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, name: str) -> None:
        """`name` must not be present."""
        if not self._chunks:
            self._chunks.append([name])
            self._firsts.append(name)
            return
        place = self._place(name)
        chunk = self._chunks[place]
        insort(chunk, name)
        self._firsts[place] = chunk[0]
        if len(chunk) >= _CHUNK:
            half = len(chunk) // 2
            self._chunks[place : place + 1] = [chunk[:half], chunk[half:]]
            self._firsts.insert(place + 1, chunk[half])

    def remove(self, name: str) -> None:
        """`name` must be present."""
        place = self._place(name)
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, name)]
        if chunk:
            self._firsts[place] = chunk[0]
        else:
            del self._chunks[place]
            del self._firsts[place]

    def after(self, name: str | None) -> Iterator[str]:
        """Those that follow `name`; None: all. Nothing may be added or removed meanwhile."""
        rest, place = self._rest(name)
        yield from rest
        for chunk in islice(self._chunks, place, None):
            yield from chunk

    def page(self, name: str | None, most: int | None) -> tuple[list[str], int]:
        """At most so many (None: all) of those that follow `name`, and how many others do. Takes as
        long as what it returns: the rest of a hundred thousand names is not looked at."""
        found, place = self._rest(name)
        while place < len(self._chunks) and (most is None or len(found) < most):
            found += self._chunks[place]
            place += 1
        others = sum(map(len, islice(self._chunks, place, None)))
        if most is not None and len(found) > most:
            others += len(found) - most
            del found[most:]
        return found, others

    def _rest(self, name: str | None) -> tuple[list[str], int]:
        """What follows `name` in its own chunk, and the place of the next one."""
        if name is None or not self._chunks:
            return [], 0
        place = self._place(name)
        chunk = self._chunks[place]
        return chunk[bisect_right(chunk, name) :], place + 1

    def _place(self, name: str) -> int:
        """Of the chunk that has the name, or would have it."""
        return max(bisect_right(self._firsts, name) - 1, 0)
