"""Opening of HTTP connections, directly or through a CONNECT proxy."""

import asyncio
import base64
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from onejob.client.transport.answer import BrokenResponse, IncomingResponse
from onejob.client.transport.connection import HttpConnection, Keeper

#: Header names and values.
Headers = tuple[tuple[str, str], ...]

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Route:
    """Address of a server, its TLS settings and its proxy."""

    #: URL with scheme http or https, host and port; a path is ignored.
    server: str
    #: None for http.
    tls: ssl.SSLContext | None
    #: The name that the certificate must have, if it differs from the server's host.
    tls_server_name: str = ""
    #: URL of a proxy, or "".
    proxy: str = ""

    @property
    def asks_proxy(self) -> bool:
        """Return whether requests contain the absolute URL because a proxy reads them (no TLS)."""
        return bool(self.proxy) and self.tls is None

    def proxy_headers(self) -> Headers:
        """Return the Proxy-Authorization header, if the proxy's URL contains a user."""
        proxy = urlsplit(self.proxy)
        if not proxy.username:
            return ()
        user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        return (("Proxy-Authorization", f"Basic {base64.b64encode(user).decode()}"),)


def header_lines(headers: Headers) -> str:
    """Return headers in wire format. Raises ValueError for a value with a line break."""
    for name, value in headers:
        if any(character in value for character in "\r\n\0"):
            raise ValueError(f"the header {name} must not contain a line break")
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


async def dial(route: Route, keeper: Keeper) -> HttpConnection:
    """Open a connection.

    Raises OSError; ssl.SSLCertVerificationError if the server's certificate is not trusted.
    """
    loop = asyncio.get_running_loop()
    server = urlsplit(route.server)
    name = route.tls_server_name or server.hostname
    connection = HttpConnection(keeper)
    if not route.proxy:
        await loop.create_connection(
            lambda: connection,
            *_address(server),
            ssl=route.tls,
            server_hostname=name if route.tls else None,
        )
        return connection
    proxy = urlsplit(route.proxy)
    if proxy.scheme not in _PORTS:
        raise OSError(f"unsupported proxy scheme {proxy.scheme}://: use http or https")
    proxy_tls = ssl.create_default_context() if proxy.scheme == "https" else None
    if route.tls is None:
        await loop.create_connection(lambda: connection, *_address(proxy), ssl=proxy_tls)
        return connection
    tunnel = _Tunnel()
    transport, _ = await loop.create_connection(lambda: tunnel, *_address(proxy), ssl=proxy_tls)
    try:
        host, port = _address(server)
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = header_lines((("Host", authority), *route.proxy_headers()))
        transport.write(f"CONNECT {authority} HTTP/1.1\r\n{lines}\r\n".encode())
        await tunnel.opened
        secured = await loop.start_tls(transport, connection, route.tls, server_hostname=name)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise BrokenResponse("the proxy closed the connection")
    connection.connection_made(secured)
    return connection


class _Tunnel(asyncio.Protocol):
    """Protocol of a CONNECT request: waits for the proxy's response.

    Bytes after it belong to the tunnelled connection.
    """

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer = IncomingResponse(lambda: None, lambda: None)

    def data_received(self, data: bytes) -> None:
        if self.opened.done():
            return
        try:
            self._answer.feed(data)
        except BrokenResponse as error:
            if self._answer.status != 200:
                self.opened.set_exception(error)
                return
        status = self._answer.status
        if status == 200:
            self.opened.set_result(None)
        elif status:
            self.opened.set_exception(BrokenResponse(f"the proxy responded with {status}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(exc or BrokenResponse("the proxy closed the connection"))


def _address(url: SplitResult) -> tuple[str, int]:
    """Return host and port of a URL. Raises OSError if it has no host."""
    if not url.hostname:
        raise OSError(f"{url.geturl()!r} contains no host")
    return url.hostname, url.port or _PORTS.get(url.scheme, 443)
