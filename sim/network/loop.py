"""Event loop in virtual time whose outgoing connections are simulated."""

import asyncio
from collections.abc import Callable
from typing import Any

from onejob.virtual_time import VirtualTimeLoop
from sim.network.links import Network

#: Limit on callbacks at a single instant, to detect livelock; a whole world takes fewer.
_MAX_TURNS = 200_000


class NetworkLoop(VirtualTimeLoop):
    """Virtual-time event loop; `network` must be set before the first connection."""

    network: Network

    def __init__(self) -> None:
        super().__init__(most_turns=_MAX_TURNS)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect over the simulated network. TLS is not simulated: `options` are ignored."""
        return await self.network.connect(protocol_factory, host)
