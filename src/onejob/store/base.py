"""The interface of the store, which `onejob.store.log` implements on SQLite.

All methods are called on the event loop's thread. Writes are two steps so that a caller can
read, decide and write without anything coming between: `stage` is synchronous and sees the
newest staged state; `durable` is awaited before the write is acknowledged. Reads, lists and
watches see only what is durable.

    StoreError
    ├── RevisionMismatch   compare-and-swap failed
    ├── Compacted          the asked-for history is gone
    ├── TooFarBehind       a slow watcher was dropped; it may resume
    ├── DamagedDocument    it is on disk, but cannot be read
    ├── CommitFailed       these writes did not happen (disk full); later ones may succeed
    ├── StoreFailed        the outcome of a write is unknown; the process must stop
    ├── StoreClosed        used after `close`
    └── CannotOpen
        ├── StoreLocked      another process uses it
        ├── NewerStore       written by a newer onejob
        ├── MigrationFailed  written by an older one, and still as that left it
        └── CorruptStore     not readable; never replaced
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from onejob.objects.meta import Key


# Structs rather than dataclasses: a frozen dataclass takes eight times as long to build, and
# one of each is built per write. gc=False is safe because keys and bytes cannot form a cycle.
class Stored(msgspec.Struct, frozen=True, gc=False):
    """One version of one object. `value` is the whole document, resourceVersion included."""

    key: Key
    revision: int
    value: bytes


class Change(msgspec.Struct, gc=False):
    """One entry of the log, as watchers see it. One instance is shared by all watchers.

    `value` None means deleted; then `previous` is the last document. `previous` is None for a
    creation, so that a watcher can distinguish ADDED from MODIFIED.
    """

    key: Key
    revision: int
    value: bytes | None
    previous: bytes | None
    #: The revision of `previous`; 0 for a creation.
    previous_revision: int = 0
    #: Whether the value may leave memory once it is durable.
    cold: bool = False
    #: Whether no controller has to act on it: caches may defer it until the object's next change.
    quiet: bool = False


class Page(Struct, frozen=True):
    items: Sequence[Stored]
    revision: int
    #: The key to continue after, or None when the list is complete.
    next_after: Key | None
    #: How many objects follow this page, where it is known cheaply.
    remaining: int | None


class StoreError(Exception):
    """Base of everything the store raises on purpose."""


class RevisionMismatch(StoreError):
    """Compare-and-swap failed: the object is not at the expected revision."""

    def __init__(self, key: Key, expected: int, actual: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(StoreError):
    """The asked-for revision is older than the history that is kept."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} is compacted; the oldest kept is {oldest}")
        self.revision, self.oldest = revision, oldest


class TooFarBehind(StoreError):
    """A watcher was dropped because it did not keep up. It may resume from its last revision."""


class DamagedDocument(StoreError):
    """The object exists, but its document cannot be read. All others are served."""

    def __init__(self, key: Key, revision: int) -> None:
        super().__init__(f"the stored document of {key} is damaged (revision {revision})")
        self.key, self.revision = key, revision


class CommitFailed(StoreError):
    """The writes were rolled back and nobody saw them. The store goes on working."""


class StoreFailed(StoreError):
    """It is unknown whether a write reached the disk. Only a restart, which reads the disk, can
    find out; until then nothing more is written."""


class StoreClosed(StoreError):
    """The store was closed in an orderly way."""


class CannotOpen(StoreError):
    """The message is one line that names the file and says what to do."""


class StoreLocked(CannotOpen):
    """Another process has the store open."""


class NewerStore(CannotOpen):
    """The store was written by a newer version."""


class MigrationFailed(CannotOpen):
    """The schema could not be brought up to date. The file is as it was."""


class CorruptStore(CannotOpen):
    """The file is not a readable store. It is left as it is."""


class Watch(Protocol):
    """A subscription to durable changes, in revision order, without gaps.

    Iterating yields batches, which are shared: do not change them. One is empty only after a
    `nudge`. Raises TooFarBehind if this watcher was dropped, StoreFailed if the store broke.
    """

    def __aiter__(self) -> AsyncIterator[Sequence[Change]]: ...

    async def __anext__(self) -> Sequence[Change]: ...

    def nudge(self) -> None:
        """Yield an empty batch once everything that is durable by then was yielded: for a
        consumer that has something to do at a certain time, whether or not there are changes."""

    def close(self) -> None:
        """Stop; idempotent. A pending `__anext__` raises StopAsyncIteration."""


class StagingStore(Protocol):
    """The part of the store that deciding a write needs."""

    @property
    def revision(self) -> int:
        """The newest durable revision; at least 1, also when nothing was ever written."""

    @property
    def damaged(self) -> Mapping[Key, int]:
        """Objects whose documents cannot be read, with their revisions. They are in no list."""

    def newest(self, key: Key) -> Stored | None:
        """The newest staged version: what a write will be checked against. Raises
        DamagedDocument."""

    def newest_is_damaged(self, key: Key) -> bool:
        """Whether an object is damaged, and its deletion is not staged yet."""

    def discard(self, key: Key) -> int:
        """Stage the deletion of a damaged object; returns its revision. Watchers get no event for
        it, as they got none for the object."""

    def stage(
        self,
        key: Key,
        expected: int,
        encode: Callable[[int], bytes] | None,
        *,
        cold: bool = False,
        quiet: bool = False,
    ) -> Stored | None:
        """Put or delete (encode None) an object whose newest staged revision is `expected`.

        `expected` 0 means the object must not exist. `encode` gets the revision of this
        write and returns the document; if it raises, nothing is staged. Returns the staged
        version (None for a deletion's document; the deletion still takes a revision). Raises
        RevisionMismatch.

        `cold` says that this version will rarely be read, as of a finished Pod: its value is
        kept on disk only. `quiet` is passed on to watchers.
        """

    @property
    def staged_revision(self) -> int:
        """The newest revision handed out by `stage`."""


class Store(StagingStore, Protocol):
    @property
    def pending_revision(self) -> int:
        """The newest staged revision that is neither on disk nor rolled back, or 0."""

    @property
    def rollbacks(self) -> int:
        """How often a commit failed, and with it all that was staged."""

    @property
    def compacted(self) -> int:
        """Watches and snapshots must start at or after this revision."""

    def get(self, key: Key) -> Stored | None:
        """The newest durable version. Raises DamagedDocument."""

    def committed_at(self, revision: int) -> datetime | None:
        """When a revision was committed, to the second; None if that was before this process."""

    def warm(self, keys: Sequence[Key]) -> None:
        """Read those of these objects that are cold with one statement, ahead of writing them in
        the same turn of the loop. Only saves time."""

    async def durable(self, revision: int) -> None:
        """Wait until everything up to `revision` is on disk and visible to readers.

        Raises CommitFailed if the write with this revision was rolled back.
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
        """Objects in key order (namespace, then name), consistent at one revision.

        `namespace` "" means all. `limit` 0 means all. `at` names the snapshot of an earlier
        page; raises Compacted when it is gone. Cold objects are read from disk: for a list that
        may be long, use `pages`.
        """

    def pages(self, resource: str, namespace: str = "", *, size: int = 500) -> AsyncIterator[Page]:
        """A whole list in pages of one snapshot, letting the loop run between them."""

    def count(self, resource: str, namespace: str = "") -> int:
        """How many durable objects there are; cheap."""

    def watch(self, resource: str, namespace: str = "", *, after: int) -> Watch:
        """All durable changes with a revision above `after`. Raises Compacted."""

    async def close(self) -> None:
        """Make everything staged durable, then stop."""
