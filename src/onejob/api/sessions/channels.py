"""Kubernetes' WebSocket channels: each message begins with its channel number.

In base64 protocols the number is a digit and the data is text.
"""

import binascii
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from onejob.api.sessions.socket import Socket
from onejob.wire.errors import BadRequest

log = logging.getLogger(__name__)

#: Protocol of a client that names none: the original one, in binary.
UNNAMED: Final = ""


def choose_protocol(offered: Sequence[str], known: Sequence[str]) -> str:
    """Return the first protocol of `known` that is offered. Raises BadRequest."""
    if not offered:
        return UNNAMED
    for protocol in known:
        if protocol in offered:
            return protocol
    raise BadRequest(f"unable to upgrade: none of the subprotocols is known, use {known[0]}")


class Channels:
    """Channels of a session on a WebSocket."""

    def __init__(self, socket: Socket, protocol: str) -> None:
        self._socket = socket
        self._base64 = "base64" in protocol

    async def write(self, channel: int, data: bytes) -> None:
        """Send data on a channel; wait while the client does not read."""
        if self._base64:
            await self._socket.send(f"{channel}{b64encode(data).decode()}")
        else:
            await self._socket.send(bytes([channel]) + data)

    async def close(self) -> None:
        """End the session."""
        await self._socket.close()

    async def read(self, message: bytes | str) -> AsyncIterator[tuple[int, bytes]]:
        """Yield as `parse` does; the interface shared with `SpdyChannels`."""
        for parsed in self.parse(message):
            yield parsed

    def parse(self, message: bytes | str) -> Iterator[tuple[int, bytes]]:
        """Yield channel and data; nothing if the message is empty or invalid base64."""
        data = message.encode() if isinstance(message, str) else message
        if not data:
            return
        if not self._base64:
            yield data[0], data[1:]
            return
        try:
            yield data[0] - ord("0"), b64decode(data[1:], validate=True)
        except binascii.Error:
            log.debug("a session sent invalid base64: %r", data[:100])
