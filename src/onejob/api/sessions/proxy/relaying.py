"""Relay of HTTP requests to Pods."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable
from http import HTTPStatus
from random import Random
from typing import Final, TypeVar
from weakref import WeakSet

import httptools
import msgspec

from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.api.http.routing import ResourcePath
from onejob.api.service import Service
from onejob.api.sessions.port_forwarding import Connection, PortSource
from onejob.api.sessions.proxy.heads import (
    Header,
    content_type_of,
    request_head,
    response_headers,
)
from onejob.api.sessions.proxy.locating import (
    Backend,
    backends,
    parse_name,
    pod_port,
    service_port_name,
)
from onejob.wire.errors import ApiError, BadRequest, ServiceUnavailable, TooManyRequests
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import ListOptions

T = TypeVar("T")

_PODS: Final = BY_RESOURCE["pods"]
_SERVICES: Final = BY_RESOURCE["services"]
_SLICES: Final = BY_RESOURCE["endpointslices.discovery.k8s.io"]

#: Most connections to Pods at a time.
MAX_CONNECTIONS: Final = 256
#: Seconds to wait for a connection, and for the head of a response. Its body may take any time.
_CONNECT_SECONDS: Final = 30.0
_HEAD_SECONDS: Final = 60.0
_MAX_HEAD_BYTES: Final = 256 * 1024
_PIECE_BYTES: Final = 64 * 1024
_KNOWN_CODES: Final = frozenset(status.value for status in HTTPStatus)


class PodProxy:
    """Proxy of one server.

    Guarantees: connects only to ports on which the Pod itself listens. At most `MAX_CONNECTIONS`
    are open, and a Pod that does not respond in time is an error. Bodies are relayed as fast as
    the client reads.
    """

    def __init__(self, service: Service, ports: PortSource | None, rng: Random) -> None:
        self._service = service
        self._ports = ports
        self._rng = rng
        self._open: WeakSet[asyncio.StreamWriter] = WeakSet()

    async def relay(self, request: UserRequest, target: ResourcePath) -> Response:
        """Send a request to the Pod and return its response. Raises ApiError, ClientGone."""
        prefix = prefix_of(target)
        if not target.tail and request.method in ("GET", "HEAD"):
            # As upstream: otherwise relative links would lead out of the proxy.
            query = b"?" + request.query_string if request.query_string else b""
            location = prefix.encode("ascii", "replace") + b"/" + query
            return Response(301, b"", b"text/plain", ((b"location", location),))
        body = await request.body()
        reader, writer = await self.connect(target)
        head = request_head(
            request.method,
            target_of(request, target),
            request.headers,
            length=len(body),
            prefix=prefix,
        )
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                writer.write(head + body)
                received = _Received()
                await received.head(reader)
        except (OSError, TimeoutError, httptools.HttpParserError) as error:
            writer.close()
            raise unreachable(error) from error
        except BaseException:
            writer.close()
            raise
        headers = response_headers(received.headers, prefix)
        code, content_type = received.code, content_type_of(received.headers)
        if request.method == "HEAD" or received.is_whole:
            writer.close()
            return Response(code, b"".join(received.take()), content_type, headers)
        return Response(code, _pieces(received, reader, writer), content_type, headers, True)

    async def connect(self, target: ResourcePath) -> Connection:
        """Connect to the Pod that a request names. Raises ApiError."""
        if self._ports is None:
            raise ServiceUnavailable("error trying to reach service: this server runs no Pods")
        if sum(not writer.is_closing() for writer in self._open) >= MAX_CONNECTIONS:
            raise TooManyRequests("too many requests are being proxied, please try again later")
        scheme, backend = await self._backend(target)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await self._ports.connect(
                    target.namespace, backend.pod, backend.port
                )
                self._open.add(writer)
                if scheme == "https":
                    await writer.start_tls(_unverified())
        except BadRequest as error:
            # The node's error: nothing listens there, or the runtime has no ports.
            raise unreachable(error) from error
        except (OSError, TimeoutError) as error:
            raise unreachable(error) from error
        return reader, writer

    async def _backend(self, target: ResourcePath) -> tuple[str, Backend]:
        """Return scheme and backend of a request. Raises ApiError."""
        namespace = target.namespace
        if target.kind == _PODS:
            wanted = parse_name(target.name, "pod")
            pod = msgspec.json.decode(await self._service.get(_PODS, namespace, wanted.name))
            return wanted.scheme, Backend(wanted.name, pod_port(pod, wanted.port))
        wanted = parse_name(target.name, "service")
        document = await self._service.get(_SERVICES, namespace, wanted.name)
        port = service_port_name(msgspec.json.decode(document), wanted.port)
        listed = await self._service.list(
            _SLICES,
            namespace,
            ListOptions(label_selector=f"kubernetes.io/service-name={wanted.name}"),
        )
        slices = map(msgspec.json.decode, listed.documents)
        return wanted.scheme, self._rng.choice(backends(slices, wanted.name, port))


def prefix_of(target: ResourcePath) -> str:
    """Return the path of the proxy itself, without the part that is passed on."""
    kind = target.kind
    return f"/api/{kind.version}/namespaces/{target.namespace}/{kind.plural}/{target.name}/proxy"


def target_of(request: UserRequest, target: ResourcePath) -> str:
    """Return path and query of the request to the Pod, as the client sent them."""
    query = request.query_string.decode("ascii", "replace")
    return f"{target.tail or '/'}?{query}" if query else target.tail or "/"


def unreachable(error: Exception) -> ServiceUnavailable:
    why = error.message if isinstance(error, ApiError) else str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        why = "it did not respond in time"
    return ServiceUnavailable(f"error trying to reach service: {why}")


def _unverified() -> ssl.SSLContext:
    # As upstream: Pods have certificates of their own, if any.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Received:
    """Response of a Pod, as far as it has arrived."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_head = False
        self.headers: list[Header] = []
        self.code = 0
        self.is_whole = False

    async def head(self, reader: asyncio.StreamReader) -> None:
        """Read until the head is complete. Raises OSError or HttpParserError."""
        size = 0
        while not self._has_head:
            data = await reader.read(_PIECE_BYTES)
            size += len(data)
            if not data or size > _MAX_HEAD_BYTES:
                raise ConnectionResetError("it closed the connection without an HTTP response")
            self.feed(data)
        if self.code not in _KNOWN_CODES:
            raise ConnectionResetError(f"its response has the unknown status code {self.code}")

    def feed(self, data: bytes) -> None:
        """Parse data. Raises HttpParserError."""
        self._parser.feed_data(data)

    def take(self) -> list[bytes]:
        """Return the parts of the body that have arrived since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    # --- callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        code = self._parser.get_status_code()
        if code < 200:
            # An interim response: the actual one follows.
            self.headers.clear()
            return
        self.code = code
        self._has_head = True
        self.is_whole = code in (204, 304)

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_whole = True


async def _pieces(
    received: _Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncGenerator[bytes, None]:
    """Yield the body of a response, and close the connection at its end."""
    try:
        while True:
            for piece in received.take():
                yield piece
            if received.is_whole:
                return
            data = await reader.read(_PIECE_BYTES)
            if not data:
                return
            received.feed(data)
    except (OSError, httptools.HttpParserError):
        # What has been sent cannot be taken back; the client sees the end of the stream.
        return
    finally:
        writer.close()


async def closing_on_error(writer: asyncio.StreamWriter, work: Awaitable[T]) -> T:
    """Await work on a connection, and close it if that fails."""
    try:
        return await work
    except BaseException:
        writer.close()
        raise
