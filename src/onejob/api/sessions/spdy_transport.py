"""Connection upgraded to SPDY, presented to the application as a WebSocket.

The client sends a byte stream, whose pieces take the place of WebSocket messages. The offered
protocols are named as in a tunnel: `SPDY/3.1+portforward.k8s.io`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onejob.api.sessions.upgraded import UpgradedConnection

PREFIX: Final = "SPDY/3.1+"
_VERSION: Final = b"x-stream-protocol-version"


def offered_protocols(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    return [
        PREFIX + text.strip()
        for name, value in headers
        if name == _VERSION
        for text in value.decode("latin-1").split(",")
    ]


class SpdyConnection(UpgradedConnection):
    def data_received(self, data: bytes) -> None:
        self._deliver({"type": "websocket.receive", "bytes": data})

    def _accept(self, subprotocol: str) -> None:
        self._write_head(
            101,
            [
                (b"connection", b"Upgrade"),
                (b"upgrade", b"SPDY/3.1"),
                (_VERSION, subprotocol.removeprefix(PREFIX).encode()),
            ],
        )

    async def _send_message(self, message: Mapping[str, Any]) -> None:
        self.transport.write(message["bytes"])
