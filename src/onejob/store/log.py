"""The store on SQLite: a revision log, staged on the loop, committed in groups.

Everything staged while a commit is on its way to the disk goes into the next one, so a commit
costs one sync however many writers wait for it.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from onejob.clock import Clock
from onejob.objects.meta import Key
from onejob.store.base import (
    Change,
    CommitFailed,
    Compacted,
    DamagedDocument,
    Page,
    RevisionMismatch,
    StoreClosed,
    Stored,
    StoreError,
    StoreFailed,
)
from onejob.store.contents import Held
from onejob.store.damage import IsReadable, anything
from onejob.store.database import Database, FreeBytes, open_database
from onejob.store.fanout import Fanout, LogWatch, weight
from onejob.store.limits import Limits
from onejob.store.listing import Listing
from onejob.store.recovery import Recovered, recover
from onejob.store.upkeep import Upkeep
from onejob.store.writer import Committer, ThreadCommitter, Writer

#: Turns of the loop from a write to its commit: from a watcher that is woken to the write of
#: whoever listens to it. Halves the commits of Jobs with little parallelism.
_GATHERING_TURNS = 3


class LogStore:
    """Implements `onejob.store.base.Store`. Made by `open`; all calls on one loop's thread."""

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        clock: Clock,
        committer: Committer | None = None,
        limits: Limits | None = None,
        vfs: str | None = None,
        is_readable: IsReadable = anything,
        free_bytes: FreeBytes | None = None,
    ) -> Self:
        """Open or create the store. Raises StoreLocked, NewerStore or CorruptStore.

        `committer` decides where commits run: by default in a thread of their own; a
        `LoopCommitter` uses no thread. `vfs` names a SQLite VFS, for tests that break disks.
        `is_readable` judges each document that comes from disk. `free_bytes` says how much room
        the disk has; by default, the file system is asked.
        """
        limits = limits if limits is not None else Limits()
        database = open_database(Path(path), vfs, free_bytes)
        try:
            recovered = recover(database.reader, limits, clock.monotonic(), is_readable)
        except BaseException:
            database.close(tidy=False)
            raise
        return cls(
            database,
            recovered,
            committer if committer is not None else ThreadCommitter(),
            clock,
            limits,
        )

    def __init__(
        self,
        database: Database,
        recovered: Recovered,
        committer: Committer,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._database = database
        self._reader = database.reader
        self._writer = Writer(database.writer, limits, database.free_bytes)
        self._committer = committer
        self._limits = limits
        self._contents = recovered.contents
        self._revision = recovered.revision
        self._staged_revision = recovered.revision
        self._damage = recovered.damage
        self._listing = Listing(self._contents, self._reader, self._damage)
        self._fanout = Fanout(
            self._reader,
            revision=recovered.revision,
            compacted=recovered.compacted,
            limits=limits,
            damaged=self._damage.found,
        )
        self._upkeep = Upkeep(
            self._writer,
            committer,
            recovered.history,
            clock,
            compacted=recovered.compacted,
            on_compacting=self._on_compacting,
            on_failure=self._fail,
        )
        #: The newest staged change per key that is not durable yet.
        self._staged: dict[Key, Change] = {}
        #: Not durable yet, oldest first. The first is under way if `_committing`.
        self._groups: deque[_Group] = deque()
        self._committing = False
        self._flush_scheduled = False
        #: Revisions that were rolled back: (first, last), ascending.
        self._rolled_back: list[tuple[int, int]] = []
        #: The cold versions read last: who reads them usually writes them next.
        self._last_cold: dict[int, Stored] = {}
        self.rollbacks = 0
        #: Since the store was opened, for metrics.
        self.commits = 0
        self.writes = 0
        self._closed = False
        #: Past the point where commits are waited for; they are not if `close` is cancelled.
        self._stopped = False
        self._failure: StoreFailed | None = None
        #: Done, with the failure as its result, when the store can no longer be trusted: the
        #: process should stop, and start again from what is on disk.
        self.failed: asyncio.Future[StoreFailed] = self._loop.create_future()

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def staged_revision(self) -> int:
        return self._staged_revision

    @property
    def compacted(self) -> int:
        return self._upkeep.compacted

    @property
    def damaged(self) -> Mapping[Key, int]:
        return self._damage.found

    def get(self, key: Key) -> Stored | None:
        return self._warm(key, self._contents.find(key))

    def newest(self, key: Key) -> Stored | None:
        change = self._staged.get(key)
        if change is None:
            return self._warm(key, self._contents.find(key))
        return None if change.value is None else Stored(key, change.revision, change.value)

    def warm(self, keys: Sequence[Key]) -> None:
        cold = {
            held: key
            for key in keys
            if key not in self._staged and isinstance(held := self._contents.find(key), int)
        }
        if len(cold) > 1:
            values = self._reader.values(list(cold))
            is_readable = self._damage.is_readable
            self._last_cold = {
                held: Stored(key, held, values[held])
                for held, key in cold.items()
                if is_readable(key, values[held])
            }

    def count(self, resource: str, namespace: str = "") -> int:
        return self._contents.count(resource, namespace)

    def list(
        self,
        resource: str,
        namespace: str = "",
        *,
        limit: int = 0,
        after: Key | None = None,
        at: int = 0,
    ) -> Page:
        at = at or self._revision
        if at < self.compacted:
            raise Compacted(at, self.compacted)
        if at > self._revision:
            raise ValueError(f"revision {at} is in the future; the newest is {self._revision}")
        return self._listing.page(resource, namespace, limit, after, at, self._revision)

    async def pages(
        self, resource: str, namespace: str = "", *, size: int = 500
    ) -> AsyncIterator[Page]:
        page = self.list(resource, namespace, limit=size)
        yield page
        while page.next_after is not None:
            await asyncio.sleep(0)
            page = self.list(
                resource, namespace, limit=size, after=page.next_after, at=page.revision
            )
            yield page

    def watch(self, resource: str, namespace: str = "", *, after: int) -> LogWatch:
        self._check_usable()
        return self._fanout.watch(resource, namespace, after)

    def stage(
        self,
        key: Key,
        expected: int,
        encode: Callable[[int], bytes] | None,
        *,
        cold: bool = False,
        quiet: bool = False,
    ) -> Stored | None:
        if self._failure is not None or self._closed:
            self._check_usable()
        change = self._staged.get(key)
        if change is not None:
            previous = change.value
            actual = change.revision if previous is not None else 0
        else:
            before = self._warm(key, self._contents.find(key))
            previous, actual = (None, 0) if before is None else (before.value, before.revision)
        if actual != expected or (encode is None and actual == 0):
            raise RevisionMismatch(key, expected, actual)
        revision = self._staged_revision + 1
        value = None if encode is None else encode(revision)
        self._staged_revision = revision
        change = Change(key, revision, value, previous, actual, cold, quiet)
        self._staged[key] = change
        self._enqueue(change)
        return None if value is None else Stored(key, revision, value)

    def discard(self, key: Key) -> int:
        self._check_usable()
        revision = self._staged_revision = self._staged_revision + 1
        change = Change(key, revision, None, None, self._damage.found[key])
        self._staged[key] = change
        self._enqueue(change)
        return revision

    async def durable(self, revision: int) -> None:
        if self._rolled_back and self._was_rolled_back(revision):
            raise CommitFailed(f"revision {revision} was rolled back")
        if revision <= self._revision:
            return
        if self._failure is not None:
            raise self._failure
        for group in self._groups:
            if group.changes[-1].revision >= revision:
                waiter = self._loop.create_future()
                group.waiters.append(waiter)
                await waiter
                return
        raise ValueError(f"revision {revision} was never staged")

    async def close(self) -> None:
        """Also raises what kept staged writes from becoming durable, after it has stopped."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._groups:
                await self.durable(self._staged_revision)
        finally:
            self._stopped = True
            self._upkeep.stop()
            self._fanout.end()
            self._committer.stop()
            self._database.close(tidy=self._failure is None)
            for group in self._groups:
                group.settle(StoreClosed("the store was closed before this was acknowledged"))

    def _warm(self, key: Key, held: Held | None) -> Stored | None:
        if not isinstance(held, int):
            if held is None and self._damage.found:
                self._damage.require_whole(key)
            return held
        stored = self._last_cold.get(held)
        if stored is None:
            value = self._reader.value(held)
            if not self._damage.is_readable(key, value):
                self._damage.set_apart(key, held, self._contents)
                raise DamagedDocument(key, held)
            stored = Stored(key, held, value)
            self._last_cold = {held: stored}
        return stored

    def _enqueue(self, change: Change) -> None:
        groups = self._groups
        size = weight(change)
        group = groups[-1] if groups else None
        if (
            group is None
            or (self._committing and len(groups) == 1)
            or len(group.changes) >= self._limits.commit_changes
            or group.size + size > self._limits.commit_bytes
        ):
            group = _Group()
            groups.append(group)
        group.changes.append(change)
        group.size += size
        if not self._committing:
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Not at once: those whom the last commit woke stage their next writes within a few
        turns of the loop, and all of these share the commit."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._wait_turns(_GATHERING_TURNS)

    def _wait_turns(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._wait_turns, turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._committing or not self._groups or self._failure is not None:
            return
        self._committing = True
        group = self._groups[0]
        self._committer.submit(
            lambda: self._writer.append(group.changes, group.size), self._on_commit
        )
        self._upkeep.committing(len(group.changes))

    def _on_commit(self, error: StoreError | None) -> None:
        if self._stopped:
            return
        self._committing = False
        if error is not None:
            self._roll_back(error)
            return
        group = self._groups.popleft()
        self._publish(group)
        group.settle(None)
        if self._groups:
            self._flush_soon()

    def _publish(self, group: "_Group") -> None:
        """The one place where a write becomes visible."""
        contents, staged, snapshots = self._contents, self._staged, self._listing.snapshots
        following = bool(snapshots)
        dead = dead_bytes = 0
        for change in group.changes:
            if change.value is None and change.previous is None:
                del self._damage.found[change.key]
                dead += 2
            else:
                contents.apply(change)
            if staged[change.key] is change:
                del staged[change.key]
            if following:
                snapshots.note(change)
            if change.previous is not None:
                # A deletion is itself a row that nobody needs once its history is over.
                dead += 1 if change.value is not None else 2
                dead_bytes += len(change.previous)
        self._revision = group.changes[-1].revision
        self.commits += 1
        self.writes += len(group.changes)
        self._upkeep.committed(self._revision, dead, dead_bytes)
        self._fanout.publish(group.changes, group.size)

    def _on_compacting(self, revision: int) -> None:
        self._fanout.compacted = revision
        self._listing.snapshots.drop_before(revision)

    def _roll_back(self, error: StoreError) -> None:
        """Everything staged rests on what was not written: all of it fails."""
        if isinstance(error, StoreFailed):
            self._fail(error)
            return
        self._upkeep.not_committed()
        first = self._groups[0].changes[0].revision
        if self._rolled_back and self._rolled_back[-1][1] == first - 1:
            first, _ = self._rolled_back.pop()
        self._rolled_back.append((first, self._staged_revision))
        self.rollbacks += 1
        self._drop_staged(error)

    def _drop_staged(self, error: StoreError) -> None:
        """Forget what is staged, but for a commit that is under way: it has its own outcome."""
        kept = [self._groups.popleft()] if self._committing else []
        dropped, self._groups = self._groups, deque(kept)
        self._staged = {change.key: change for group in kept for change in group.changes}
        for group in dropped:
            group.settle(error)

    def _was_rolled_back(self, revision: int) -> bool:
        place = bisect_right(self._rolled_back, (revision, self._staged_revision)) - 1
        return place >= 0 and revision <= self._rolled_back[place][1]

    def _fail(self, failure: StoreFailed) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._upkeep.stop()
        self._fanout.end(failure)
        self._drop_staged(failure)
        if not self.failed.done():
            self.failed.set_result(failure)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreClosed("the store is closed")


class _Group:
    """Changes that share one commit, and those who wait for it."""

    __slots__ = ("changes", "size", "waiters")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.size = 0
        self.waiters: list[asyncio.Future[None]] = []

    def settle(self, error: StoreError | None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
