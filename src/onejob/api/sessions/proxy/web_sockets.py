"""Relay of WebSockets to Pods."""

import asyncio
from collections.abc import Sequence
from typing import Final

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response as HandshakeResponse
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from onejob.api.http.requests import UserRequest
from onejob.api.http.routing import ResourcePath
from onejob.api.sessions.port_forwarding import Connection
from onejob.api.sessions.proxy.relaying import PodProxy, closing_on_error, target_of, unreachable
from onejob.api.sessions.socket import Session, Socket

_HANDSHAKE_SECONDS: Final = 30.0
#: Largest message in either direction.
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
#: Codes that describe the absence of a close frame.
_NEVER_SENT: Final = frozenset((CloseCode.NO_STATUS_RCVD, CloseCode.ABNORMAL_CLOSURE))


async def open_web_socket(
    proxy: PodProxy, request: UserRequest, target: ResourcePath, offered: Sequence[str]
) -> Session:
    """Connect to a Pod's WebSocket; return the session that relays it. Raises ApiError.

    The handshake with the Pod comes first, because the Pod chooses the subprotocol.
    """
    connection = await proxy.connect(target)
    upstream = _Upstream(connection, f"ws://localhost{target_of(request, target)}", offered)
    await closing_on_error(connection[1], upstream.handshake())
    return Session(upstream.subprotocol, upstream.run, upstream.abandon)


class _Upstream:
    """WebSocket of a Pod, of which this server is the client."""

    def __init__(self, connection: Connection, uri: str, offered: Sequence[str]) -> None:
        self._reader, self._writer = connection
        self._protocol = ClientProtocol(
            parse_uri(uri),
            subprotocols=[Subprotocol(name) for name in offered] or None,
            max_size=_MAX_MESSAGE_BYTES,
        )
        self._parts: list[bytes] = []
        self._is_text = False

    @property
    def subprotocol(self) -> str:
        """Subprotocol that the Pod has chosen; "" for none."""
        return self._protocol.subprotocol or ""

    async def handshake(self) -> None:
        """Open the WebSocket. Raises ServiceUnavailable."""
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                while self._protocol.state is State.CONNECTING:
                    data = await self._reader.read(_PIECE_BYTES)
                    if not data:
                        raise ConnectionResetError("it closed the connection")
                    self._protocol.receive_data(data)
                    if self._protocol.handshake_exc is not None:
                        raise self._protocol.handshake_exc
        except (OSError, TimeoutError, WebSocketException) as error:
            raise unreachable(error) from error

    async def run(self, socket: Socket) -> None:
        """Relay messages until one side closes."""
        tasks = (
            asyncio.ensure_future(self._to_pod(socket)),
            asyncio.ensure_future(self._to_client(socket)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._writer.close()
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def abandon(self) -> None:
        """Close the connection: the client has left before its own handshake was complete."""
        self._writer.close()

    async def _to_pod(self, socket: Socket) -> None:
        while (message := await socket.receive()) is not None:
            if self._protocol.state is not State.OPEN:
                return
            if isinstance(message, str):
                self._protocol.send_text(message.encode())
            else:
                self._protocol.send_binary(message)
            await self._drain()
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            await self._drain()

    async def _to_client(self, socket: Socket) -> None:
        await self._deliver(socket)
        while data := await self._read():
            self._protocol.receive_data(data)
            # Pings are answered by the protocol.
            await self._drain()
            await self._deliver(socket)
            if self._protocol.state is not State.OPEN:
                break
        received = self._protocol.close_rcvd
        sendable = received is not None and received.code not in _NEVER_SENT
        await socket.close(received.code if received and sendable else CloseCode.NORMAL_CLOSURE)

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE_BYTES)
        except OSError:
            return b""

    async def _deliver(self, socket: Socket) -> None:
        """Send the complete messages of the Pod to the client."""
        for event in self._protocol.events_received():
            if isinstance(event, HandshakeResponse) or not isinstance(event, Frame):
                continue
            if event.opcode in (Opcode.TEXT, Opcode.BINARY):
                self._is_text = event.opcode is Opcode.TEXT
            elif event.opcode is not Opcode.CONT:
                continue
            self._parts.append(bytes(event.data))
            if event.fin:
                message, self._parts = b"".join(self._parts), []
                await socket.send(message.decode() if self._is_text else message)

    async def _drain(self) -> None:
        self._flush()
        try:
            await self._writer.drain()
        except OSError:
            # Reading ends as well, and with it the session.
            return

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data and not self._writer.is_closing():
                self._writer.write(data)
