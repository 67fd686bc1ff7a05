"""Intercepting clients between a controller and the server."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from onejob.client.base import Client, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.objects.meta import Key

#: May wait, or return a result in the server's place.
BeforeWrite = Callable[[Op], Awaitable[Result | None]]
AfterWrite = Callable[[Op, Result], Awaitable[Result]]


async def _no_answer(op: Op) -> Result | None:
    return None


async def _as_it_is(op: Op, result: Result) -> Result:
    return result


class Interceptor:
    """Client that passes everything on by default; writes go one at a time."""

    def __init__(
        self, inner: Client, before: BeforeWrite = _no_answer, after: AfterWrite = _as_it_is
    ) -> None:
        self._inner = inner
        self._before = before
        self._after = after
        self._held_back: dict[str, asyncio.Event] = {}
        self._lists_go_on: set[str] = set()
        self.written: list[Op] = []

    def hold_back(self, resource: str, *, lists: bool = True) -> None:
        """Delay watches of a resource, and lists, until it is released."""
        self._held_back[resource] = asyncio.Event()
        if not lists:
            self._lists_go_on.add(resource)

    def release(self, resource: str) -> None:
        self._held_back[resource].set()

    async def get(self, key: Key) -> bytes:
        return await self._inner.get(key)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        if what.resource not in self._lists_go_on:
            await self._released(what)
        return await self._inner.list(what, limit=limit, token=token)

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async for batch in self._inner.watch(what, after=after):
            await self._released(what)
            yield batch

    async def write(self, op: Op) -> Written:
        (result,) = await self.write_many([op])
        if isinstance(result, Written):
            return result
        raise result

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        return [await self._write(op) for op in ops]

    async def close(self) -> None:
        await self._inner.close()

    async def _write(self, op: Op) -> Result:
        answer = await self._before(op)
        if answer is not None:
            return answer
        self.written.append(op)
        (result,) = await self._inner.write_many([op])
        return await self._after(op, result)

    async def _released(self, what: Selection) -> None:
        held_back = self._held_back.get(what.resource)
        if held_back is not None:
            await held_back.wait()
