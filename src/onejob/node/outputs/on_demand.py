"""Lazy start of the keeper of outputs: without outputs there is no thread, task or import."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onejob.client.base import Client
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.node.options import OutputRetention
from onejob.objects.pod import Pod

if TYPE_CHECKING:
    from onejob.node.outputs.keeping import OutputKeeper


class OutputsOnDemand:
    """Keeper of outputs (`OutputKeeper`) that exists once there are any."""

    def __init__(
        self, data_dir: Path, clock: Clock, retention: OutputRetention, client: Client
    ) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._retention = retention
        self._client = client
        self._keeper: OutputKeeper | None = None
        self._started = False
        if (data_dir / "outputs").exists():
            self._keeper = self._make()
            self._keeper.inherit()

    def start(self) -> None:
        """Begin to measure and prune. Call once all existing Pods were passed to `pods_changed`."""
        self._started = True
        if self._keeper is not None:
            self._keeper.start()

    def opened(self, namespace: str, name: str, uid: str) -> None:
        """Watch the directory of a Pod that is about to start."""
        if self._keeper is None:
            self._keeper = self._make()
            if self._started:
                self._keeper.start()
        self._keeper.opened(namespace, name, uid)

    def pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        if self._keeper is not None:
            self._keeper.pods_changed(deltas)

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.close()

    def _make(self) -> "OutputKeeper":
        from onejob.node.outputs.keeping import OutputKeeper

        return OutputKeeper(self._data_dir, self._clock, self._retention, self._client)
