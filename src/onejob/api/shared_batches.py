"""Events that many watchers get alike, made once for all of them.

Watchers without selectors get the same batches of changes from the store. Each form in which
clients want them is made by the first one and kept with the batch for the others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from onejob.store.base import Change
from onejob.wire.requests import WatchEvent

#: Of documents in the batches that are kept: watchers that are further behind make their own.
_MOST_BYTES = 4 * 1024 * 1024

T = TypeVar("T")

Cut: TypeAlias = Callable[[Sequence[WatchEvent], int], Iterator[Sequence[WatchEvent]]]


class SharedBatch(list[WatchEvent]):
    """Not to be changed."""

    __slots__ = ("_made", "_making", "_slices")

    def __init__(self, events: Sequence[WatchEvent]) -> None:
        super().__init__(events)
        self._made: dict[Hashable, Sequence[Any]] = {}
        self._making: dict[Hashable, asyncio.Future[Sequence[Any]]] = {}
        self._slices: dict[int, Sequence[SharedBatch]] = {}

    def made(self, form: Hashable, make: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return the result of `make`, which is the same for every caller with this `form`."""
        found = self._made.get(form)
        if found is None:
            found = self._made[form] = make()
        return found

    async def made_later(
        self, form: Hashable, make: Callable[[], Coroutine[Any, Any, Sequence[T]]]
    ) -> Sequence[T]:
        """The same where making takes a while: callers that come meanwhile wait for the first."""
        found = self._made.get(form)
        if found is None:
            making = self._making.get(form)
            if making is None:
                making = self._making[form] = asyncio.ensure_future(make())
            # The first caller may leave; the others still wait for what it began.
            found = self._made[form] = await asyncio.shield(making)
            self._making.pop(form, None)
        return found

    def slices(self, turn_bytes: int, cut: Cut) -> "Sequence[SharedBatch]":
        """Parts of it, as `cut` cuts them, that are shared in their turn."""
        found = self._slices.get(turn_bytes)
        if found is None:
            parts = list(cut(self, turn_bytes))
            found = [self] if len(parts) == 1 else [SharedBatch(part) for part in parts]
            self._slices[turn_bytes] = found
        return found


class SharedBatches:
    def __init__(self) -> None:
        #: By the identity of the changes, which are kept so that it stays theirs.
        self._kept: dict[int, tuple[Sequence[Change], SharedBatch, int]] = {}
        self._bytes = 0

    def of(
        self, changes: Sequence[Change], make: Callable[[Sequence[Change]], Sequence[WatchEvent]]
    ) -> Sequence[WatchEvent]:
        """The events of changes, for a watcher that gets all of them."""
        kept = self._kept.get(id(changes))
        if kept is not None:
            return kept[1]
        batch = SharedBatch(make(changes))
        size = sum(map(len, [event.document for event in batch]))
        self._kept[id(changes)] = changes, batch, size
        self._bytes += size
        while self._bytes > _MOST_BYTES:
            *_, size = self._kept.pop(next(iter(self._kept)))
            self._bytes -= size
        return batch
