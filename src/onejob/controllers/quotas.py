"""ResourceQuota status: write the current usage of each quota.

The API server keeps the authoritative count for admission (`api/admission/quotas.py`); this
controller only publishes it, at most a few times a second per namespace however many Pods come and
go there.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from onejob.client.base import Client, Patch
from onejob.clock import Clock
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.meta import Key
from onejob.wire.errors import NotFound
from onejob.wire.quantity import Quantity

_RESOURCE: Final = "resourcequotas"
_PAUSE_SECONDS: Final = 0.5


class QuotaUsage(Protocol):
    """Source of quota usage: `onejob.api.admission.quotas.Quotas`."""

    on_change: Callable[[str], None] | None

    @property
    def namespaces(self) -> Iterable[str]:
        """Namespaces with quotas."""

    def used(
        self, namespace: str
    ) -> Mapping[str, tuple[Mapping[str, Quantity], Mapping[str, Quantity]]]:
        """Return limits and usage of each quota of a namespace, by its name."""


class QuotaController:
    """Controller of ResourceQuota status."""

    def __init__(self, client: Client, usage: QuotaUsage, *, clock: Clock) -> None:
        self._client = client
        self._usage = usage
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue()
        #: Monotonic time of the last write of a namespace's quotas.
        self._written: dict[str, float] = {}
        usage.on_change = self._queue.add

    async def run(self) -> None:
        """Process the queue until cancelled, beginning with all namespaces."""
        for namespace in self._usage.namespaces:
            self._queue.add(namespace)
        await work(self._queue, self.sync, workers=1, name="resourcequota")

    async def sync(self, namespace: str) -> float | None:
        """Write the status of a namespace's quotas, at most once per pause.

        Returns the seconds after which to sync again, or None.
        """
        now = self._clock.monotonic()
        wait = self._written.get(namespace, now - _PAUSE_SECONDS) + _PAUSE_SECONDS - now
        if wait > 0:
            return wait
        found = self._usage.used(namespace)
        if not found:
            self._written.pop(namespace, None)
            return None
        self._written[namespace] = now
        for name, (hard, used) in found.items():
            await self._write(Key(_RESOURCE, namespace, name), hard, used)
        return None

    async def _write(
        self, key: Key, hard: Mapping[str, Quantity], used: Mapping[str, Quantity]
    ) -> None:
        """Replace the status of a quota."""
        status = {
            field: {name: str(amount) for name, amount in sorted(amounts.items())}
            for field, amounts in (("hard", hard), ("used", used))
        }
        # Replaces the whole status, and so removes resources that are no longer bounded.
        body = msgspec.json.encode([{"op": "add", "path": "/status", "value": status}])
        try:
            await self._client.write(Patch(key, body, "json", "status"))
        except NotFound:
            # The quota was deleted, and needs no status.
            return
