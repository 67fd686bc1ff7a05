"""What a connection becomes when its client asks for a WebSocket. uvicorn does the talking."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState

from onejob.api.http.connection import OpenConnections


def open_web_socket(
    shared: OpenConnections, peer: dict[str, Any], transport: asyncio.Transport, head: bytes
) -> None:
    """Hand a connection over whose request began with `head`."""
    config = Config(
        cast("Any", shared.app),
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # What clients do wrong is their business; what we do wrong is logged by the app.
        log_level="error",
    )
    config.load()
    state = ServerState()
    state.connections = shared.connections
    state.tasks = shared.tasks
    socket = WebSocket(config, state, peer, shared.on_closed)
    socket.connection_made(transport)
    socket.data_received(head)
    transport.set_protocol(socket)


class WebSocket(WebSocketsSansIOProtocol):
    """One WebSocket. uvicorn takes a refusal for no answer at all and would log it as our bug."""

    def __init__(
        self, config: Config, state: ServerState, app_state: Any, on_closed: Callable[[], None]
    ) -> None:
        super().__init__(config, state, app_state)
        self._on_closed = on_closed
        # The application chooses. Some of Kubernetes' names have a slash, which is not allowed
        # in them, and the handshake would fail for that.
        self.conn.process_subprotocol = lambda headers: None  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_closed()

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:
            # It is being closed already; uvicorn would send a second close frame.
            self.transport.close()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True
