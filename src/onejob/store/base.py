"""Storage interface: a revisioned key-value store with compare-and-swap, snapshots and watches.

`onejob.store.log.LogStore` implements it on SQLite. Revisions are global and ascending, as in etcd;
a revision is an object's resourceVersion.

Guarantees:
- A write takes two steps, so that a caller can read, decide and write without interference. `stage`
  is synchronous and operates on the newest staged state; `durable` is awaited before the write is
  acknowledged to a client.
- Reads, lists and watches return durable versions only. Only `newest` and `newest_is_damaged`
  reflect staged writes.
- A watch delivers every durable change after its start revision, in revision order, without gaps.
- If a commit fails, all writes staged after it fail as well: they were decided on state that never
  reached the disk.

Requirements:
- Await `durable(revision)` before acknowledging a write.
- Do not modify a batch of changes: all watchers share it.

Concurrency: all methods are called on the event loop's thread. A staged write may be committed on
another thread. Each watch has one consumer.

Errors:

    StoreError
    ├── RevisionMismatch   compare-and-swap failed
    ├── Compacted          the requested history has been removed
    ├── TooFarBehind       a slow watcher was dropped; it may resume
    ├── DamagedDocument    stored on disk, but unreadable
    ├── CommitFailed       the writes were rolled back (disk full); later ones may succeed
    ├── StoreFailed        the outcome of a write is unknown; the process must stop
    ├── StoreClosed        used after `close`
    └── CannotOpen
        ├── StoreLocked      another process uses the store
        ├── NewerStore       written by a newer onejob
        ├── MigrationFailed  written by an older onejob; the file is unchanged
        └── CorruptStore     unreadable; the file is never replaced
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, final

import msgspec
from msgspec import Struct

from onejob.objects.meta import Key


# Structs rather than dataclasses: a frozen dataclass takes eight times as long to build, and
# one of each is built per write. gc=False is safe because keys and bytes cannot form a cycle.
@final
class Stored(msgspec.Struct, frozen=True, gc=False):
    """One version of one object. `value` is the whole document, resourceVersion included."""

    key: Key
    revision: int
    value: bytes
    #: Lengths of the encoded spec and status, with which a document of metadata, spec and status
    #: ends; None if unknown.
    tail: tuple[int, int] | None = None


class Change(msgspec.Struct, gc=False):
    """One log entry, as delivered to watchers. All watchers share one instance.

    `value` is None for a deletion; `previous` is then the last document. `previous` is None for a
    creation, so that a watcher can distinguish ADDED from MODIFIED.
    """

    key: Key
    revision: int
    value: bytes | None
    previous: bytes | None
    #: Revision of `previous`; 0 for a creation.
    previous_revision: int = 0
    #: Whether the value may be evicted from memory once it is durable.
    cold: bool = False
    #: Whether no controller needs to react: caches may defer the change until the object's next
    #: one.
    quiet: bool = False
    tail: tuple[int, int] | None = None
    #: The new finalizers, if nothing else has changed.
    finalizers: tuple[str, ...] | None = None


class Page(Struct, frozen=True):
    """Page of a list in key order. `revision` is that of the whole list's snapshot.

    Damaged objects are left out, so a page may have fewer items than its limit.
    """

    items: Sequence[Stored]
    revision: int
    #: Key to continue after, or None if the list is complete.
    next_after: Key | None
    #: Number of objects after this page; None if counting them would be expensive.
    remaining: int | None


class StoreError(Exception):
    """Base class of all errors that the store raises deliberately."""


class RevisionMismatch(StoreError):
    """Compare-and-swap failure: the object is not at the expected revision."""

    def __init__(self, key: Key, expected: int, actual: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(StoreError):
    """The requested revision is older than the retained history."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} is compacted; the oldest available is {oldest}")
        self.revision, self.oldest = revision, oldest


class TooFarBehind(StoreError):
    """A watcher was dropped because it did not keep up. It may resume from its last revision."""


class DamagedDocument(StoreError):
    """The object exists, but its document is unreadable. All other objects are served."""

    def __init__(self, key: Key, revision: int) -> None:
        super().__init__(f"the stored document of {key} is damaged (revision {revision})")
        self.key, self.revision = key, revision


class CommitFailed(StoreError):
    """The writes were rolled back before any reader saw them. The store remains usable."""


class StoreFailed(StoreError):
    """Unknown whether a write reached the disk.

    Only a restart, which reads the disk, can resolve it; the store accepts no more writes.
    """


class StoreClosed(StoreError):
    """The store was closed in an orderly way."""


class CannotOpen(StoreError):
    """Base class of failures to open the store.

    The message is one line that names the file and the remedy.
    """


class StoreLocked(CannotOpen):
    """Another process has the store open."""


class NewerStore(CannotOpen):
    """The store was written by a newer version of onejob."""


class MigrationFailed(CannotOpen):
    """The schema migration failed. The file is unchanged."""


class CorruptStore(CannotOpen):
    """The file is not a readable store. It is left unchanged."""


