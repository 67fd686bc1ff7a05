"""Mutants of the store: writes that share a commit, and the mark of the last commit."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from onejob.store.base import Change, StoreError, StoreFailed
from onejob.store.commit_queue import CommitGroup, CommitQueue
from onejob.store.log import LogStore
from onejob.store.writer import Writer
from sim.mutants.planting import Plant, replace


def _acknowledge_early(undo: ExitStack) -> None:
    """Callers that wait for a commit are answered before it is on disk."""

    async def durable(self: LogStore, revision: int) -> None:
        await asyncio.sleep(0)

    replace(undo, LogStore, "durable", durable)


def _ignore_rollback(undo: ExitStack) -> None:
    """Callers that wait for a failed commit are answered as if it had succeeded."""
    original = CommitGroup.settle

    def settle(self: CommitGroup, error: StoreError | None) -> None:
        original(self, None)

    replace(undo, CommitGroup, "settle", settle)


def _drop_one_group(undo: ExitStack) -> None:
    """A rollback drops the failed group, but not the later writes that were based on it."""

    def roll_back(self: CommitQueue, error: StoreError) -> None:
        if isinstance(error, StoreFailed):
            self._on_failure(error)
            return
        self._upkeep.not_committed()
        group = self._groups.popleft()
        self._rolled_back.append((group.changes[0].revision, group.changes[-1].revision))
        for change in group.changes:
            if self.staged.get(change.key) is change:
                del self.staged[change.key]
        group.settle(error)
        if self._groups:
            self._flush_soon()

    replace(undo, CommitQueue, "_roll_back", roll_back)


def _mark_early(undo: ExitStack) -> None:
    """A revision is recorded in the lock file before its commit."""
    original = Writer.append

    def append(self: Writer, changes: Sequence[Change], size: int) -> None:
        self._lock.committed(changes[-1].revision)
        original(self, changes, size)

    replace(undo, Writer, "append", append)


MUTANTS: Mapping[str, Plant] = {
    "shared commit acknowledged before it is durable": _acknowledge_early,
    "rollback of a shared commit ignored": _ignore_rollback,
    "only one group dropped by a rollback": _drop_one_group,
    "mark made before its commit": _mark_early,
}
