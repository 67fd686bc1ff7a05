"""exec and attach over WebSockets: Kubernetes' channel protocols.

The first byte of each message names its channel. v5 adds a message for the end of stdin. v4 and
later end with a status; the original protocol, which has no version number, sends only the text of
a failure.
"""

import asyncio
import logging
from collections import deque
from enum import IntEnum
from typing import Any, Final

import msgspec

from onejob.api.sessions.channels import UNNAMED, Channels
from onejob.api.sessions.pod_streams import ExecRequest, ExecSource, TerminalSize
from onejob.api.sessions.socket import Socket
from onejob.api.sessions.spdy_channels import ClientLeft, SpdyChannels
from onejob.wire.errors import ApiError, InternalError

log = logging.getLogger(__name__)

#: Supported protocols in order of preference.
PROTOCOLS: Final = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
)
#: Protocol of a connection or tunnel that uses SPDY.
SPDY_PROTOCOL: Final = "SPDY/3.1+v4.channel.k8s.io"
_WITHOUT_STATUS: Final = ("channel.k8s.io", "base64.channel.k8s.io", UNNAMED)


class _Channel(IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


#: Limit of buffered stdin. Generous, because reading must continue for pings to be answered.
_MAX_AHEAD_BYTES: Final = 16 * 1024 * 1024
#: After this time without buffer space, the limit is raised by as much as a connection delivers at
#: once: a disconnect is noticed only after the preceding input is read.
_STALLED_SECONDS: Final = 60.0
_DELIVERED_AT_ONCE: Final = 1024 * 1024
#: Time for a SPDY client to open its streams.
_STREAMS_SECONDS: Final = 30.0
#: Delay between the handshake and the first output of the command.
_SETTLING_SECONDS: Final = 0.05


async def run_session(
    source: ExecSource, request: ExecRequest, socket: Socket, protocol: str = PROTOCOLS[0]
) -> None:
    """Run a session on an accepted socket until the command ends or the client disconnects."""
    channels: Channels | SpdyChannels
    if protocol == SPDY_PROTOCOL:
        try:
            async with asyncio.timeout(_STREAMS_SECONDS):
                channels = await SpdyChannels.opened(request, socket)
        except (ClientLeft, TimeoutError):
            return
    else:
        channels = Channels(socket, protocol)
        # kubectl reads as soon as it is connected but creates its streams slightly later, and
        # discards data for a stream that does not exist yet.
        await asyncio.sleep(_SETTLING_SECONDS)
    streams = _Streams(channels, has_status=protocol not in _WITHOUT_STATUS)
    running = asyncio.ensure_future(source.exec(request, streams))
    reading = asyncio.ensure_future(streams.read_messages(socket))
    try:
        await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await streams.finish(_outcome(running))
    finally:
        for task in (running, reading):
            task.cancel()
        await asyncio.wait((running, reading))


def _outcome(running: "asyncio.Future[int]") -> dict[str, Any]:
    """Return the Status of a command that has ended; internal errors are logged."""
    try:
        return _exit_status(running.result())
    except ApiError as error:
        return error.status()
    except Exception:
        log.exception("a session failed")
        return InternalError("an error on the server was logged").status()


def _exit_status(code: int) -> dict[str, Any]:
    """Return the Status of a command's exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class _Streams:
    """Implementation of `ExecStreams` on the channels of a session."""

    def __init__(self, channels: Channels | SpdyChannels, *, has_status: bool) -> None:
        self._channels = channels
        self._has_status = has_status
        self._typed: deque[bytes] = deque()
        self._typed_bytes = 0
        self._stdin_ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._size: TerminalSize | None = None
        self._resized = asyncio.Event()

    async def read_stdin(self) -> bytes:
        """Wait for input and return all that has arrived; b"" at its end."""
        while not self._typed and not self._stdin_ended:
            self._changed.clear()
            await self._changed.wait()
        if not self._typed:
            return b""
        data = b"".join(self._typed)
        self._typed.clear()
        self._typed_bytes = 0
        self._room.set()
        return data

    async def write_stdout(self, data: bytes) -> None:
        await self._write(_Channel.STDOUT, data)

    async def write_stderr(self, data: bytes) -> None:
        await self._write(_Channel.STDERR, data)

    async def next_size(self) -> TerminalSize:
        """Wait for a change of the terminal's size and return the newest."""
        await self._resized.wait()
        self._resized.clear()
        assert self._size is not None, "a resize sets the size first"
        return self._size

    async def finish(self, status: dict[str, Any]) -> None:
        """Send the command's Status and end the session.

        Clients of old protocols get only error messages.
        """
        if self._has_status:
            await self._write(_Channel.STATUS, msgspec.json.encode(status))
        elif status["status"] != "Success":
            await self._write(_Channel.STATUS, str(status["message"]).encode())
        await self._channels.close()

    async def read_messages(self, socket: Socket) -> None:
        """Dispatch incoming messages to their channels until the client disconnects."""
        limit = _MAX_AHEAD_BYTES
        message: bytes | str | None = b""
        while message is not None:
            # The first iteration processes data that arrived before the session began.
            try:
                async for channel, data in self._channels.read(message):
                    self._take(channel, data)
            except ClientLeft:
                return
            while self._typed_bytes > limit:
                if not await self._wait_for_buffer_space(_STALLED_SECONDS):
                    limit = self._typed_bytes + _DELIVERED_AT_ONCE
            message = await socket.receive()

    async def _wait_for_buffer_space(self, seconds: float) -> bool:
        """Wait until input has been read; return False after `seconds`."""
        self._room.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._room.wait()
        except TimeoutError:
            return False
        return True

    def _take(self, channel: int, data: bytes) -> None:
        """Process a message of the client."""
        match channel:
            case _Channel.STDIN if data:
                self._typed.append(data)
                self._typed_bytes += len(data)
                self._changed.set()
            case _Channel.RESIZE:
                self._resize(data)
            case _Channel.CLOSE if data[:1] == bytes([_Channel.STDIN]):
                self._stdin_ended = True
                self._changed.set()
            case _:
                log.debug("a session sent something on channel %d", channel)

    def _resize(self, data: bytes) -> None:
        """Record a new terminal size; an invalid one is ignored."""
        try:
            size = msgspec.json.decode(data, type=dict[str, int])
            self._size = TerminalSize(size["Width"], size["Height"])
        except (msgspec.DecodeError, KeyError):
            log.debug("a session sent an invalid terminal size: %r", data[:100])
            return
        self._resized.set()

    async def _write(self, channel: int, data: bytes) -> None:
        await self._channels.write(channel, data)
