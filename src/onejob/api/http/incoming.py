"""A request as it came in: read lazily, within limits."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from onejob.api.access.authorization import Attributes
from onejob.api.input.decoding import MAX_BODY_BYTES
from onejob.api.input.query import Query
from onejob.wire.errors import RequestTimeout, RequestTooLarge
from onejob.wire.requests import User

Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

#: A body that is too large is still read this far, so that the sender gets to see why.
_MAX_DRAINED_BYTES: Final = 8 * MAX_BODY_BYTES
_BODY_SECONDS: Final = 60.0


class ClientGone(Exception):
    """The other side hung up before its request was complete."""


def _not_audited(_: Attributes) -> None:
    """Where there is no audit log."""


class Request(Struct, frozen=True):
    method: str
    query: Query
    headers: Mapping[bytes, bytes]
    user: User
    receive: Receive
    #: To be told what requests of the API this one stands for, before these are authorised.
    audit_as: Callable[[Attributes], None] = _not_audited

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self, limit: int = MAX_BODY_BYTES, seconds: float | None = None) -> bytes:
        """Return the whole body. Raises RequestTooLarge, RequestTimeout or ClientGone."""
        if self.headers.get(b"expect", b"").lower() == b"100-continue":
            # To ask for the body is to tell the client to send it.
            length = self.headers.get(b"content-length", b"").lstrip(b"0")
            if length.isdigit() and int(length) > limit:
                raise _too_large(limit)
        try:
            # Also for its first byte: a client that sends none would be waited for without end.
            async with asyncio.timeout(_BODY_SECONDS if seconds is None else seconds):
                return await self._whole_body(limit)
        except TimeoutError as slow:
            raise RequestTimeout("the body of the request did not arrive in time") from slow

    async def _whole_body(self, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size <= limit:
                pieces.append(piece)
            else:
                pieces.clear()
            if size > _MAX_DRAINED_BYTES or (size > limit and not message.get("more_body", False)):
                raise _too_large(limit)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"Request entity too large: limit is {limit}")
