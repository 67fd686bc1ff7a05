"""Watch events shared by many watchers, encoded once.

Watchers without selectors receive the same batches of changes from the store. The first watcher
that needs an encoding creates it; it is cached with the batch for the others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from onejob.store.base import Change
from onejob.wire.requests import WatchEvent

#: Total document size of cached batches; watchers that are further behind encode their own.
_MAX_BYTES = 4 * 1024 * 1024

T = TypeVar("T")

Cut: TypeAlias = Callable[[Sequence[WatchEvent], int], Iterator[Sequence[WatchEvent]]]


class SharedBatch(list[WatchEvent]):
    """Batch of events shared between watchers. Must not be modified."""

    __slots__ = ("_made", "_making", "_slices")

    def __init__(self, events: Sequence[WatchEvent]) -> None:
        super().__init__(events)
        self._made: dict[Hashable, Sequence[Any]] = {}
        self._making: dict[Hashable, asyncio.Future[Sequence[Any]]] = {}
        self._slices: dict[int, Sequence[SharedBatch]] = {}

    def made(self, form: Hashable, make: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return the result of `make`, cached for all callers with this `form`."""
        found = self._made.get(form)
        if found is None:
            found = self._made[form] = make()
        return found

    async def cached_async(
        self, form: Hashable, make: Callable[[], Coroutine[Any, Any, Sequence[T]]]
    ) -> Sequence[T]:
        """Return the result of an asynchronous `make`, cached by `form`.

        Concurrent callers wait for the first.
        """
        found = self._made.get(form)
        if found is None:
            making = self._making.get(form)
            if making is None:
                making = self._making[form] = asyncio.ensure_future(make())
            # The first caller may be cancelled while others still wait for its result.
            found = self._made[form] = await asyncio.shield(making)
            self._making.pop(form, None)
        return found

    def slices(self, turn_bytes: int, cut: Cut) -> "Sequence[SharedBatch]":
        """Return the slices that `cut` produces; they are shared as well."""
        found = self._slices.get(turn_bytes)
        if found is None:
            parts = list(cut(self, turn_bytes))
            found = [self] if len(parts) == 1 else [SharedBatch(part) for part in parts]
            self._slices[turn_bytes] = found
        return found


class SharedBatches:
    def __init__(self) -> None:
        #: Entries by the identity of the changes, which are kept so that the identity stays unique.
        self._kept: dict[int, tuple[Sequence[Change], SharedBatch, int]] = {}
        self._bytes = 0

    def of(
        self, changes: Sequence[Change], make: Callable[[Sequence[Change]], Sequence[WatchEvent]]
    ) -> Sequence[WatchEvent]:
        """Return the events of `changes` for a watcher without selectors, cached."""
        kept = self._kept.get(id(changes))
        if kept is not None:
            return kept[1]
        batch = SharedBatch(make(changes))
        size = sum(map(len, [event.document for event in batch]))
        self._kept[id(changes)] = changes, batch, size
        self._bytes += size
        while self._bytes > _MAX_BYTES:
            *_, size = self._kept.pop(next(iter(self._kept)))
            self._bytes -= size
        return batch
