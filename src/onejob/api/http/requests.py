"""HTTP requests as values: as read from a connection, and as handed to handlers with their user.

Bodies are read lazily, with limits on size and time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import unquote

from msgspec import Struct

from onejob.api.access.authorization import Attributes
from onejob.api.decoding.bodies import MAX_BODY_BYTES
from onejob.api.decoding.query import Query
from onejob.wire.errors import RequestTimeout, RequestTooLarge
from onejob.wire.requests import User

#: Limit for draining an oversized body, so that the sender can receive the error response.
_MAX_DRAINED_BYTES: Final = 8 * MAX_BODY_BYTES
_BODY_SECONDS: Final = 60.0


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


class BodyStream(Protocol):
    """Body of one request, in pieces as they arrive."""

    async def receive(self) -> tuple[bytes, bool]:
        """Return the next piece, possibly empty, and whether more follow. Raises ClientGone."""


class _NoBody:
    """Stream of an empty body."""

    async def receive(self) -> tuple[bytes, bool]:
        return b"", False


NO_BODY: Final[BodyStream] = _NoBody()


class Peer(Struct, frozen=True):
    """Identity of a client according to its connection."""

    #: IP address; "" if unknown.
    address: str = ""
    #: The verified client certificate's subject as (attribute, value) pairs.
    certificate_subject: tuple[tuple[str, str], ...] = ()
    #: Expiry of the certificate, in seconds since 1970.
    certificate_ends: float = 0.0


UNKNOWN_PEER: Final = Peer()


def _ignore_authentication() -> None:
    """Do nothing: unauthenticated connections are not limited."""


class Request(Struct, frozen=True):
    """Request as read from a connection; its sender is not authenticated yet."""

    method: str
    #: Percent-encoded, in ASCII, without the query.
    raw_path: str
    query_string: bytes
    #: All headers in the order received, with names in lower case.
    headers: Sequence[tuple[bytes, bytes]]
    #: The same by name; a repeated header has its last value.
    fields: Mapping[bytes, bytes]
    stream: BodyStream = NO_BODY
    peer: Peer = UNKNOWN_PEER
    #: Protocol that the connection can be upgraded to, `websocket` or `spdy/3.1`; "" for none.
    upgrade: str = ""
    #: Subprotocols offered with the upgrade, in the client's order of preference.
    subprotocols: Sequence[str] = ()
    #: Called once the user is authenticated: the connection is then no longer closed in favour of
    #: others.
    on_authenticated: Callable[[], None] = _ignore_authentication

    @property
    def path(self) -> str:
        """Decoded path."""
        return unquote(self.raw_path) if "%" in self.raw_path else self.raw_path

    @property
    def uri(self) -> str:
        """Path and query as sent."""
        query = self.query_string.decode("ascii", "replace")
        return f"{self.raw_path}?{query}" if query else self.raw_path


def _not_audited(_: Attributes) -> None:
    """Do nothing: there is no audit log."""


class UserRequest(Struct, frozen=True):
    """Request of an identified user, possibly the anonymous one, as handed to handlers."""

    method: str
    query: Query
    headers: Mapping[bytes, bytes]
    user: User
    stream: BodyStream = NO_BODY
    #: Callback that records the API requests for which this one stands, before they are authorized.
    audit_as: Callable[[Attributes], None] = _not_audited
    #: Query as sent, for requests that are passed on.
    query_string: bytes = b""

    def header(self, name: bytes) -> str:
        """Return a header by its lower-case name; "" if it is absent."""
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self, limit: int = MAX_BODY_BYTES, seconds: float | None = None) -> bytes:
        """Return the whole body. Raises RequestTooLarge, RequestTimeout or ClientGone."""
        if self.headers.get(b"expect", b"").lower() == b"100-continue":
            # Check the size first: reading the body would send 100 Continue.
            length = self.headers.get(b"content-length", b"").lstrip(b"0")
            if length.isdigit() and int(length) > limit:
                raise _too_large(limit)
        try:
            # The timeout includes the first byte, otherwise a client that sends none would be
            # awaited forever.
            async with asyncio.timeout(_BODY_SECONDS if seconds is None else seconds):
                return await self._whole_body(limit)
        except TimeoutError as slow:
            raise RequestTimeout("the body of the request did not arrive in time") from slow

    async def _whole_body(self, limit: int) -> bytes:
        """Return the body. Raises RequestTooLarge beyond `limit`, after it is read to its end."""
        pieces: list[bytes] = []
        size = 0
        more = True
        while more:
            piece, more = await self.stream.receive()
            size += len(piece)
            if size <= limit:
                pieces.append(piece)
            else:
                pieces.clear()
            if size > _MAX_DRAINED_BYTES or (size > limit and not more):
                raise _too_large(limit)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"Request entity too large: limit is {limit}")