class Watch(Protocol):
    """Subscription to durable changes, in revision order, without gaps.

    Iteration yields batches of changes. Batches are shared between watchers: do not modify them. A
    batch is empty only after a `nudge`. Iteration ends when the watch or the store is closed.

    Requirements: one consumer per watch. Keep up: a watcher with too much queued is dropped.

    Raises:
        TooFarBehind: if this watcher was dropped; list again, or resume if history still reaches.
        StoreFailed: if the store failed.
    """

    def __aiter__(self) -> AsyncIterator[Sequence[Change]]: ...

    async def __anext__(self) -> Sequence[Change]: ...

    def nudge(self) -> None:
        """Yield an empty batch after all changes that are durable at that point.

        For a consumer with a deadline of its own, which must run even if no changes arrive.
        """

    def close(self) -> None:
        """End the watch. Idempotent. A pending `__anext__` raises StopAsyncIteration."""


class StagingStore(Protocol):
    """Subset of the store that deciding a write requires: staged reads and staging.

    Concurrency: all methods are synchronous, so a caller that reads, decides and stages without
    awaiting has no concurrent writers.
    """

    @property
    def revision(self) -> int:
        """Newest durable revision; at least 1, even if nothing was ever written."""

    @property
    def damaged(self) -> Mapping[Key, int]:
        """Objects with unreadable documents, and their revisions. No list contains them."""

    def newest(self, key: Key) -> Stored | None:
        """Return the newest staged version, or None if the object does not exist.

        `stage` compares `expected` with the revision of this version. Raises DamagedDocument.
        """

    def newest_is_damaged(self, key: Key) -> bool:
        """Return whether an object is damaged and its deletion is not staged yet."""

    def discard(self, key: Key) -> int:
        """Stage the deletion of a damaged object and return the deletion's revision.

        Watchers receive no event for it, as they received none for the object.
        """

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
        """Stage a put, or a deletion if `encode` is None, by compare-and-swap.

        `expected` is the object's newest staged revision; 0 means that the object must not exist.
        `encode` receives the revision of this write and returns the document; if it raises, nothing
        is staged. Returns the staged version, or None for a deletion, which takes a revision as
        well.

        `cold` marks a version that will rarely be read, like that of a finished Pod: its value is
        kept on disk only. `quiet` and `finalizers` are passed on to watchers, see `Change`. `tail`
        describes the document, see `Stored`.

        Raises:
            RevisionMismatch: if the newest staged revision is not `expected`.
            DamagedDocument: if the stored document is unreadable; use `discard`.
            StoreFailed, StoreClosed: if the store accepts no more writes.
        """

    @property
    def staged_revision(self) -> int:
        """Newest revision assigned by `stage`."""


class Store(StagingStore, Protocol):
    """Complete storage interface: staging, durable reads, lists and watches.

    The module docstring has the guarantees, requirements and errors. In contrast to `newest`, the
    methods `get`, `list`, `pages`, `count` and `watch` return durable versions only.
    """

    @property
    def pending_revision(self) -> int:
        """Newest staged revision that is neither on disk nor rolled back, or 0."""

    @property
    def rollbacks(self) -> int:
        """Number of failed commits. Each one discarded all staged writes."""

    @property
    def compacted(self) -> int:
        """Oldest revision at which a watch or a snapshot may start."""

    def get(self, key: Key) -> Stored | None:
        """Return the newest durable version, or None. Raises DamagedDocument."""

    def committed_at(self, revision: int) -> datetime | None:
        """Return the commit time of a revision, to the second; None if it predates this process."""

    def warm(self, keys: Sequence[Key]) -> None:
        """Read the cold objects among `keys` with one statement.

        Call it before writing them in the same iteration of the event loop. An optimization only.
        """

    async def durable(self, revision: int) -> None:
        """Wait until all writes up to `revision` are on disk and visible to readers.

        Raises:
            CommitFailed: if the write with this revision was rolled back.
            StoreFailed: if the outcome of the commit is unknown.
        """

    def list(
        self,
        resource: str,
        namespace: str = "",
        *,
        limit: int = 0,
        after: Key | None = None,
        at: int = 0,
    ) -> Page:
        """Return objects in key order (namespace, then name), consistent at one revision.

        `namespace` "" means all namespaces; `limit` 0 means no limit. `at` is the revision of an
        earlier page's snapshot, 0 for the newest; raises Compacted if that revision was removed.
        Cold objects are read from disk, on the calling thread: use `pages` for a list that may be
        long.
        """

    def pages(self, resource: str, namespace: str = "", *, size: int = 500) -> AsyncIterator[Page]:
        """Yield a whole list in pages of one snapshot, yielding to the event loop between pages."""

    def count(self, resource: str, namespace: str = "") -> int:
        """Return the number of durable objects, damaged ones excluded. Cheap."""

    def watch(self, resource: str, namespace: str = "", *, after: int) -> Watch:
        """Subscribe to all durable changes with a revision above `after`. Raises Compacted."""

    async def close(self) -> None:
        """Make all staged writes durable, then stop."""
