"""Memory budget for objects received from targets: a hostile one could list and watch for ever."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from onejob.client.answers import Unreachable
from onejob.client.base import Client, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.objects.meta import Key
from onejob.wire.errors import Expired

#: Bytes of documents that the caches of all targets may hold together.
_MAX_BYTES: Final = 128 * 2**20


class Intake:
    """Memory budget of all targets.

    A target within its share is never refused, so that a flood of objects from one target does not
    stop the others.
    """

    def __init__(self, most_bytes: int = _MAX_BYTES) -> None:
        self._most_bytes = most_bytes
        self._clients: set[CountedClient] = set()

    def counted(self, client: Client) -> "CountedClient":
        """Return a client whose cached objects count towards the memory limit."""
        counted = CountedClient(client, self)
        self._clients.add(counted)
        return counted

    def drop(self, client: "CountedClient") -> None:
        """Stop counting a client."""
        self._clients.discard(client)

    def has_room(self, client: "CountedClient") -> bool:
        share = self._most_bytes / max(len(self._clients), 1)
        return client.held_bytes <= share or (
            sum(each.held_bytes for each in self._clients) <= self._most_bytes
        )


class CountedClient:
    """Target client whose lists and watches are charged to an `Intake`.

    The charge is an upper bound of the memory held by the caches that they fill.
    """

    def __init__(self, client: Client, intake: Intake) -> None:
        self._client = client
        self._intake = intake
        self._held: dict[Selection, int] = {}

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    def stop(self) -> None:
        """Release the budget; the caches no longer exist."""
        self._held.clear()
        self._intake.drop(self)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        """Return a page, counted against the budget. Raises Unreachable if there is no room for
        it."""
        if not token:
            self._held[what] = 0
        page = await self._client.list(what, limit=limit, token=token)
        self._charge(what, sum(map(len, page.documents)))
        if not self._intake.has_room(self):
            raise Unreachable(f"the {what.resource} of this target need too much memory")
        return page

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Yield the batches of a watch, counted against the budget. Raises Expired if there is no
        more room: a new list releases replaced objects."""
        async with aclosing(self._client.watch(what, after=after)) as batches:
            async for batch in batches:
                self._charge(what, sum(len(event.document) for event in batch))
                if not self._intake.has_room(self):
                    raise Expired(f"the {what.resource} of this target need too much memory")
                yield batch

    def _charge(self, what: Selection, size: int) -> None:
        """Add bytes to the amount that a selection holds."""
        self._held[what] = self._held.get(what, 0) + size

    async def get(self, key: Key) -> bytes:
        return await self._client.get(key)

    async def write(self, op: Op) -> Written:
        return await self._client.write(op)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        return await self._client.write_many(ops)

    async def close(self) -> None:
        await self._client.close()
