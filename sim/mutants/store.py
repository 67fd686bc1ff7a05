"""Mistakes of the store: about writes that share a commit."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack

from onejob.store.base import StoreError, StoreFailed
from onejob.store.commit_queue import CommitGroup, CommitQueue
from onejob.store.log import LogStore
from sim.mutants.planting import Plant, replace


def _acknowledge_early(undo: ExitStack) -> None:
    """Who waits for a commit is answered before it is on disk."""

    async def durable(self: LogStore, revision: int) -> None:
        await asyncio.sleep(0)

    replace(undo, LogStore, "durable", durable)


def _ignore_rollback(undo: ExitStack) -> None:
    """Who waits for a commit is answered as if it had succeeded."""
    original = CommitGroup.settle

    def settle(self: CommitGroup, error: StoreError | None) -> None:
        original(self, None)

    replace(undo, CommitGroup, "settle", settle)


def _drop_one_group(undo: ExitStack) -> None:
    """A rollback takes back what failed, and not what was decided on it since."""

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


MUTANTS: Mapping[str, Plant] = {
    "shared commit acknowledged before it is durable": _acknowledge_early,
    "rollback of a shared commit ignored": _ignore_rollback,
    "only one group dropped by a rollback": _drop_one_group,
}
