"""HTTP responses as values: status, headers, and a body as bytes or as a stream."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.sessions.socket import Session
from onejob.wire.errors import ApiError, MethodNotAllowed, NotFound

#: Minimum size for compression (upstream's value).
GZIP_FROM_BYTES: Final = 128 * 1024

_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"

#: Upstream's limit on the total length of warnings, and on each warning once that is exceeded.
_WARNINGS_TOTAL: Final = 4096
_WARNING_LENGTH: Final = 256
#: Clients based on Python's http.client reject responses with more than a hundred headers.
_MAX_WARNINGS: Final = 80

Header = tuple[bytes, bytes]


class Response(Struct, frozen=True):
    """Response of a handler, and of the whole application to a connection.

    Handlers leave `session`, `ends` and `on_end` to the application.
    """

    code: int
    body: bytes | AsyncIterator[bytes]
    content_type: bytes = _JSON
    headers: tuple[Header, ...] = ()
    #: A stream without a natural end; it is ended when the server stops.
    endless: bool = False
    #: Session that takes over the connection; only in response to a request with `upgrade`.
    session: Session | None = None
    #: Futures that end the stream or session early, at a shutdown or when access is revoked.
    ends: tuple[asyncio.Future[None], ...] = ()
    #: Called by the connection exactly once: when the response is sent, or cannot be.
    on_end: Callable[[], None] | None = None


def json_response(document: Any, code: int = 200, headers: tuple[Header, ...] = ()) -> Response:
    return Response(code, msgspec.json.encode(document), headers=headers)


def text_response(text: str, code: int = 200) -> Response:
    return Response(code, text.encode(), _TEXT, ((b"x-content-type-options", b"nosniff"),))


def error_response(error: ApiError) -> Response:
    """Return the response to a failed request."""
    status = error.status()
    if isinstance(error, NotFound | MethodNotAllowed) and "details" not in status:
        # As upstream: an unknown resource or method has empty details.
        code = status.pop("code")
        status |= {"details": {}, "code": code}
    headers: list[Header] = []
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", str(error.retry_after_seconds).encode()))
    if error.code == 401:
        headers.append((b"www-authenticate", b'Bearer realm="onejob"'))
    headers += warning_headers(error.warnings)
    return Response(error.code, msgspec.json.encode(status), headers=tuple(headers))


def warning_headers(warnings: Sequence[str]) -> tuple[Header, ...]:
    """Return one `Warning: 299` header per distinct text.

    Control characters, which could end the header early, are replaced.
    """
    if not warnings:
        return ()
    texts = [_printable(text) for text in dict.fromkeys(warnings) if text][:_MAX_WARNINGS]
    if sum(map(len, texts)) > _WARNINGS_TOTAL:
        texts = [text[:_WARNING_LENGTH] for text in texts]
    kept: list[Header] = []
    length = 0
    for text in texts:
        if length >= _WARNINGS_TOTAL:
            break
        length += len(text)
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        kept.append((b"warning", f'299 - "{quoted}"'.encode()))
    return tuple(kept)


def _printable(text: str) -> str:
    """Return a text with each unprintable character replaced by a space."""
    return "".join(char if char.isprintable() else " " for char in text)


def accepts_gzip(request_headers: Mapping[bytes, bytes]) -> bool:
    offered = request_headers.get(b"accept-encoding", b"")
    return b"gzip" in offered and b"gzip;q=0" not in offered.replace(b" ", b"")


def compressed(body: bytes) -> bytes:
    """Return a body in gzip format."""
    compressor = _gzip()
    return compressor.compress(body) + compressor.flush()


async def compressed_stream(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = _gzip()
    async for piece in body:
        if squeezed := compressor.compress(piece):
            yield squeezed
    yield compressor.flush()


def _gzip() -> "zlib._Compress":
    """Return a new gzip compressor."""
    # Level 1, as upstream: most of the gain for a fraction of the time.
    return zlib.compressobj(1, zlib.DEFLATED, 31)
