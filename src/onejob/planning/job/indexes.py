"""Sets of completion indexes, written as `0,2-4,9` in a Job's status.

There are two parsers on purpose: the controller's is lenient, because it must cope with any stored
status; the validator's is strict and reports the reason for a rejection.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache


class IndexSet:
    """Immutable set of non-negative ints, stored as disjoint, non-adjacent intervals.

    Costs depend on the number of intervals, not of indexes: a Job of 10^5 completions that is half
    done has about as many intervals as running Pods.
    """

    __slots__ = ("_firsts", "_lasts", "_total")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        firsts: list[int] = []
        lasts: list[int] = []
        for first, last in sorted(intervals):
            if lasts and first <= lasts[-1] + 1:
                lasts[-1] = max(lasts[-1], last)
            else:
                firsts.append(first)
                lasts.append(last)
        self._firsts = firsts
        self._lasts = lasts
        self._total = sum(lasts) - sum(firsts) + len(firsts)

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """Return first and last index of each interval."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        return self._total

    def __contains__(self, index: int) -> bool:
        position = bisect_right(self._firsts, index) - 1
        return position >= 0 and index <= self._lasts[position]

    def __iter__(self) -> Iterator[int]:
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    def __hash__(self) -> int:
        return hash((tuple(self._firsts), tuple(self._lasts)))

    def __repr__(self) -> str:
        return f"IndexSet({str(self)!r})"

    def __str__(self) -> str:
        """Return upstream's notation: a run of three or more is `a-b`, a run of two is `a,b`."""
        return ",".join(
            str(first)
            if first == last
            else f"{first},{last}"
            if last == first + 1
            else f"{first}-{last}"
            for first, last in zip(self._firsts, self._lasts, strict=True)
        )

    def with_indexes(self, indexes: Iterable[int]) -> "IndexSet":
        """Return the union with `indexes`. Costs a flat copy and one bisection per new index."""
        new = [index for index in indexes if index not in self]
        if not new:
            return self
        result = IndexSet()
        result._firsts = self._firsts.copy()
        result._lasts = self._lasts.copy()
        result._total = self._total
        for index in new:
            result._insert(index)
        return result

    def _insert(self, index: int) -> None:
        """Add an index; one that is contained is ignored."""
        position = bisect_right(self._firsts, index)
        if position and index <= self._lasts[position - 1]:
            return
        self._total += 1
        joins_left = position > 0 and self._lasts[position - 1] == index - 1
        joins_right = position < len(self._firsts) and self._firsts[position] == index + 1
        if joins_left and joins_right:
            self._lasts[position - 1] = self._lasts[position]
            del self._firsts[position], self._lasts[position]
        elif joins_left:
            self._lasts[position - 1] = index
        elif joins_right:
            self._firsts[position] = index
        else:
            self._firsts.insert(position, index)
            self._lasts.insert(position, index)

    def without(self, other: "IndexSet") -> "IndexSet":
        """Return the difference.

        Linear in the intervals of both; returns `self` if they are disjoint.
        """
        shared = list(self._intersections(other))
        if not shared:
            return self
        left: list[tuple[int, int]] = []
        position = 0
        for first, last in self.intervals:
            while position < len(shared) and shared[position][0] <= last:
                taken, end = shared[position]
                left.append((first, taken - 1))
                first = end + 1
                position += 1
            left.append((first, last))
        return IndexSet(interval for interval in left if interval[0] <= interval[1])

    def common_with(self, other: "IndexSet") -> int:
        """Return the size of the intersection."""
        return sum(last - first + 1 for first, last in self._intersections(other))

    def first_common(self, other: "IndexSet") -> int | None:
        """Return the smallest index of both sets; None if there is none."""
        for first, _ in self._intersections(other):
            return first
        return None

    def _intersections(self, other: "IndexSet") -> Iterator[tuple[int, int]]:
        """Yield the intervals that both sets contain."""
        mine = theirs = 0
        while mine < len(self._firsts) and theirs < len(other._firsts):
            first = max(self._firsts[mine], other._firsts[theirs])
            last = min(self._lasts[mine], other._lasts[theirs])
            if first <= last:
                yield first, last
            if self._lasts[mine] < other._lasts[theirs]:
                mine += 1
            else:
                theirs += 1

    def gaps(self, end: int) -> Iterator[range]:
        """Yield the indexes below `end` that are not in the set, in ascending runs."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            if first >= end:
                break
            if start < first:
                yield range(start, first)
            start = last + 1
        if start < end:
            yield range(start, end)


NO_INDEXES = IndexSet()

_MAX_INT64_DIGITS = 19


def read_index(text: str | None) -> int | None:
    """Parse a completion index annotated on a Pod; None if it is absent or invalid.

    `int()` is too lenient: it accepts spaces, signs, underscores and non-ASCII digits.
    """
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _MAX_INT64_DIGITS:
        return None
    return int(text)


@lru_cache(maxsize=256)
def parse_indexes(text: str, completions: int) -> IndexSet:
    """Parse a stored index list, skipping malformed pieces and indexes beyond `completions`."""
    intervals: list[tuple[int, int]] = []
    for piece in text.split(","):
        first_text, dash, last_text = piece.partition("-")
        first = read_index(first_text)
        last = read_index(last_text) if dash else first
        if first is None or last is None:
            continue
        if first >= completions:
            # The pieces ascend, so nothing that follows can be in range.
            break
        if first <= last:
            intervals.append((first, min(last, completions - 1)))
    return IndexSet(intervals)


class IndexFormatError(ValueError):
    """Index list that violates the API's format."""


