"""A client that does to a controller what networks, restarts and caches do to it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from random import Random

from onejob.client.base import Client, Listing, Op, Result, Selection, WatchEvent, Written
from onejob.objects.meta import Key
from onejob.wire.errors import Expired, InternalError


@dataclass(frozen=True)
class Faults:
    """How often things go wrong, each as a probability."""

    #: A write is refused and does not happen.
    refused_write: float = 0.03
    #: A write happens, but its answer is lost.
    lost_answer: float = 0.03
    #: A batch of watch events comes late, so that caches are stale.
    late_batch: float = 0.3
    longest_delay_seconds: float = 2.0
    #: A watch ends, or its history is gone.
    broken_watch: float = 0.02
    forgotten_history: float = 0.02


class FaultyClient:
    """Implements `Client` on another one. `heal` ends all faults, so that liveness can be
    checked: whatever happened before, the system must converge now."""

    def __init__(self, inner: Client, faults: Faults, rng: Random) -> None:
        self._inner = inner
        self._faults = faults
        self._rng = rng
        self._healthy = False

    def heal(self) -> None:
        self._healthy = True

    async def get(self, key: Key) -> bytes:
        self._maybe_refuse()
        return await self._inner.get(key)

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        self._maybe_refuse()
        return await self._inner.list(what, limit=limit, token=token)

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async with aclosing(self._inner.watch(what, after=after)) as batches:
            async for batch in batches:
                if self._happens(self._faults.late_batch):
                    await asyncio.sleep(self._rng.random() * self._faults.longest_delay_seconds)
                if self._happens(self._faults.forgotten_history):
                    raise Expired("the simulation forgot its history")
                yield batch
                if self._happens(self._faults.broken_watch):
                    return

    async def write(self, op: Op) -> Written:
        (result,) = await self.write_many([op])
        if isinstance(result, Written):
            return result
        raise result

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results: list[Result] = []
        for op in ops:
            if self._happens(self._faults.refused_write):
                results.append(InternalError("the simulation refused the write"))
                continue
            (result,) = await self._inner.write_many([op])
            if self._happens(self._faults.lost_answer):
                result = InternalError("the simulation lost the answer")
            results.append(result)
        return results

    async def close(self) -> None:
        await self._inner.close()

    def _happens(self, probability: float) -> bool:
        return not self._healthy and self._rng.random() < probability

    def _maybe_refuse(self) -> None:
        if self._happens(self._faults.refused_write):
            raise InternalError("the simulation refused the read")
