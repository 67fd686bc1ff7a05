"""Which part of the history may be compacted. Pure: changes and the time are passed in."""

from collections import deque

from msgspec import Struct

from onejob.store.limits import Limits

#: How finely age and size are known. Coarser marks cost less and compact a little later.
MARK_SECONDS = 1.0
MARKS_PER_LIMIT = 32


class _Mark(Struct):
    """A stretch of history: its last revision and how many versions in it are superseded."""

    begun_at: float
    at: float
    revision: int
    dead: int
    dead_bytes: int


class History:
    """Only versions that are no longer current count; live objects are never history."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._marks: deque[_Mark] = deque()
        self._dead = 0
        self._dead_bytes = 0

    def record(self, revision: int, dead: int, dead_bytes: int, now: float) -> None:
        """`dead` versions were superseded or deleted by the changes up to `revision`."""
        self._dead += dead
        self._dead_bytes += dead_bytes
        mark = self._marks[-1] if self._marks else None
        if mark is None or self._is_full(mark, now):
            self._marks.append(_Mark(now, now, revision, dead, dead_bytes))
            return
        mark.at, mark.revision = now, revision
        mark.dead += dead
        mark.dead_bytes += dead_bytes

    def forget(self, now: float, room: int) -> int:
        """Drop what is too old or too much, or more than fits into `room` bytes; returns the
        revision up to which history may be compacted, 0 for none."""
        target = 0
        while self._marks and (self._is_over(self._marks[0], now) or self._dead_bytes > room):
            mark = self._marks.popleft()
            self._dead -= mark.dead
            self._dead_bytes -= mark.dead_bytes
            target = mark.revision
        return target

    def next_forgetting_at(self) -> float | None:
        """When the oldest part is old enough to be compacted; None if there is no history."""
        return self._marks[0].at + self._limits.history_seconds if self._marks else None

    def _is_full(self, mark: _Mark, now: float) -> bool:
        limits = self._limits
        return (
            now - mark.begun_at >= MARK_SECONDS
            or mark.dead * MARKS_PER_LIMIT >= limits.history_changes
            or mark.dead_bytes * MARKS_PER_LIMIT >= limits.history_bytes
        )

    def _is_over(self, oldest: _Mark, now: float) -> bool:
        limits = self._limits
        return (
            now >= oldest.at + limits.history_seconds
            or self._dead > limits.history_changes
            or self._dead_bytes > limits.history_bytes
        )
