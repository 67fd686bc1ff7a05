"""pods/portforward: relay of client connections to ports that a Pod listens on.

Two protocols run inside a WebSocket. In the channel protocol (used by Python and other clients) the
request names the ports, and each has one connection with a data channel and an error channel. In
the tunnel protocol (kubectl) the client opens a pair of SPDY streams per connection at any time.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from onejob.api.decoding.query import Query
from onejob.api.sessions.channels import Channels
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
from onejob.wire.errors import ApiError, BadRequest

log = logging.getLogger(__name__)

CHANNEL_PROTOCOLS: Final = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
TUNNEL_PROTOCOL: Final = "SPDY/3.1+portforward.k8s.io"

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Connect to a port of the Pod. Raises ApiError or OSError.
Connect: TypeAlias = Callable[[int], Awaitable[Connection]]
Write: TypeAlias = Callable[[bytes], Awaitable[None]]

_PIECE_BYTES: Final = 64 * 1024
#: Limit of data that waits for a Pod that does not read. Generous, because reading must continue
#: for pings to be answered.
_MAX_AHEAD_BYTES: Final = 16 * 1024 * 1024
_MAX_PORTS: Final = 100
_MAX_STREAMS: Final = 1000


class PortSource(Protocol):
    async def connect(self, namespace: str, name: str, port: int) -> Connection:
        """Connect to a port on which a process of this Pod listens, and to no other.

        Raises ApiError or OSError.
        """


def forwarded_ports(query: Query) -> tuple[int, ...]:
    """Return the ports named in a request of the channel protocol. Raises BadRequest."""
    texts = [text for value in query.get("ports", ()) for text in value.split(",")]
    if not texts:
        raise BadRequest('query parameter "ports" is required')
    if len(texts) > _MAX_PORTS:
        raise BadRequest(f"at most {_MAX_PORTS} ports can be forwarded at once")
    return tuple(map(_port, texts))


async def run_channels(
    connect: Connect, ports: Sequence[int], socket: Socket, protocol: str
) -> None:
    """Relay until all connections have ended or the client disconnects."""
    channels = Channels(socket, protocol)
    ahead = _Ahead()
    relays = []
    for number, port in enumerate(ports):
        for channel in (2 * number, 2 * number + 1):
            await channels.write(channel, struct.pack("<H", port))
        relays.append(_Relay(port, _channel_writer(channels, 2 * number), ahead))

    async def serve(number: int, relay: _Relay) -> None:
        if problem := await relay.run(connect):
            # The client may have disconnected meanwhile.
            with suppress(OSError):
                await channels.write(2 * number + 1, problem.encode())

    async def read() -> None:
        while (message := await socket.receive()) is not None:
            async for channel, data in channels.read(message):
                if channel % 2 == 0 and channel // 2 < len(relays):
                    relays[channel // 2].take(data)
            await ahead.room()

    async def serve_all() -> None:
        # Wrapped in a task, because a bare `gather` future reports its own cancellation as an
        # error.
        await asyncio.gather(*(serve(number, relay) for number, relay in enumerate(relays)))

    serving = asyncio.ensure_future(serve_all())
    reading = asyncio.ensure_future(read())
    try:
        await asyncio.wait((serving, reading), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            await channels.close()
    finally:
        await _cancel_all(serving, reading)


def _channel_writer(channels: Channels, channel: int) -> Write:
    async def write(data: bytes) -> None:
        await channels.write(channel, data)

    return write


async def run_tunnel(connect: Connect, socket: Socket) -> None:
    """Relay until the client disconnects."""
    tunnel = _Tunnel(connect, socket)
    try:
        while (message := await socket.receive()) is not None:
            await tunnel.take(message if isinstance(message, bytes) else b"")
    except SpdyError as error:
        log.debug("a client of port forwarding sent no SPDY: %s", error)
        await socket.close(1002)
    finally:
        await tunnel.close()


class _Pair:
    """The two streams (data and error) of one forwarded connection.

    Data is accepted immediately; the connection is opened once both streams exist.
    """

    def __init__(self, port: int, tunnel: "_Tunnel") -> None:
        self._tunnel = tunnel
        self.streams: dict[str, int] = {}
        self.relay = _Relay(port, self._write, tunnel.ahead)
        self.task: asyncio.Task[None] | None = None

    async def _write(self, data: bytes) -> None:
        """Send data to the client on the pair's data stream."""
        await self._tunnel.write(SpdyWriter.data(self.streams["data"], data))


