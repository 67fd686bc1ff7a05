"""Queue of running and waiting Jobs, and selection of the next ones to start.

Jobs subject to the same limits wait in one lane. Only the first Job of each lane can be the next to
start, so a decision examines one Job per lane, regardless of the number of waiting Jobs.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from onejob.planning.queue.limits import Limits

Scopes: TypeAlias = tuple[str, ...]


class Rank(NamedTuple):
    """Sort key of a waiting Job; smaller starts earlier."""

    #: Negated priority, so that the highest sorts first.
    lowered_by_priority: int
    #: Time of entering the queue, as a revision of the store.
    entered: int

    @property
    def priority(self) -> int:
        """Priority of the Job."""
        return -self.lowered_by_priority


def rank(priority: int, entered: int) -> Rank:
    """Return the rank: higher priorities first, then earlier entry."""
    return Rank(-priority, entered)


class _Waiting(NamedTuple):
    rank: Rank
    scopes: Scopes


class JobQueue:
    """Queue of Jobs by UID.

    Create a new one when the limits change, because a Job's scopes are the ones with a limit.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits.by_scope
        self._running: dict[str, Scopes] = {}
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, _Waiting] = {}
        #: Heaps. Entries of Jobs that have left, or whose rank has changed, stay in their heap
        #: until they reach its top.
        self._lanes: dict[Scopes, list[tuple[Rank, str]]] = {}

    def runs(self, uid: str) -> bool:
        """Return whether the Job occupies a place."""
        return uid in self._running

    def waits(self, uid: str) -> bool:
        """Return whether the Job waits for a place."""
        return uid in self._waiting

    def rank_of(self, uid: str) -> Rank:
        """Return the rank of a waiting Job. Raises KeyError if it is not waiting."""
        return self._waiting[uid].rank

    def put_running(self, uid: str, scopes: Scopes) -> None:
        """Record a running Job, even if it exceeds a limit."""
        if self._running.get(uid) == scopes:
            return
        self.drop(uid)
        self._running[uid] = scopes
        self._taken.update(scopes)

    def put_waiting(self, uid: str, rank: Rank, scopes: Scopes) -> None:
        if self._waiting.get(uid) == (rank, scopes):
            return
        self.drop(uid)
        self._waiting[uid] = _Waiting(rank, scopes)
        heappush(self._lanes.setdefault(scopes, []), (rank, uid))

    def drop(self, uid: str) -> None:
        """Remove a Job and free its places; an unknown one is ignored."""
        self._waiting.pop(uid, None)
        self._taken.subtract(self._running.pop(uid, ()))

    def start(self) -> Sequence[str]:
        """Start all Jobs that may start and return them, in order.

        They count as running from now on.
        """
        started: list[str] = []
        while (uid := self._next()) is not None:
            self.put_running(uid, self._waiting[uid].scopes)
            started.append(uid)
        return started

    def full_scope(self, uid: str) -> str:
        """Return one of the limits that block a waiting Job; empty if none does."""
        for scope in self._waiting[uid].scopes:
            if self._taken[scope] >= self._limits[scope]:
                return scope
        return ""

    def taken(self, scope: str) -> int:
        """Return the number of running Jobs in a scope."""
        return self._taken[scope]

    def _next(self) -> str | None:
        """Return the UID of the next Job that may start; None if there is none."""
        heads = [
            head
            for scopes in list(self._lanes)
            if all(self._taken[scope] < self._limits[scope] for scope in scopes)
            and (head := self._head(scopes)) is not None
        ]
        return min(heads)[1] if heads else None

    def _head(self, scopes: Scopes) -> tuple[Rank, str] | None:
        """Return the first waiting Job of a lane; None, and forget the lane, if there is none."""
        lane = self._lanes[scopes]
        while lane:
            if self._waiting.get(lane[0][1]) == (lane[0][0], scopes):
                return lane[0]
            heappop(lane)
        del self._lanes[scopes]
        return None
