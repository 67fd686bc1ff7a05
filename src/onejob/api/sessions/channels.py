"""Kubernetes' WebSocket channels: each message begins with its channel number.

In base64 protocols the number is a digit and the data is text.
"""

import binascii
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from onejob.api.http.requests import Send
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
    def __init__(self, send: Send, protocol: str) -> None:
        self._send = send
        self._base64 = "base64" in protocol

    async def write(self, channel: int, data: bytes) -> None:
        if self._base64:
            text = f"{channel}{b64encode(data).decode()}"
            await self._send({"type": "websocket.send", "text": text})
        else:
            await self._send({"type": "websocket.send", "bytes": bytes([channel]) + data})

    async def close(self) -> None:
        await self._send({"type": "websocket.close", "code": 1000})

    async def read(self, message: Mapping[str, Any]) -> AsyncIterator[tuple[int, bytes]]:
        """Yield as `parse` does; the interface shared with `SpdyChannels`."""
        for parsed in self.parse(message):
            yield parsed

    def parse(self, message: Mapping[str, Any]) -> Iterator[tuple[int, bytes]]:
        """Yield channel and data; nothing if the message is empty or invalid base64."""
        data: bytes = message.get("bytes") or (message.get("text") or "").encode()
        if not data:
            return
        if not self._base64:
            yield data[0], data[1:]
            return
        try:
            yield data[0] - ord("0"), b64decode(data[1:], validate=True)
        except binascii.Error:
            log.debug("a session sent what is no base64: %r", data[:100])
