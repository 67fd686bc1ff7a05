"""A connection that was upgraded to SPDY, shown to the application as a WebSocket.

What comes in is one stream of bytes; where a WebSocket has messages, this has pieces of it. The
protocols that the client offers are named as in a tunnel: `SPDY/3.1+portforward.k8s.io`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from onejob.api.http.incoming import Receive, Send

PREFIX: Final = "SPDY/3.1+"
_VERSION: Final = b"x-stream-protocol-version"

App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def offered_protocols(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    return [
        PREFIX + text.strip()
        for name, value in headers
        if name == _VERSION
        for text in value.decode("latin-1").split(",")
    ]


class SpdyConnection(asyncio.Protocol):
    """`connections` and `tasks` are the server's, which ends them when it stops."""

    def __init__(
        self,
        app: App,
        scope: MutableMapping[str, Any],
        connections: set[Any],
        tasks: "set[asyncio.Task[None]]",
        on_closed: Callable[[], None],
    ) -> None:
        self._app = app
        self._scope = scope
        self._connections = connections
        self._tasks = tasks
        self._on_closed = on_closed
        self._arrived: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._arrived.put_nowait({"type": "websocket.connect"})
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False
        self._paused = False
        self.transport: Any = None

    def begin(self, transport: Any) -> None:
        """Take over a connection whose request has been read."""
        self.transport = transport
        self._connections.add(self)
        task = asyncio.get_running_loop().create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self._arrived.put_nowait({"type": "websocket.receive", "bytes": data})
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._writable.set()
        self._connections.discard(self)
        self._arrived.put_nowait({"type": "websocket.disconnect", "code": 1006})
        self._on_closed()

    def shutdown(self) -> None:
        """The server stops."""
        self._arrived.put_nowait({"type": "websocket.disconnect", "code": 1012})
        self.transport.close()

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except ConnectionError:
            # The client is gone, in the middle of an answer.
            return
        finally:
            self.transport.close()

    async def _receive(self) -> Mapping[str, Any]:
        if self._arrived.empty() and self._paused and not self._lost:
            self._paused = False
            self.transport.resume_reading()
        return await self._arrived.get()

    async def _send(self, message: dict[str, Any]) -> None:
        await self._writable.wait()
        if self._lost:
            raise ConnectionResetError("the client is gone")
        match message["type"]:
            case "websocket.accept":
                protocol = (message["subprotocol"] or "").removeprefix(PREFIX)
                self._write_head(
                    101,
                    [
                        (b"connection", b"Upgrade"),
                        (b"upgrade", b"SPDY/3.1"),
                        (_VERSION, protocol.encode()),
                    ],
                )
            case "websocket.send":
                self.transport.write(message["bytes"])
            case "websocket.http.response.start":
                self._refusal = message
            case "websocket.http.response.body":
                length = b"%d" % len(message["body"])
                headers = [*self._refusal["headers"], (b"content-length", length)]
                self._write_head(self._refusal["status"], [*headers, (b"connection", b"close")])
                self.transport.write(message["body"])
                self.transport.close()
            case _:
                self.transport.close()

    def _write_head(self, code: int, headers: list[tuple[bytes, bytes]]) -> None:
        lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n")
