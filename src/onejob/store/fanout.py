"""Watch fan-out: delivers durable changes to watchers.

Batches are built once per commit and shared by all watchers. A slow watcher is dropped rather than
waited for.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

from onejob.objects.meta import Key
from onejob.store.base import Change, Compacted, StoreError, TooFarBehind
from onejob.store.checksums import DAMAGED
from onejob.store.limits import MIB, Limits

#: Number of revisions that a watcher catching up from disk reads at a time.
CATCH_UP_REVISIONS = 1_000
CATCH_UP_BYTES = 4 * MIB
_ENTRY_BYTES = 160
#: Number of watchers of one change that are woken per iteration of the event loop.
_WAKES_PER_TURN = 32


class ChangeLog(Protocol):
    """The log on disk, for watchers that lag behind the in-memory changes."""

    def changes(
        self, resource: str, namespace: str, *, after: int, upto: int, most_bytes: int
    ) -> tuple[list[Change], int]:
        """Return the changes in a range of revisions, up to a size, and the revision that they
        reach."""


class Fanout:
    """Registry of watchers, and their source of durable changes.

    Guarantees: each watcher receives every change above its start revision, in revision order and
    without gaps, or ends with TooFarBehind. `publish` never waits for a watcher. `watch` raises
    Compacted if its start revision is no longer retained.

    Concurrency: used on the event loop's thread only.
    """

    def __init__(
        self,
        log: ChangeLog,
        *,
        revision: int,
        compacted: int,
        limits: Limits,
        damaged: Mapping[Key, int],
    ) -> None:
        self._log = log
        self._damaged = damaged
        self._limits = limits
        self.compacted = compacted
        self.revision = revision
        #: The newest changes, without gaps: all with a revision above `_recent_after`.
        self._recent: deque[Change] = deque()
        self._recent_after = revision
        self._recent_bytes = 0
        #: Resource -> namespace ("" for all) -> watchers, in order of registration: the order of a
        #: set would differ in each run of a simulation.
        self._live: dict[str, dict[str, dict[LogWatch, None]]] = {}
        self._behind: dict[LogWatch, None] = {}
        #: Watchers with queued changes that are still to be woken, in this order.
        self._to_wake: dict[LogWatch, None] = {}
        #: Total bytes of documents ever delivered. Watchers share the documents, so the queued
        #: bytes are the ones delivered since the slowest watcher last read.
        self.delivered_bytes = 0
        #: Memory of the queues themselves, without the documents, in bytes.
        self.queue_bytes = 0
        self._slowest_at = 0

    def publish(self, changes: Sequence[Change], size: int) -> None:
        """Deliver the changes of one commit, which became durable."""
        self.revision = changes[-1].revision
        self._add_to_recent(changes, size)
        by_resource: dict[str, list[Change]] = {}
        for change in changes:
            resource = change.key.resource
            if resource in by_resource:
                by_resource[resource].append(change)
            elif resource in self._live:
                by_resource[resource] = [change]
        for resource, batch in by_resource.items():
            batch_size = size if len(batch) == len(changes) else _size(batch)
            self._deliver(self._live[resource], batch, batch_size)
            self.delivered_bytes += batch_size
        if self._waiting_bytes() > self._limits.all_watches_bytes:
            self._drop_slowest()

    def watch(self, resource: str, namespace: str, after: int) -> "LogWatch":
        """Return a watch of all changes after a revision. Raises Compacted."""
        if after < self.compacted:
            raise Compacted(after, self.compacted)
        watch = LogWatch(self, resource, namespace, after, self._limits)
        self._behind[watch] = None
        self.advance(watch)
        return watch

    def advance(self, watch: "LogWatch") -> bool:
        """Make a watcher live if the in-memory changes reach back far enough.

        Returns whether it is live now.
        """
        if watch.after < self._recent_after:
            return False
        backlog: list[Change] = []
        for change in reversed(self._recent):
            if change.revision <= watch.after:
                break
            if watch.wants(change):
                backlog.append(change)
        if backlog:
            backlog.reverse()
            watch.push(backlog, _size(backlog))
        self._behind.pop(watch, None)
        watchers = self._live.setdefault(watch.resource, {})
        watchers.setdefault(watch.namespace, {})[watch] = None
        watch.live = True
        return True

    def read_past(self, watch: "LogWatch") -> Sequence[Change]:
        """Return the next changes from disk for a watcher that is behind; may be empty.

        Raises TooFarBehind if the history was compacted or is damaged.
        """
        if watch.after < self.compacted:
            raise TooFarBehind(
                f"history up to {self.compacted} was compacted while {watch} caught up"
            )
        changes, watch.after = self._log.changes(
            watch.resource,
            watch.namespace,
            after=watch.after,
            upto=min(self.revision, watch.after + CATCH_UP_REVISIONS),
            most_bytes=CATCH_UP_BYTES,
        )
        if self._damaged:
            changes = [c for c in changes if self._damaged.get(c.key) != c.revision]
        for change in changes:
            if change.value is DAMAGED or change.previous is DAMAGED:
                # A client that lists again gets the undamaged objects, and needs no history.
                raise TooFarBehind(f"the history of {change.key} is damaged")
        return changes

    def leave(self, watch: "LogWatch") -> None:
        """Remove a watch."""
        self._behind.pop(watch, None)
        watchers = self._live.get(watch.resource, {})
        place = watchers.get(watch.namespace, {})
        place.pop(watch, None)
        if not place:
            watchers.pop(watch.namespace, None)
        if not watchers:
            self._live.pop(watch.resource, None)

    def end(self, error: StoreError | None = None) -> None:
        """End all watches, with an error or orderly."""
        live = [w for places in self._live.values() for place in places.values() for w in place]
        for watch in (*live, *self._behind):
            watch.end(error)

    def _waiting_bytes(self) -> int:
        """Return an upper bound: `_slowest_at` dates from the last comparison of the watchers."""
        return self.queue_bytes + self.delivered_bytes - self._slowest_at

    def _drop_slowest(self) -> None:
        waiting = sorted(
            (watch for places in self._live.values() for place in places.values()
             for watch in place if watch.waits_since is not None),
            key=lambda watch: watch.waits_since or 0,
        )  # fmt: skip
        for watch in waiting:
            self._slowest_at = watch.waits_since or 0
            if self._waiting_bytes() <= self._limits.all_watches_bytes:
                return
            watch.end(TooFarBehind(f"{watch} is the slowest watch, and its queue is too long"))
        self._slowest_at = self.delivered_bytes

    def _deliver(
        self, watchers: "dict[str, dict[LogWatch, None]]", batch: list[Change], batch_size: int
    ) -> None:
        """Deliver a batch of one resource to the watches of its namespaces."""
        by_namespace: dict[str, list[Change]] = {"": batch}
        if len(watchers) > ("" in watchers):
            for change in batch:
                namespace = change.key.namespace
                if namespace and namespace in watchers:
                    by_namespace.setdefault(namespace, []).append(change)
        for namespace, changes in by_namespace.items():
            # A copy, because a dropped watcher is removed from the set.
            if interested := tuple(watchers.get(namespace, ())):
                size = batch_size if changes is batch else _size(changes)
                at_once = len(interested) <= _WAKES_PER_TURN
                for watch in interested:
                    watch.push(changes, size, wake=at_once)
                if not at_once:
                    self._wake_in_turns(interested)

    def _wake_in_turns(self, watches: "Sequence[LogWatch]") -> None:
        """Wake a few watchers per iteration of the event loop; other tasks run in between."""
        scheduled = bool(self._to_wake)
        self._to_wake.update(dict.fromkeys(watches))
        if not scheduled:
            self._wake_batch()

    def _wake_batch(self) -> None:
        for watch in tuple(islice(self._to_wake, _WAKES_PER_TURN)):
            del self._to_wake[watch]
            watch.wake_up()
        if self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_batch)

    def _add_to_recent(self, changes: Sequence[Change], size: int) -> None:
        """Keep changes for watches that are behind; the oldest ones make room."""
        recent = self._recent
        recent.extend(changes)
        self._recent_bytes += size
        while len(recent) > self._limits.recent_changes or (
            self._recent_bytes > self._limits.recent_bytes
        ):
            forgotten = recent.popleft()
            self._recent_bytes -= weight(forgotten)
            self._recent_after = forgotten.revision


class LogWatch:
    """Watch of one consumer.

    It starts behind (reading from disk, nothing queued), then becomes live.
    """

    def __init__(
        self, fanout: Fanout, resource: str, namespace: str, after: int, limits: Limits
    ) -> None:
        self._fanout = fanout
        self.resource = resource
        self.namespace = namespace
        #: Revision up to which all changes were delivered or queued.
        self.after = after
        self._limits = limits
        #: Changes, their size in bytes, and `delivered_bytes` before them.
        self._batches: deque[tuple[Sequence[Change], int, int]] = deque()
        self._waiting_changes = 0
        self._waiting_bytes = 0
        self.live = False
        self._nudged = False
        self._ended = False
        self._error: StoreError | None = None
        self._wake: asyncio.Future[None] | None = None

    def __str__(self) -> str:
        return f"a watch of {self.resource} in {self.namespace or 'all namespaces'}"

    def __aiter__(self) -> "LogWatch":
        return self

    async def __anext__(self) -> Sequence[Change]:
        while not self._ended:
            if self._batches:
                batch, size, _ = self._batches.popleft()
                self._fanout.queue_bytes -= _queue_bytes(batch)
                self._waiting_changes -= len(batch)
                self._waiting_bytes -= size
                return batch
            if self.live:
                if self._nudged:
                    self._nudged = False
                    return ()
                await self._sleep()
            elif not self._fanout.advance(self):
                # Reading a long history must not block the event loop.
                await asyncio.sleep(0)
                if not self._ended and (batch := self._read_past()):
                    return batch
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def wants(self, change: Change) -> bool:
        """Return whether the watch selects the change."""
        key = change.key
        return key.resource == self.resource and self.namespace in ("", key.namespace)

    def push(self, batch: Sequence[Change], size: int, *, wake: bool = True) -> None:
        """Queue changes. Without `wake`, the caller wakes the consumer later."""
        if batch[0].revision <= self.after:
            batch = [change for change in batch if change.revision > self.after]
            if not batch:
                return
        limits = self._limits
        # The first batch is always queued, whatever its size: the watcher had kept up.
        if self._batches and (
            self._waiting_changes + len(batch) > limits.watch_changes
            or self._waiting_bytes + size > limits.watch_bytes
        ):
            self.end(TooFarBehind(f"{self} is {self._waiting_changes} changes behind"))
            return
        self._batches.append((batch, size, self._fanout.delivered_bytes))
        self._fanout.queue_bytes += _queue_bytes(batch)
        self._waiting_changes += len(batch)
        self._waiting_bytes += size
        if wake:
            self.wake_up()

    def end(self, error: StoreError | None) -> None:
        """End the watch, with an error or without."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._fanout.queue_bytes -= sum(_queue_bytes(batch) for batch, _, _ in self._batches)
        self._batches.clear()
        self._fanout.leave(self)
        self.wake_up()

    @property
    def waits_since(self) -> int | None:
        """`delivered_bytes` when the oldest queued batch was added; None if nothing is queued."""
        return self._batches[0][2] if self._batches else None

    def nudge(self) -> None:
        """Wake the consumer even without a change."""
        self._nudged = True
        self.wake_up()

    def close(self) -> None:
        """End the watch; its iterator stops."""
        self.end(None)

    def _read_past(self) -> Sequence[Change]:
        try:
            return self._fanout.read_past(self)
        except TooFarBehind as error:
            self.end(error)
            return ()

    async def _sleep(self) -> None:
        """Wait until woken."""
        assert self._wake is None, "a watch has one consumer"
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def weight(change: Change) -> int:
    """Return the approximate memory of a change in bytes: its document."""
    document = change.value if change.value is not None else change.previous
    return len(document) if document is not None else 0


def _queue_bytes(batch: Sequence[Change]) -> int:
    """Return the memory of a batch in one watcher's queue in bytes, without its documents."""
    return _ENTRY_BYTES + 8 * len(batch)


def _size(changes: Sequence[Change]) -> int:
    """Return the weight of the changes."""
    return sum(
        [weight(change) if change.value is None else len(change.value) for change in changes]
    )
