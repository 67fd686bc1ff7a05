"""Sorted set of names, optimized for many small updates and few full reads."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

#: Length at which a chunk is split in two.
_CHUNK = 512


class SortedNames:
    """Sorted names in chunks.

    Adding or removing a name moves its neighbours in one chunk only, so the time of an update does
    not depend on the number of names; in one sorted list an update would move half of all names.
    """

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Build the set. `names` may be in any order, without duplicates."""
        ordered = sorted(names)
        half = _CHUNK // 2
        #: No chunk is empty.
        self._chunks: list[list[str]] = [
            ordered[first : first + half] for first in range(0, len(ordered), half)
        ]
        #: First name of each chunk.
        self._firsts: list[str] = [chunk[0] for chunk in self._chunks]

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, name: str) -> None:
        """Add `name`, which must not be present."""
        if not self._chunks:
            self._chunks.append([name])
            self._firsts.append(name)
            return
        place = bisect_right(self._firsts, name) - 1
        if place < 0:
            place, self._firsts[0] = 0, name
        chunk = self._chunks[place]
        insort(chunk, name)
        if len(chunk) >= _CHUNK:
            half = len(chunk) // 2
            self._chunks[place : place + 1] = [chunk[:half], chunk[half:]]
            self._firsts.insert(place + 1, chunk[half])

    def remove(self, name: str) -> None:
        """Remove `name`, which must be present."""
        place = self._place(name)
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, name)]
        if chunk:
            self._firsts[place] = chunk[0]
        else:
            del self._chunks[place]
            del self._firsts[place]

    def after(self, name: str | None) -> Iterator[str]:
        """Yield the names after `name` in order; all names if None.

        The set must not change during iteration.
        """
        rest, place = self._rest(name)
        yield from rest
        for chunk in islice(self._chunks, place, None):
            yield from chunk

    def page(self, name: str | None, most: int | None) -> tuple[list[str], int]:
        """Return up to `most` names after `name`, and the number of names beyond them.

        `most` None means no limit. Takes time proportional to the returned names: the rest of a
        hundred thousand is not visited.
        """
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
        """Return the names after `name` in its own chunk, and the index of the next chunk."""
        if name is None or not self._chunks:
            return [], 0
        place = self._place(name)
        chunk = self._chunks[place]
        return chunk[bisect_right(chunk, name) :], place + 1

    def _place(self, name: str) -> int:
        """Return the index of the chunk that contains `name` or would contain it."""
        return max(bisect_right(self._firsts, name) - 1, 0)