class _Tunnel:
    """Forwarded connections of one client, each with an error and a data stream."""

    def __init__(self, connect: Connect, socket: Socket) -> None:
        self._connect = connect
        self._socket = socket
        self._reader = SpdyReader()
        self._writer = SpdyWriter()
        self.ahead = _Ahead()
        self._pairs: dict[str, _Pair] = {}
        #: Pairs by the number of each of their streams.
        self._of_stream: dict[int, _Pair] = {}

    async def take(self, data: bytes) -> None:
        """Process data of the client, then wait while too much of it is undelivered."""
        for part in slices(data):
            await self._take(part)
            await asyncio.sleep(0)
        await self.ahead.room()

    async def _take(self, data: bytes) -> None:
        """Process the events in the data."""
        for event in self._reader.feed(data):
            match event:
                case StreamOpened():
                    await self._open(event)
                case StreamData():
                    self._deliver(event)
                case StreamReset():
                    self._reset(event.stream)
                case Pinged():
                    await self.write(self._writer.ping(event.number))
                case _:
                    pass

    async def close(self) -> None:
        """Cancel all connections."""
        tasks = [pair.task for pair in self._of_stream.values() if pair.task is not None]
        await _cancel_all(*tasks)

    async def _open(self, event: StreamOpened) -> None:
        """Add a stream to its pair, and connect once both streams are open."""
        kind = event.headers.get("streamtype", "")
        number = event.headers.get("requestid", "")
        if not number:
            # Old clients send no request id, but open the error stream directly before the data
            # stream.
            number = f"by stream {event.stream if kind == 'error' else event.stream - 2}"
        try:
            pair = self._pairs.get(number) or _Pair(_port(event.headers.get("port", "")), self)
        except BadRequest:
            pair = None
        crowded = len(self._of_stream) >= _MAX_STREAMS or event.stream in self._of_stream
        if pair is None or kind not in ("data", "error") or kind in pair.streams or crowded:
            await self.write(self._writer.reset(event.stream))
            return
        pair.streams[kind] = event.stream
        self._of_stream[event.stream] = pair
        self._pairs[number] = pair
        await self.write(self._writer.accept(event.stream))
        if len(pair.streams) == 2:
            # The pair is complete; if the id is reused, it denotes another connection.
            del self._pairs[number]
            pair.task = asyncio.create_task(self._serve(pair))

    async def _serve(self, pair: _Pair) -> None:
        """Relay a connection until it ends, and report its error to the client."""
        error_stream, data_stream = pair.streams["error"], pair.streams["data"]
        try:
            if problem := await pair.relay.run(self._connect):
                text = problem.encode()
                await self.write(self._writer.data(error_stream, text, ends=True))
                await self.write(self._writer.reset(data_stream))
            else:
                await self.write(self._writer.data(data_stream, b"", ends=True))
                await self.write(self._writer.data(error_stream, b"", ends=True))
        except OSError:
            log.debug("the client of a tunnel is gone")
        finally:
            for stream in pair.streams.values():
                self._of_stream.pop(stream, None)

    def _deliver(self, event: StreamData) -> None:
        """Pass data on to the connection of its stream."""
        pair = self._of_stream.get(event.stream)
        if pair is None or pair.streams.get("data") != event.stream:
            return
        pair.relay.take(event.data)
        if event.ended:
            pair.relay.end()

    def _reset(self, stream: int) -> None:
        """Cancel the connection whose data stream the client has reset."""
        pair = self._of_stream.get(stream)
        if pair is not None and pair.task is not None and pair.streams.get("data") == stream:
            pair.task.cancel()

    async def write(self, frame: bytes) -> None:
        await self._socket.send(frame)


class _Ahead:
    """Bytes that clients have sent and Pods have not read, over all connections of a session."""

    def __init__(self) -> None:
        self._bytes = 0
        self._fewer = asyncio.Event()

    def add(self, count: int) -> None:
        """Change the number of undelivered bytes."""
        self._bytes += count
        if count < 0:
            self._fewer.set()

    async def room(self) -> None:
        """Wait until less than `_MAX_AHEAD_BYTES` are buffered."""
        while self._bytes > _MAX_AHEAD_BYTES:
            self._fewer.clear()
            await self._fewer.wait()


class _Relay:
    """Relay of one connection.

    `take` and `end` receive the client's data; `write` sends to the client.
    """

    def __init__(self, port: int, write: Write, ahead: _Ahead) -> None:
        self._port = port
        self._write = write
        self._ahead = ahead
        self._pending: deque[bytes] = deque()
        self._ended = False
        self._changed = asyncio.Event()

    def take(self, data: bytes) -> None:
        """Queue data for the other side."""
        if data and not self._ended:
            self._pending.append(data)
            self._ahead.add(len(data))
            self._changed.set()

    def end(self) -> None:
        """Note the end of the client's data."""
        self._ended = True
        self._changed.set()

    async def run(self, connect: Connect) -> str:
        """Relay until the Pod closes the connection. Returns an error message, or ""."""
        try:
            reader, writer = await connect(self._port)
        except (ApiError, OSError) as error:
            self._discard()
            return f"error forwarding port {self._port}: {error}"
        sending = asyncio.ensure_future(self._send_on(writer))
        try:
            while piece := await reader.read(_PIECE_BYTES):
                await self._write(piece)
        except OSError as error:
            return f"error forwarding port {self._port}: {error}"
        finally:
            sending.cancel()
            await asyncio.wait((sending,))
            self._discard()
            writer.close()
        return ""

    async def _send_on(self, writer: asyncio.StreamWriter) -> None:
        """Send the client's data to the Pod until its end."""
        try:
            while True:
                while self._pending:
                    piece = self._pending.popleft()
                    self._ahead.add(-len(piece))
                    writer.write(piece)
                    await writer.drain()
                if self._ended:
                    writer.write_eof()
                    return
                self._changed.clear()
                await self._changed.wait()
        except OSError:
            # The Pod no longer reads. Its output and its disconnect are handled by the reading
            # side.
            self._ended = True
            self._discard()

    def _discard(self) -> None:
        """Drop undelivered data."""
        self._ended = True
        self._ahead.add(-sum(map(len, self._pending)))
        self._pending.clear()


async def _cancel_all(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _port(text: str) -> int:
    """Return a port number. Raises BadRequest."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536):
        raise BadRequest(f'unable to parse "{text[:20]}" as a port: it is a number up to 65535')
    return int(text)
