"""Controller of the status of validating admission policies: results of their type checks.

Created with the first policy.
"""

from collections.abc import Awaitable, Callable

import msgspec

from onejob.admission_policies.definitions import VALIDATING
from onejob.admission_policies.type_checking import check_types
from onejob.api.schema.schema import Schema
from onejob.client.base import Client, Patch
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.meta import Key
from onejob.wire.errors import NotFound
from onejob.wire.registry import KindRegistry


class PolicyStatus:
    def __init__(
        self,
        client: Callable[[], Client],
        settled: Callable[[], Awaitable[None]],
        kinds: KindRegistry,
        schema: Schema,
    ) -> None:
        """`settled` waits until all staged writes are durable: `changed` is called before."""
        self._settled = settled
        self._client = client
        self._kinds = kinds
        self._schema = schema
        self._queue: WorkQueue[str] = WorkQueue()

    async def run(self) -> None:
        """Process the queue until cancelled."""
        await work(self._queue, self._sync, workers=1, name="validatingadmissionpolicy-status")

    def changed(self, name: str) -> None:
        """Handle the creation or change of a policy."""
        self._queue.add(name)

    async def _sync(self, name: str) -> None:
        await self._settled()
        client, key = self._client(), Key(VALIDATING, "", name)
        try:
            policy = msgspec.json.decode(await client.get(key))
            generation = policy["metadata"].get("generation", 1)
            if generation <= (policy.get("status") or {}).get("observedGeneration", 0):
                return
            warnings = check_types(policy["spec"], self._kinds, self._schema)
            # Null removes the warnings of an earlier generation.
            checked = {"expressionWarnings": [each.document() for each in warnings] or None}
            status = {"observedGeneration": generation, "typeChecking": checked}
            metadata = {"uid": policy["metadata"]["uid"]}
            body = msgspec.json.encode({"metadata": metadata, "status": status})
            await client.write(Patch(key, body, "merge", "status"))
        except NotFound:
            return
