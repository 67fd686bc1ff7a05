"""exec and attach over SPDY (kubectl before 1.30): one stream per channel."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

from onejob.api.sessions.pod_streams import ExecRequest
from onejob.api.sessions.socket import Socket
from onejob.api.sessions.spdy import (
    Pinged,
    SpdyError,
    SpdyReader,
    SpdyWriter,
    StreamData,
    StreamOpened,
    StreamReset,
    slices,
)

#: Channel numbers as in the WebSocket protocols.
_CHANNELS: Final = {"stdin": 0, "stdout": 1, "stderr": 2, "error": 3, "resize": 4}
_STDIN: Final = 0
_CLOSE: Final = 255
#: Limit of data buffered until all streams are open.
_MAX_EARLY_BYTES: Final = 1024 * 1024


class ClientLeft(Exception):
    """The client disconnected or sent invalid SPDY before all its streams were open."""


class SpdyChannels:
    """Counterpart of `Channels` for SPDY. Create it with `opened`."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._reader = SpdyReader()
        self._writer = SpdyWriter()
        self._streams: dict[int, int] = {}
        self._channels: dict[int, int] = {}
        #: Data that arrived before all streams were open.
        self._early: list[tuple[int, bytes]] = []
        self._unanswered: list[bytes] = []

    @classmethod
    async def opened(cls, request: ExecRequest, socket: Socket) -> "SpdyChannels":
        """Return the channels once all streams of the session are open. Raises ClientLeft."""
        channels = cls(socket)
        wanted = {"error"} | {
            name
            for name, asked in (
                ("stdin", request.stdin),
                ("stdout", request.stdout),
                ("stderr", request.stderr),
                ("resize", request.tty),
            )
            if asked
        }
        numbers = {_CHANNELS[name] for name in wanted}
        while not numbers <= channels._streams.keys():
            message = await socket.receive()
            if message is None:
                raise ClientLeft
            channels._early += [taken async for taken in channels._events(message)]
            if sum(len(data) for _, data in channels._early) > _MAX_EARLY_BYTES:
                raise ClientLeft
        return channels

    async def read(self, message: bytes | str) -> AsyncIterator[tuple[int, bytes]]:
        """Yield channels and their data.

        The end of a stream is reported as in the v5 protocol. Raises ClientLeft.
        """
        early, self._early = self._early, []
        for taken in early:
            yield taken
        async for taken in self._events(message):
            yield taken

    async def _events(self, message: bytes | str) -> AsyncIterator[tuple[int, bytes]]:
        """Process a message and yield channel and data of each data frame in it."""
        for part in slices(message if isinstance(message, bytes) else b""):
            for taken in self._process(part):
                yield taken
            await self.answer()
            await asyncio.sleep(0)

    async def write(self, channel: int, data: bytes) -> None:
        await self.answer()
        stream = self._streams.get(channel)
        if stream is not None:
            await self._write(self._writer.data(stream, data))

    async def close(self) -> None:
        for stream in self._streams.values():
            await self._write(self._writer.data(stream, b"", ends=True))
        await self._write(self._writer.go_away(max(self._streams.values(), default=0)))
        await self._socket.close()

    def _process(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (channel, data) pairs from received bytes."""
        try:
            for event in self._reader.feed(data):
                match event:
                    case StreamOpened():
                        self._open(event)
                    case StreamData() if event.stream in self._channels:
                        channel = self._channels[event.stream]
                        if event.data:
                            yield channel, event.data
                        if event.ended and channel == _STDIN:
                            yield _CLOSE, bytes([_STDIN])
                    case StreamReset() if self._channels.get(event.stream) == _STDIN:
                        yield _CLOSE, bytes([_STDIN])
                    case Pinged():
                        self._unanswered.append(self._writer.ping(event.number))
                    case _:
                        pass
        except SpdyError as error:
            raise ClientLeft from error

    def _open(self, event: StreamOpened) -> None:
        """Accept a stream as its channel; refuse an unknown or repeated one."""
        channel = _CHANNELS.get(event.headers.get("streamtype", ""))
        if channel is None or channel in self._streams:
            self._unanswered.append(self._writer.reset(event.stream))
            return
        self._streams[channel] = event.stream
        self._channels[event.stream] = channel
        self._unanswered.append(self._writer.accept(event.stream))

    async def answer(self) -> None:
        """Send pending replies to pings and opened streams."""
        if self._unanswered:
            frames, self._unanswered = b"".join(self._unanswered), []
            await self._write(frames)

    async def _write(self, frame: bytes) -> None:
        await self._socket.send(frame)