def validate_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in the list.

    Raises:
        IndexFormatError: unless the list is strictly increasing, free of spaces, and below
            `completions`.
    """
    if text == "":
        return 0
    total = 0
    previous: int | None = None
    for piece in text.split(","):
        first, last = _strict_interval(piece, completions)
        if previous is not None:
            _check_order(previous, first)
        total += last - first + 1
        previous = last
    return total


def _strict_interval(piece: str, completions: int) -> tuple[int, int]:
    """Return first and last index of a piece. Raises IndexFormatError."""
    parts = piece.split("-")
    if len(parts) > 2:
        raise IndexFormatError(
            f'the fragment "{piece}" violates the requirement that an index interval'
            " can have at most two parts separated by '-'"
        )
    first = _strict_index(parts[0], completions)
    if len(parts) == 1:
        return first, first
    last = _strict_index(parts[1], completions)
    _check_order(first, last)
    return first, last


def _strict_index(text: str, completions: int) -> int:
    """Return an index below `completions`. Raises IndexFormatError."""
    index = read_index(text)
    if index is None:
        raise IndexFormatError(f'cannot convert string to integer for index: "{text}"')
    if index >= completions:
        raise IndexFormatError(f'too large index: "{text}"')
    return index


def _check_order(previous: int, index: int) -> None:
    if index <= previous:
        raise IndexFormatError(f"non-increasing order, previous: {previous}, current: {index}")


def check_no_overlap(completed: str, failed: str, completions: int) -> None:
    """Raise `IndexFormatError` if an index is both completed and failed.

    Malformed pieces of either list are skipped; they are reported by `validate_indexes`.
    """
    common = _parse(completed, completions).first_common(_parse(failed, completions))
    if common is not None:
        raise IndexFormatError(f"failedIndexes and completedIndexes overlap at index: {common}")


def _parse(text: str, completions: int) -> IndexSet:
    """Return the indexes in a text; malformed pieces are skipped."""
    intervals: list[tuple[int, int]] = []
    for piece in text.split(","):
        try:
            intervals.append(_strict_interval(piece, completions))
        except IndexFormatError:
            continue
    return IndexSet(intervals)


def first_pending(
    count: int, completions: int, done: IndexSet, taken: Callable[[int], bool]
) -> list[int]:
    """Return the lowest `count` indexes that are neither `done` nor `taken`, ascending."""
    pending: list[int] = []
    if count <= 0:
        return pending
    for gap in done.gaps(completions):
        for index in gap:
            if not taken(index):
                pending.append(index)
                if len(pending) == count:
                    return pending
    return pending
