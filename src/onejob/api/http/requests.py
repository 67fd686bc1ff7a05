"""Incoming request; its body is read lazily, with limits on size and time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from onejob.api.access.authorization import Attributes
from onejob.api.decoding.bodies import MAX_BODY_BYTES
from onejob.api.decoding.query import Query
from onejob.wire.errors import RequestTimeout, RequestTooLarge
from onejob.wire.requests import User

Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

#: Limit for draining an oversized body, so that the sender can receive the error response.
_MAX_DRAINED_BYTES: Final = 8 * MAX_BODY_BYTES
_BODY_SECONDS: Final = 60.0


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


def _not_audited(_: Attributes) -> None:
    """Do nothing: there is no audit log."""


class UserRequest(Struct, frozen=True):
    method: str
    query: Query
    headers: Mapping[bytes, bytes]
    user: User
    receive: Receive
    #: Callback that records the API requests for which this one stands, before they are authorized.
    audit_as: Callable[[Attributes], None] = _not_audited

    def header(self, name: bytes) -> str:
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
