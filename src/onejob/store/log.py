"""SQLite-backed store: the composition of the package's parts.

A write is staged here and committed by `CommitQueue`; it then becomes visible in `Contents` (reads
and lists) and `Fanout` (watches). `Maintenance` compacts old history.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from onejob.clock import Clock
from onejob.objects.meta import Key
from onejob.store.base import (
    Change,
    Compacted,
    CorruptStore,
    Page,
    RevisionMismatch,
    StoreClosed,
    Stored,
    StoreFailed,
)
from onejob.store.commit_queue import CommitGroup, CommitQueue
from onejob.store.damage import IsReadable, all_readable
from onejob.store.database import Database, FreeBytes, open_database
from onejob.store.encryption import ENCRYPTED_RESOURCE, Cipher
from onejob.store.fanout import Fanout, LogWatch
from onejob.store.history import CommitTimes
from onejob.store.limits import Limits
from onejob.store.listing import Listing, Versions
from onejob.store.recovery import Recovered, recover
from onejob.store.upkeep import Maintenance
from onejob.store.writer import Committer, ThreadCommitter, Writer

if TYPE_CHECKING:
    from onejob.store.checking.integrity import PageCheck

log = logging.getLogger(__name__)


class LogStore:
    """Implementation of `onejob.store.base.Store`.

    Created by `open`; all calls are made on one event loop's thread.
    """

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        clock: Clock,
        committer: Committer | None = None,
        limits: Limits | None = None,
        vfs: str | None = None,
        is_readable: IsReadable = all_readable,
        free_bytes: FreeBytes | None = None,
        cipher: Cipher | None = None,
    ) -> Self:
        """Open or create the store. Raises a subclass of CannotOpen.

        `committer` determines where commits run: by default on a dedicated thread; a
        `LoopCommitter` uses no thread. `vfs` names a SQLite VFS, for tests that inject disk faults.
        `is_readable` returns whether a document from disk can be decoded. `free_bytes` returns the
        free disk space; by default it queries the file system. `cipher` encrypts Secrets.
        """
        limits = limits if limits is not None else Limits()
        database = open_database(Path(path), vfs, free_bytes, cipher)
        try:
            recovered = recover(database.reader, limits, clock.monotonic(), is_readable)
            committer = committer if committer is not None else ThreadCommitter()
        except CorruptStore as error:
            database.close(tidy=False)
            from onejob.store.checking.integrity import describe_corruption

            raise CorruptStore(describe_corruption(Path(path), is_readable, error)) from error
        except BaseException:
            database.close(tidy=False)
            raise
        return cls(database, recovered, committer, clock, limits, cipher)

    def __init__(
        self,
        database: Database,
        recovered: Recovered,
        committer: Committer,
        clock: Clock,
        limits: Limits,
        cipher: Cipher | None = None,
    ) -> None:
        self._database = database
        self._reader = database.reader
        self._committer = committer
        self._contents = recovered.contents
        self._revision = recovered.revision
        self._clock = clock
        self._times = CommitTimes(recovered.revision)
        self._damage = recovered.damage
        self._page_check: PageCheck | None = None
        self._damage.on_found = self._suspect
        if self._damage.found:
            self._suspect()
        self._versions = Versions(self._contents, self._reader, self._damage)
        self._listing = Listing(self._contents, self._reader, self._damage)
        self._fanout = Fanout(
            self._reader,
            revision=recovered.revision,
            compacted=recovered.compacted,
            limits=limits,
            damaged=self._damage.found,
        )
        writer = Writer(database.writer, database.lock, limits, database.free_bytes, cipher)
        self._upkeep = Maintenance(
            writer,
            committer,
            recovered.history,
            clock,
            compacted=recovered.compacted,
            on_compacting=self._on_compacting,
            on_failure=self._fail,
        )
        for revision in recovered.erasing:
            self._upkeep.erase_on_compaction(revision)
        if recovered.unchecked:
            self._upkeep.add_checksums(self._reader)
        self._queue = CommitQueue(
            writer,
            committer,
            self._upkeep,
            limits,
            revision=recovered.revision,
            on_committed=self._publish,
            on_failure=self._fail,
        )
        #: Counters since the store was opened, for metrics.
        self.commits = 0
        self.writes = 0
        self._closed = False
        self._on_staged: Callable[[Change], None] | None = None
        self._failure: StoreFailed | None = None
        #: Resolved with the failure when the store can no longer be trusted: the process should
        #: stop, and restart from the state on disk.
        self.failed: asyncio.Future[StoreFailed] = asyncio.get_running_loop().create_future()

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def staged_revision(self) -> int:
        return self._queue.revision

    @property
    def pending_revision(self) -> int:
        return self._queue.pending_revision

    @property
    def rollbacks(self) -> int:
        return self._queue.rollbacks

    @property
    def compacted(self) -> int:
        return self._upkeep.compacted

    @property
    def damaged(self) -> Mapping[Key, int]:
        return self._damage.found

    def newest_is_damaged(self, key: Key) -> bool:
        return key in self._damage.found and key not in self._queue.staged

    def get(self, key: Key) -> Stored | None:
        return self._durable(key)

    def newest(self, key: Key) -> Stored | None:
        staged = self._queue.staged
        if key not in staged:
            return self._durable(key)
        change = staged[key]
        if change.value is None:
            return None
        return Stored(key, change.revision, change.value, change.tail)

    def _durable(self, key: Key) -> Stored | None:
        """Return the newest durable version, or None. Raises DamagedDocument."""
        held = self._contents.find(key)
        # Not `isinstance`: this is evaluated several times for each write.
        return held if type(held) is Stored else self._versions.find(key, held)

    def committed_at(self, revision: int) -> datetime | None:
        return self._times.at(revision)

    def warm(self, keys: Sequence[Key]) -> None:
        """Load cold objects into memory in one query."""
        self._versions.load(keys, without=self._queue.staged)

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
        tail: tuple[int, int] | None = None,
        finalizers: tuple[str, ...] | None = None,
    ) -> Stored | None:
        if self._failure is not None or self._closed:
            self._check_usable()
        queue = self._queue
        if key in queue.staged:
            change = queue.staged[key]
            previous = change.value
            actual = change.revision if previous is not None else 0
        else:
            before = self._durable(key)
            previous, actual = (None, 0) if before is None else (before.value, before.revision)
        if actual != expected or (encode is None and actual == 0):
            raise RevisionMismatch(key, expected, actual)
        revision = queue.revision + 1
        value = None if encode is None else encode(revision)
        queue.revision = revision
        staged = Change(key, revision, value, previous, actual, cold, quiet, tail, finalizers)
        queue.add(staged)
        if self._on_staged is not None:
            self._on_staged(staged)
        return None if value is None else Stored(key, revision, value, tail)

    def follow(self, on_staged: Callable[[Change], None], on_rollback: Callable[[], None]) -> None:
        """Register callbacks for a component that decides by staged state.

        `on_staged` is called with each staged change, `on_rollback` after all changes that are not
        on disk were discarded.
        """
        self._on_staged = on_staged
        self._queue.on_rollback = on_rollback

    def newest_in(self, resource: str, namespace: str) -> Iterator[tuple[str, bytes | None]]:
        """Yield the name and the newest staged document of all objects, unordered.

        The document is None for objects kept on disk only. Nothing may be staged during iteration.
        """
        staged = {
            key.name: change
            for key, change in self._queue.staged.items()
            if key.resource == resource and key.namespace == namespace
        }
        bucket = self._contents.bucket(resource, namespace)
        for name, held in bucket.objects.items() if bucket is not None else ():
            if name not in staged:
                yield name, held.value if isinstance(held, Stored) else None
        for name, change in staged.items():
            if change.value is not None:
                yield name, change.value

    def discard(self, key: Key) -> int:
        self._check_usable()
        revision = self._queue.revision = self._queue.revision + 1
        staged = Change(key, revision, None, None, self._damage.found[key])
        self._queue.add(staged)
        if self._on_staged is not None:
            self._on_staged(staged)
        return revision

    async def durable(self, revision: int) -> None:
        """Wait until the revision is on disk. Raises StoreError if its write was rolled back."""
        self._queue.require_kept(revision)
        if revision <= self._revision:
            return
        if self._failure is not None:
            raise self._failure
        await self._queue.committed(revision)

    async def close(self) -> None:
        """Make all staged writes durable, then stop.

        If they could not be made durable, raises after all parts have stopped.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._queue:
                await self.durable(self._queue.revision)
        finally:
            self._queue.stop()
            self._upkeep.stop()
            self._fanout.end()
            if self._page_check is not None:
                self._page_check.stop()
            self._committer.stop()
            self._database.close(tidy=self._failure is None)
            self._queue.settle_all(
                StoreClosed("the store was closed before the write was acknowledged")
            )

    def _publish(self, group: CommitGroup) -> None:
        """Make a committed group visible. The only place where writes become visible to readers."""
        contents, snapshots = self._contents, self._listing.snapshots
        following = bool(snapshots)
        dead = dead_bytes = 0
        for change in group.changes:
            if change.value is None and change.previous is None:
                del self._damage.found[change.key]
                dead += 2
            else:
                contents.apply(change)
            if following:
                snapshots.note(change)
            if change.previous is not None:
                # A deletion is itself a row, which is useless once its history is compacted.
                dead += 1 if change.value is not None else 2
                dead_bytes += len(change.previous)
                if change.key.resource == ENCRYPTED_RESOURCE:
                    self._upkeep.erase_on_compaction(change.revision)
        self._revision = group.changes[-1].revision
        self._times.committed(self._revision, self._clock.now())
        self.commits += 1
        self.writes += len(group.changes)
        self._upkeep.committed(self._revision, dead, dead_bytes)
        self._fanout.publish(group.changes, group.size)

    def _on_compacting(self, revision: int) -> None:
        self._fanout.compacted = revision
        self._listing.snapshots.drop_before(revision)

    def _fail(self, failure: StoreFailed) -> None:
        """Put the store out of use: end watches, fail staged writes. Only the first failure
        counts."""
        if self._failure is not None:
            return
        self._failure = failure
        self._upkeep.stop()
        self._fanout.end(failure)
        self._queue.fail(failure)
        if not self.failed.done():
            self.failed.set_result(failure)

    def _suspect(self) -> None:
        """Start a check of all pages after a damaged document was found.

        Runs at most once: the check reads the whole file.
        """
        from onejob.store.checking.integrity import PageCheck

        try:
            self._page_check = PageCheck(self._database.path)
        except OSError as error:
            # The next damaged document retries.
            log.warning("cannot check the pages of %s: %s", self._database.path, error.strerror)
            return
        self._damage.on_found = None

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreClosed("the store is closed")
