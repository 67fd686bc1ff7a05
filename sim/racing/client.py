"""In-process client with slow requests."""

import asyncio

from onejob.client.base import Delete, Op, Written
from onejob.objects.meta import Key
from sim.api import FaultyClient

#: Maximum duration of a request.
MAX_REQUEST_SECONDS = 1.0


class SlowClient(FaultyClient):
    """`FaultyClient` whose reads and writes take a while."""

    async def get(self, key: Key) -> bytes:
        """Return the document late: it may be outdated by then."""
        document = await super().get(key)
        if self._happens("slow read"):
            await asyncio.sleep(self._dice.up_to("slow read", MAX_REQUEST_SECONDS))
        return document

    async def write(self, op: Op) -> Written:
        # Deletions with only a UID precondition follow a read of the object, as in Kubernetes: a
        # change of its owners between the two comes too late.
        unconditional = isinstance(op, Delete) and not op.resource_version
        if not unconditional and self._happens("slow write"):
            await asyncio.sleep(self._dice.up_to("slow write", MAX_REQUEST_SECONDS))
        return await super().write(op)
