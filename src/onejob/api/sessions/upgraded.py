"""Connections taken over from HTTP/1.1 by an upgrade.

The application sees each of them as an ASGI WebSocket. This module implements the common part:
back-pressure in both directions, rejections, and the end of the connection.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from onejob.api.http.requests import Receive, Send

App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)


class Host(Protocol):
    """Server-side owner of connections. It ends `connections` and `tasks` at shutdown."""

    app: App
    connections: set[Any]
    tasks: "set[asyncio.Task[None]]"
    on_closed: Callable[[], None]

    def stalls(self, connection: Any) -> None: ...

    def goes_on(self, connection: Any) -> None: ...


class UpgradedConnection(asyncio.Protocol):
    """Base class of the protocols that a connection can be upgraded to.

    Reading pauses while a message waits for the application; `send` waits while the client does not
    read. Stalled clients count towards the server's limit of stalled connections. After a
    disconnect, `send` raises ConnectionError and `receive` returns a disconnect message.
    """

    transport: asyncio.Transport

    def __init__(self, host: Host, scope: MutableMapping[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self._host = host
        self._scope = scope
        self._arrived: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False
        self._refusal: Mapping[str, Any] = {}

    def begin(self, transport: asyncio.Transport, *, write_paused: bool = False) -> None:
        """Take over a connection whose request has been read."""
        self.transport = transport
        self._host.connections.add(self)
        if write_paused:
            self.pause_writing()
        self._arrived.put_nowait({"type": "websocket.connect"})
        task = self.loop.create_task(self._run())
        self._host.tasks.add(task)
        task.add_done_callback(self._host.tasks.discard)
        transport.set_protocol(self)

    # --- asyncio.Protocol -----------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._writable.clear()
        self._host.stalls(self)

    def resume_writing(self) -> None:
        self._writable.set()
        self._host.goes_on(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.resume_writing()
        self._host.connections.discard(self)
        self._disconnect(1006)
        self._host.on_closed()

    def shutdown(self) -> None:
        """Close the connection because the server is stopping."""
        self._disconnect(1012)
        self.transport.close()

    # --- application side ----------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._host.app(self._scope, self._receive, self._send)
        except ConnectionError:
            # The client disconnected during a response.
            return
        except Exception:
            log.exception("a session failed")
        finally:
            self._application_ended()

    def _application_ended(self) -> None:
        self.transport.close()

    async def _receive(self) -> Mapping[str, Any]:
        message = await self._arrived.get()
        if self._arrived.empty():
            self._resume_reading()
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        await self._drained()
        match message["type"]:
            case "websocket.accept":
                self._accept(message["subprotocol"] or "")
            case "websocket.send":
                await self._send_message(message)
            case "websocket.close":
                self._close(message["code"])
            case "websocket.http.response.start":
                self._refusal = message
            case "websocket.http.response.body":
                self._refuse(message["body"])
            case unknown:
                raise ValueError(f"unknown message {unknown}")

    async def _drained(self) -> None:
        """Wait until the client has read most of the sent data. Raises ConnectionError."""
        await self._writable.wait()
        if self._lost or self.transport.is_closing():
            raise ConnectionResetError("the client has left")

    @abstractmethod
    def _accept(self, subprotocol: str) -> None: ...

    @abstractmethod
    async def _send_message(self, message: Mapping[str, Any]) -> None: ...

    def _close(self, code: int) -> None:
        self.transport.close()

    def _refuse(self, body: bytes) -> None:
        length = b"%d" % len(body)
        ends = [(b"content-length", length), (b"connection", b"close")]
        self._write_head(self._refusal["status"], [*self._refusal["headers"], *ends])
        self.transport.write(body)
        self._disconnect(1006)
        self.transport.close()

    # --- helpers of subclasses --------------------------------------------------------------------

    def _deliver(self, message: Mapping[str, Any]) -> None:
        """Queue a message for the application and pause reading until it is consumed."""
        self._arrived.put_nowait(message)
        if not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and not self._lost:
            self._reading_paused = False
            self.transport.resume_reading()

    def _disconnect(self, code: int) -> None:
        self._arrived.put_nowait({"type": "websocket.disconnect", "code": code})

    def _write_head(self, code: int, headers: list[tuple[bytes, bytes]]) -> None:
        lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n")
