"""A request as it came in: read lazily, within limits."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from onejob.api.input.decoding import MAX_BODY_BYTES
from onejob.api.input.query import Query
from onejob.wire.errors import RequestTooLarge, Timeout
from onejob.wire.requests import User

Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

#: A body that is too large is still read this far, so that the sender gets to see why.
_MAX_DRAINED_BYTES: Final = 8 * MAX_BODY_BYTES
_BODY_SECONDS: Final = 60.0


class ClientGone(Exception):
    """The other side hung up before its request was complete."""


class Request(Struct, frozen=True):
    method: str
    query: Query
    headers: Mapping[bytes, bytes]
    user: User
    receive: Receive

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self) -> bytes:
        """The whole body. Raises RequestTooLarge, Timeout or ClientGone."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return _within_limit(body)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await self._rest(body)
        except TimeoutError as slow:
            raise Timeout("the body of the request did not arrive in time") from slow

    async def _rest(self, start: bytes) -> bytes:
        pieces, size = [start], len(start)
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size <= MAX_BODY_BYTES:
                pieces.append(piece)
            elif size > _MAX_DRAINED_BYTES:
                raise _too_large()
            if not message.get("more_body", False):
                if size > MAX_BODY_BYTES:
                    raise _too_large()
                return b"".join(pieces)


def _within_limit(body: bytes) -> bytes:
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    return body


def _too_large() -> RequestTooLarge:
    return RequestTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")
