"""Compaction policy: which part of the history to remove, and commit times of revisions.

Pure: changes and the current time are passed in.
"""

from bisect import bisect_left
from collections import deque
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from onejob.store.limits import Limits

#: Granularity at which age and size are tracked. Coarser marks cost less and compact a little
#: later.
MARK_SECONDS = 1.0
MARKS_PER_LIMIT = 32
#: Maximum number of recorded commit times, one per second with commits.
_MAX_COMMIT_TIMES: Final = 100_000
_SECOND: Final = timedelta(seconds=1)


class _Mark(Struct):
    """A span of history: its last revision and its number of superseded versions."""

    begun_at: float
    at: float
    revision: int
    dead: int
    dead_bytes: int


class History:
    """Age and size of the superseded versions.

    Only versions that are no longer current count: live objects are never history.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._marks: deque[_Mark] = deque()
        self._dead = 0
        self._dead_bytes = 0

    def record(self, revision: int, dead: int, dead_bytes: int, now: float) -> None:
        """Record that the changes up to `revision` superseded or deleted `dead` versions."""
        self._dead += dead
        self._dead_bytes += dead_bytes
        mark = self._marks[-1] if self._marks else None
        limits = self._limits
        if (
            mark is None
            or now - mark.begun_at >= MARK_SECONDS
            or mark.dead * MARKS_PER_LIMIT >= limits.history_changes
            or mark.dead_bytes * MARKS_PER_LIMIT >= limits.history_bytes
        ):
            self._marks.append(_Mark(now, now, revision, dead, dead_bytes))
            return
        mark.at, mark.revision = now, revision
        mark.dead += dead
        mark.dead_bytes += dead_bytes

    def forget(self, now: float, room: int) -> int:
        """Drop history that exceeds an age or size limit, or `room` bytes.

        Returns the revision up to which history may be compacted, 0 for none.
        """
        target = 0
        while self._marks and (self._is_over(self._marks[0], now) or self._dead_bytes > room):
            mark = self._marks.popleft()
            self._dead -= mark.dead
            self._dead_bytes -= mark.dead_bytes
            target = mark.revision
        return target

    def next_forgetting_at(self) -> float | None:
        """Return when the oldest span reaches its maximum age; None if there is no history."""
        return self._marks[0].at + self._limits.history_seconds if self._marks else None

    def _is_over(self, oldest: _Mark, now: float) -> bool:
        limits = self._limits
        return (
            now >= oldest.at + limits.history_seconds
            or self._dead > limits.history_changes
            or self._dead_bytes > limits.history_bytes
        )


class CommitTimes:
    """Commit times of revisions, to the second, since this process opened the store.

    Holds one entry for each second that had a commit.
    """

    def __init__(self, revision: int) -> None:
        """Start without commit times for revisions up to `revision`."""
        self._first = revision
        self._revisions: list[int] = []
        self._times: list[datetime] = []

    def committed(self, revision: int, now: datetime) -> None:
        """Record that all revisions up to `revision` reached the disk at `now`."""
        if self._times and timedelta() <= now - self._times[-1] < _SECOND:
            self._revisions[-1] = revision
            return
        self._revisions.append(revision)
        self._times.append(now)
        if len(self._times) > _MAX_COMMIT_TIMES:
            half = _MAX_COMMIT_TIMES // 2
            self._first = self._revisions[half - 1]
            del self._revisions[:half]
            del self._times[:half]

    def at(self, revision: int) -> datetime | None:
        """Return the time of the commit that contains the revision; None if it is too old."""
        if revision <= self._first:
            return None
        place = bisect_left(self._revisions, revision)
        return self._times[place] if place < len(self._times) else None
