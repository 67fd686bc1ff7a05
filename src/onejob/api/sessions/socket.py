"""Upgraded connections and the sessions that run on them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Socket(Protocol):
    """Accepted WebSocket, or a byte stream in its place.

    All methods that send wait while the client does not read, and raise ConnectionError once it has
    disconnected.
    """

    async def receive(self) -> bytes | str | None:
        """Return the client's next message; None once it has disconnected."""

    async def send(self, message: bytes | str) -> None:
        """Send a binary or text message."""

    async def send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        """Send one message in parts.

        They are not copied, so that a large object watched by many clients is in memory once,
        however slowly they read.
        """

    async def close(self, code: int = 1000) -> None:
        """End the session with a code of RFC 6455, 7.4.1."""


class AbandonedSocket:
    """Socket of a client that has disconnected; sent messages are discarded."""

    async def receive(self) -> bytes | str | None:
        return None

    async def send(self, message: bytes | str) -> None:
        """Discard the message."""

    async def send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        """Discard the message."""

    async def close(self, code: int = 1000) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Session:
    """Session to run on a connection once its upgrade is accepted."""

    #: Subprotocol named in the response; "" if the client named none.
    protocol: str
    #: Runs the session on the accepted socket until one side ends it.
    run: Callable[[Socket], Awaitable[None]]
    #: Releases resources if the client disconnects before its upgrade is accepted.
    abandon: Callable[[], Awaitable[None]] | None = None
