"""What a connection becomes when its client asks for a WebSocket. uvicorn does the talking."""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame

from onejob.api.http.connection import OpenConnections


def open_web_socket(
    shared: OpenConnections, scope: MutableMapping[str, Any], transport: asyncio.Transport
) -> None:
    """Hand a connection over whose request has been read."""
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
    socket = WebSocket(config, state, scope["state"], shared.on_closed)
    socket.connection_made(transport)
    transport.set_protocol(socket)
    socket.begin(scope)


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

    def begin(self, scope: MutableMapping[str, Any]) -> None:
        """Shake hands. The library gets to read only what that takes: its limits are narrower
        than ours, and the address of a session may be long, as it holds the whole command."""
        head = [b"%b / HTTP/1.1\r\n" % scope["method"].encode()]
        head += [
            b"%b: %b\r\n" % (name, value)
            for name, value in scope["headers"]
            if name in (b"connection", b"upgrade") or name.startswith(b"sec-websocket-")
        ]
        self.data_received(b"".join((*head, b"\r\n")))
        if not self.handshake_initiated:
            # These were too much for it. It says so, which uvicorn does not pass on.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
        elif not self.close_sent:
            for key in ("path", "raw_path", "query_string", "headers"):
                self.scope[key] = scope[key]

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated and not self.handshake_complete:
            # A client may speak once it is answered. The library is not made for one that does
            # earlier: it would fail, and uvicorn would log that as our bug.
            self.disconnected = True
            self.transport.abort()
            return
        super().data_received(data)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            # To a client that does not read, answers would pile up. It gets those to later ones.
            self.conn.data_to_send()

    def handle_cont(self, event: Frame) -> None:
        if event.data or event.fin:
            # Empty ones count for nothing in the limit of a message, so there could be millions.
            super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            # Checked here, as uvicorn would log it with a traceback.
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

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
        if self.transport.is_closing() and not self.handshake_complete:
            # uvicorn would pass over the answer, and then miss it.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
