"""Forwarded ports with known behaviour."""

import asyncio

from onejob.api.sessions.port_forwarding import Connection
from onejob.wire.errors import BadRequest
from tests.api.http.wire import closed

FORWARD = "/api/v1/namespaces/default/pods/p/portforward"

#: Port of the Pod, whatever the port on this machine is.
PORT = 8080


class Ports:
    """Fake Pod that listens on one port, echoes in capitals, and closes after the client has."""

    def __init__(self) -> None:
        self.connections = 0
        self.ended = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._serving: list[asyncio.Task[None]] = []

    async def connect(self, namespace: str, name: str, port: int) -> Connection:
        assert (namespace, name) == ("default", "p")
        if port != PORT:
            raise BadRequest(f"no process listens on port {port}")
        assert self._listener is not None
        address = self._listener.sockets[0].getsockname()
        return await asyncio.open_connection(*address)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        try:
            while data := await reader.read(100_000):
                writer.write(data.upper())
                await writer.drain()
                if data.endswith(b"bye"):
                    break
        finally:
            self.ended.set()
            writer.close()
            await closed(writer)

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        await asyncio.gather(*self._serving)
