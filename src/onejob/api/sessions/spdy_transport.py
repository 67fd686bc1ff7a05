"""Connection upgraded to SPDY, presented to sessions as a WebSocket.

The client sends a byte stream, whose pieces take the place of WebSocket messages. The offered
protocols are named as in a tunnel: `SPDY/3.1+portforward.k8s.io`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from onejob.api.http.requests import Request
from onejob.api.sessions.upgraded import Host, UpgradedConnection

PREFIX: Final = "SPDY/3.1+"
_VERSION: Final = b"x-stream-protocol-version"


def _offered_protocols(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Return the offered stream protocols as subprotocols of a tunnel: `SPDY/3.1+NAME`."""
    return [
        PREFIX + text.strip()
        for name, value in headers
        if name == _VERSION
        for text in value.decode("latin-1").split(",")
    ]


class SpdyConnection(UpgradedConnection):
    @classmethod
    def from_request(cls, host: Host, request: Request) -> "SpdyConnection":
        """Return a connection that offers the request's stream protocols as WebSocket
        subprotocols."""
        offered = _offered_protocols(request.headers)
        return cls(host, msgspec.structs.replace(request, subprotocols=offered))

    def data_received(self, data: bytes) -> None:
        self._deliver(data)

    def _accept(self, subprotocol: str) -> None:
        """Write the 101 response with the chosen protocol."""
        self._write_head(
            101,
            [
                (b"connection", b"Upgrade"),
                (b"upgrade", b"SPDY/3.1"),
                (_VERSION, subprotocol.removeprefix(PREFIX).encode()),
            ],
        )

    async def _send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        """Write the parts as one piece of the byte stream; `is_text` has no effect."""
        self.transport.write(b"".join(parts))
