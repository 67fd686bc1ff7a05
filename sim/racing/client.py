"""The in-process client with requests that take a while."""

import asyncio

from onejob.client.base import Delete, Op, Written
from onejob.objects.meta import Key
from sim.api import FaultyClient

#: How long a request takes at most.
LONGEST_SECONDS = 1.0


class SlowClient(FaultyClient):
    async def get(self, key: Key) -> bytes:
        """The answer is late: what it says may not be so any more."""
        document = await super().get(key)
        if self._happens("slow read"):
            await asyncio.sleep(self._dice.up_to("slow read", LONGEST_SECONDS))
        return document

    async def write(self, op: Op) -> Written:
        # Deletions by UID alone follow a look at the object, as in Kubernetes: whoever changes its
        # owners between the two is too late.
        unconditional = isinstance(op, Delete) and not op.resource_version
        if not unconditional and self._happens("slow write"):
            await asyncio.sleep(self._dice.up_to("slow write", LONGEST_SECONDS))
        return await super().write(op)
