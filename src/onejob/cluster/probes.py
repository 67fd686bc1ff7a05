"""Health, readiness and metrics endpoints (/healthz, /readyz, /metrics) over plain HTTP."""

import asyncio
from collections.abc import Callable

#: Handler of a page: returns status and text.
Page = Callable[[], tuple[int, str]]

_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


class ProbeServer:
    """Minimal HTTP server: one request per connection; only GET and HEAD."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Start listening and return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_BYTES)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def stop(self) -> None:
        """Close the listener."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a connection and close it."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            # No complete request arrived: close without a response.
            pass
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        """Return the response to a request head."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
        if len(words) != 3:
            return _response(400, "bad request\n", body=True)
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _response(405, "only GET\n", body=True)
        page = self._pages.get(target.partition("?")[0])
        status, text = page() if page is not None else (404, "not found\n")
        return _response(status, text, body=method == "GET")


def _response(status: int, text: str, *, body: bool) -> bytes:
    """Return an encoded response; without its content for HEAD."""
    content = text.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Service Unavailable')}\r\n"
        "content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + (content if body else b"")
