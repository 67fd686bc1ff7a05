"""TCP proxy that refuses, delays, stalls and cuts connections. TLS goes through it untouched."""

import asyncio
from collections.abc import Callable
from typing import Literal

Mode = Literal["open", "refusing", "stalled"]


class FaultProxy:
    """Fault-injecting proxy; `port_of` returns the target port for each connection."""

    def __init__(self, port_of: Callable[[], int]) -> None:
        self._port_of = port_of
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()
        self._moving = asyncio.Event()
        self._moving.set()
        self._mode: Mode = "open"
        self.delay_seconds = 0.0
        self.connections = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.set("open")
        self.cut()

    def set(self, mode: Mode) -> None:
        """Set the mode.

        `refusing` also cuts open connections; `stalled` moves no byte meanwhile.
        """
        self._mode = mode
        if mode == "refusing":
            self.cut()
        if mode == "stalled":
            self._moving.clear()
        else:
            self._moving.set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def forget(self) -> None:
        """Stall the open connections forever, without closing them."""
        self._forgotten |= self._writers

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._mode == "refusing":
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._port_of())
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there[1]}
        try:
            await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))
        finally:
            for one in (writer, there[1]):
                one.transport.abort()
                self._writers.discard(one)
                self._forgotten.discard(one)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._moving.wait()
                if writer in self._forgotten:
                    continue
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            return
        finally:
            if writer not in self._forgotten:
                writer.close()
