"""What the store promises; `onejob.store.log` keeps the promise on SQLite.

All methods are called on the event loop's thread. Writes are two steps so that a caller can
read, decide and write without anything coming between: `stage` is synchronous and sees the
newest staged state; `durable` is awaited before anybody is told of the write. Reads, lists
and watches see only what is durable.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onejob.objects.meta import Key


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object. `value` is the whole document, resourceVersion included."""

    key: Key
    revision: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the log, as watchers see it.

    `value` None means deleted; then `previous` is the last document. `previous` is None for a
    creation. `created` revisions let a watcher tell ADDED from MODIFIED.
    """

    key: Key
    revision: int
    value: bytes | None
    previous: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    items: Sequence[Stored]
    revision: int
    #: The key to continue after, or None when the list is complete.
    next_after: Key | None
    #: How many objects follow this page, where it is known cheaply.
    remaining: int | None


class RevisionMismatch(Exception):
    """Compare-and-swap failed: the object is not at the expected revision."""

    def __init__(self, key: Key, expected: int, actual: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {actual}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(Exception):
    """The asked-for revision is older than the history that is kept."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} is compacted; the oldest kept is {oldest}")
        self.revision, self.oldest = revision, oldest


class TooFarBehind(Exception):
    """A watcher was dropped because it did not keep up. It may resume from its last revision."""


class Watch(Protocol):
    """A subscription to durable changes, in revision order, without gaps.

    Iterating yields non-empty batches. Raises TooFarBehind if this watcher was dropped.
    """

    def __aiter__(self) -> AsyncIterator[Sequence[Change]]: ...

    async def __anext__(self) -> Sequence[Change]: ...

    def close(self) -> None:
        """Stop; idempotent. A pending `__anext__` raises StopAsyncIteration."""


class Store(Protocol):
    @property
    def revision(self) -> int:
        """The newest durable revision."""

    @property
    def compacted(self) -> int:
        """Watches and snapshots must start at or after this revision."""

    def get(self, key: Key) -> Stored | None:
        """The newest durable version."""

    def newest(self, key: Key) -> Stored | None:
        """The newest staged version: what a write will be checked against."""

    def stage(
        self, key: Key, expected: int, encode: Callable[[int], bytes] | None
    ) -> Stored | None:
        """Put or delete (encode None) an object whose newest staged revision is `expected`.

        `expected` 0 means the object must not exist. `encode` gets the revision of this
        write and returns the document. Returns the staged version (None for a deletion's
        document; the deletion still takes a revision). Raises RevisionMismatch.
        """

    @property
    def staged_revision(self) -> int:
        """The newest revision handed out by `stage`."""

    async def durable(self, revision: int) -> None:
        """Wait until everything up to `revision` is on disk and visible to readers."""

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
        page; raises Compacted when it is gone.
        """

    def count(self, resource: str, namespace: str = "") -> int:
        """How many durable objects there are; cheap."""

    def watch(self, resource: str, namespace: str = "", *, after: int) -> Watch:
        """All durable changes with a revision above `after`. Raises Compacted."""

    async def close(self) -> None:
        """Make everything staged durable, then stop."""
