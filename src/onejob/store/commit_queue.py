"""Group commit: staged changes are committed to disk in groups, one transaction each.

All changes staged while a commit is in progress go into the next group, so a commit costs one sync
regardless of the number of waiting writers.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from onejob.store.base import Change, CommitFailed, StoreError, StoreFailed
from onejob.store.fanout import weight
from onejob.store.limits import Limits
from onejob.store.upkeep import Maintenance
from onejob.store.writer import Committer, Writer

if TYPE_CHECKING:
    from onejob.objects.meta import Key

#: Event loop iterations from a write to its commit: the distance from waking a watcher to the next
#: write of its reader. Halves the number of commits of Jobs with little parallelism.
_GATHERING_TURNS = 3


class CommitGroup:
    """Changes that share one commit, and the callers waiting for it."""

    __slots__ = ("changes", "size", "waiters")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.size = 0
        self.waiters: list[asyncio.Future[None]] = []

    def settle(self, error: StoreError | None) -> None:
        """Complete all waiters with the result of the commit."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class CommitQueue:
    """Queue of commit groups, oldest first, with at most one commit in progress.

    `on_committed` is called with each group that is on disk, before its waiters run; `on_failure`
    when the outcome of a commit is unknown.
    """

    def __init__(
        self,
        writer: Writer,
        committer: Committer,
        upkeep: Maintenance,
        limits: Limits,
        *,
        revision: int,
        on_committed: Callable[[CommitGroup], None],
        on_failure: Callable[[StoreFailed], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._committer = committer
        self._upkeep = upkeep
        self._limits = limits
        self._on_committed = on_committed
        self._on_failure = on_failure
        #: Newest assigned revision.
        self.revision = revision
        #: Newest change per key that is not on disk yet.
        self.staged: dict[Key, Change] = {}
        #: Groups not on disk yet, oldest first. The first one is in progress if `_committing`.
        self._groups: deque[CommitGroup] = deque()
        self._committing = False
        self._flush_scheduled = False
        self._failed = False
        self._stopped = False
        #: Ranges of rolled-back revisions: (first, last), ascending.
        self._rolled_back: list[tuple[int, int]] = []
        self.rollbacks = 0
        #: Called after all staged changes were discarded.
        self.on_rollback: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def pending_revision(self) -> int:
        """Newest revision that is not on disk yet; 0 if there is none."""
        return self._groups[-1].changes[-1].revision if self._groups else 0

    def add(self, change: Change) -> None:
        """Enqueue a change, whose revision is the newest: `revision`."""
        self.staged[change.key] = change
        groups = self._groups
        # Inlines `weight` for all but deletions: saves a function call per write.
        size = weight(change) if change.value is None else len(change.value)
        group = groups[-1] if groups else None
        if (
            group is None
            or (self._committing and len(groups) == 1)
            # Revisions are consecutive.
            or change.revision - group.changes[0].revision >= self._limits.commit_changes
            or group.size + size > self._limits.commit_bytes
        ):
            group = CommitGroup()
            groups.append(group)
        group.changes.append(change)
        group.size += size
        if not self._committing and not self._flush_scheduled:
            self._flush_soon()

    def require_kept(self, revision: int) -> None:
        """Raise CommitFailed if the write with this revision was rolled back."""
        if not self._rolled_back:
            return
        place = bisect_right(self._rolled_back, (revision, self.revision)) - 1
        if place >= 0 and revision <= self._rolled_back[place][1]:
            raise CommitFailed(f"revision {revision} was rolled back")

    async def committed(self, revision: int) -> None:
        """Wait for the commit of a revision that is not on disk yet."""
        for group in self._groups:
            if group.changes[-1].revision >= revision:
                waiter = self._loop.create_future()
                group.waiters.append(waiter)
                await waiter
                return
        raise ValueError(f"revision {revision} was never staged")

    def fail(self, error: StoreFailed) -> None:
        """Submit no more commits. A commit in progress keeps its own outcome."""
        self._failed = True
        self._drop(error)

    def _drop(self, error: StoreError) -> None:
        """Fail all staged changes, except a commit in progress."""
        kept = [self._groups.popleft()] if self._committing else []
        dropped, self._groups = self._groups, deque(kept)
        self.staged = {change.key: change for group in kept for change in group.changes}
        for group in dropped:
            group.settle(error)

    def stop(self) -> None:
        """Ignore the outcome of a commit in progress; no caller waits for commits any more.

        There is one only if `close` was cancelled.
        """
        self._stopped = True

    def settle_all(self, error: StoreError) -> None:
        """Fail all remaining waiters with `error`, after `stop`."""
        for group in self._groups:
            group.settle(error)

    def _flush_soon(self) -> None:
        """Schedule a commit in a few iterations of the event loop.

        Not at once: callers woken by the last commit stage their next writes within a few
        iterations, and all of these share the commit.
        """
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._flush_after_turns(_GATHERING_TURNS)

    def _flush_after_turns(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._flush_after_turns, turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        """Commit the next group, unless a commit is in progress."""
        self._flush_scheduled = False
        if self._committing or not self._groups or self._failed:
            return
        self._committing = True
        group = self._groups[0]
        self._committer.submit(
            lambda: self._writer.append(group.changes, group.size), self._on_commit
        )
        self._upkeep.committing(len(group.changes))

    def _on_commit(self, error: StoreError | None) -> None:
        """Publish the committed group, or roll back all staged changes; then commit the next
        group."""
        if self._stopped:
            return
        self._committing = False
        if error is not None:
            self._roll_back(error)
            return
        group = self._groups.popleft()
        for change in group.changes:
            if self.staged[change.key] is change:
                del self.staged[change.key]
        # Waiters are woken first, to precede watchers in the loop's queue: a waiter has work to do
        # at once, such as starting the Pod that it created.
        group.settle(None)
        self._on_committed(group)
        if self._groups:
            self._flush_soon()

    def _roll_back(self, error: StoreError) -> None:
        """Fail the group and all later writes.

        The later ones were decided on state that was not written.
        """
        if isinstance(error, StoreFailed):
            self._on_failure(error)
            return
        self._upkeep.not_committed()
        first = self._groups[0].changes[0].revision
        if self._rolled_back and self._rolled_back[-1][1] == first - 1:
            first, _ = self._rolled_back.pop()
        self._rolled_back.append((first, self.revision))
        self.rollbacks += 1
        self._drop(error)
        if self.on_rollback is not None:
            self.on_rollback()
