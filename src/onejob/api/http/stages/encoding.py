"""Encoding stage: compress a response on request and name it by its request id."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from onejob.api.http.requests import Request
from onejob.api.http.responses import (
    GZIP_FROM_BYTES,
    Response,
    accepts_gzip,
    compressed,
    compressed_stream,
)

if TYPE_CHECKING:
    import asyncio


def encoded(
    response: Response,
    request: Request,
    request_id: bytes,
    ends: tuple["asyncio.Future[None]", ...],
    on_end: Callable[[], None],
) -> Response:
    """Return the response as it is handed to the connection."""
    body = response.body
    headers = ((b"audit-id", request_id), *response.headers)
    is_small = isinstance(body, bytes) and len(body) <= GZIP_FROM_BYTES
    if not is_small and _compressible(response) and accepts_gzip(request.fields):
        body = compressed(body) if isinstance(body, bytes) else compressed_stream(body)
        headers = (*headers, (b"content-encoding", b"gzip"))
    return msgspec.structs.replace(response, body=body, headers=headers, ends=ends, on_end=on_end)


def _compressible(response: Response) -> bool:
    """Return whether a response may be compressed: endless streams and plain text must arrive
    without buffering."""
    return not response.endless and not response.content_type.startswith(b"text/")
