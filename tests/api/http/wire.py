"""Server on a real TLS socket, and a raw connection to it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from onejob.api.access.authentication import (
    ADMIN,
    AuthenticatorChain,
    CertificateAuthenticator,
    TokenAuthenticator,
)
from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.access.certificates import Certificates, ensure_certificates, server_names
from onejob.api.http.app import Access, ApiApp, PodSources
from onejob.api.http.server_pages import ServerPages
from onejob.api.http.serving import ApiServer
from onejob.clock import Clock, SystemClock
from onejob.metrics import Metrics

TOKEN = "test-token"
T = TypeVar("T")


@dataclass
class MovedClock:
    """Clock with a fixed offset to the real time."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return SystemClock().now() + self.ahead

    def monotonic(self) -> float:
        return SystemClock().monotonic() + self.ahead.total_seconds()


class NoOpenApi:
    """Stub of the OpenAPI documents."""

    async def prepare(self) -> None:
        """Do nothing."""

    def root(self) -> bytes:
        return b'{"paths":{}}'

    def document(self, path: str) -> tuple[bytes, str] | None:
        documents = {
            "apis/batch/v1": (b'{"openapi":"3.0.0"}', "ABC"),
            "apis/large/v1": (b"[%s]" % (b" " * 200_000), "LARGE"),
        }
        return documents.get(path)

    async def version_2(self, *, protobuf: bool) -> tuple[bytes, str]:
        return (b"\n\x032.0", "PB") if protobuf else (b'{"swagger":"2.0"}', "JS")


@dataclass
class Reply:
    """A decoded HTTP response."""

    code: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """One running server with helpers to connect to it."""

    server: ApiServer[ApiApp]
    metrics: Metrics
    certificates: Certificates
    certificate: Path | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        return await asyncio.open_connection("127.0.0.1", self.server.port, ssl=context)

    async def call(
        self,
        method: str,
        target: str,
        body: bytes | Any = b"",
        *,
        token: str = TOKEN,
        **headers: str,
    ) -> Reply:
        """Send one request on its own connection."""
        reader, writer = await self.connect()
        try:
            writer.write(request_bytes(method, target, body, token=token, **headers))
            return await read_reply(reader, head=method == "HEAD")
        finally:
            writer.close()
            await closed(writer)


def request_bytes(
    method: str, target: str, body: bytes | Any = b"", *, token: str = TOKEN, **headers: str
) -> bytes:
    """Return an HTTP/1.1 request; a body other than bytes is encoded as JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("content_type", "application/json")
    lines = [f"{method} {target} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
    if token:
        lines.append(f"authorization: Bearer {token}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def read_head(reader: asyncio.StreamReader) -> tuple[int, list[tuple[str, str]]]:
    """Read status line and headers; return the code and the headers."""
    raw = await reader.readuntil(b"\r\n\r\n")
    status, *lines = raw.decode("latin-1").strip().split("\r\n")
    headers = [
        (name.lower(), value.strip()) for name, _, value in (x.partition(":") for x in lines)
    ]
    return int(status.split()[1]), headers


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Read one chunk of a chunked body; b"" is the last."""
    size = int((await reader.readline()).strip(), 16)
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data


async def read_reply(reader: asyncio.StreamReader, *, head: bool = False) -> Reply:
    """Read one response with its body; `head`: it is the response to a HEAD request."""
    code, headers = await read_head(reader)
    fields = dict(headers)
    if head or code in (101, 204, 304):
        return Reply(code, headers, b"")
    if "content-length" in fields:
        return Reply(code, headers, await reader.readexactly(int(fields["content-length"])))
    chunks: list[bytes] = []
    while chunk := await read_chunk(reader):
        chunks.append(chunk)
    return Reply(code, headers, b"".join(chunks))


async def closed(writer: asyncio.StreamWriter) -> None:
    """Wait until the connection is closed, ignoring its errors."""
    try:
        await writer.wait_closed()
    except (ConnectionError, ssl.SSLError):
        return


def make_app(service: Any, metrics: Metrics, login_clock: Clock, **extra: Any) -> ApiApp:
    """Return the application of a service; `extra` replaces parts of it."""
    default = AuthenticatorChain(
        [TokenAuthenticator({TOKEN: ADMIN}), CertificateAuthenticator(login_clock)]
    )
    access = Access(
        extra.pop("authenticator", default), extra.pop("authorizer", AllowAuthenticated())
    )
    openapi, checks = extra.pop("openapi", NoOpenApi()), extra.pop("checks", None)
    names = ("logs", "sessions", "ports", "usage")
    return ApiApp(
        service,
        access=access,
        pages=ServerPages("v1.37.0", openapi, metrics, checks=checks),
        pods=PodSources(**{name: extra.pop(name) for name in names if name in extra}),
        rng=Random(1),
        metrics=metrics,
        **extra,
    )


@asynccontextmanager
async def serving(service: Any, directory: Path, **extra: Any) -> AsyncIterator[Wire]:
    """Run a server with this service on a free port, with TLS."""
    clock = SystemClock()
    login_clock = extra.pop("login_clock", clock)
    most = extra.pop("max_connections", None)
    certificates = ensure_certificates(directory / "pki", server_names("127.0.0.1"), clock.now())
    metrics = Metrics()
    app = make_app(service, metrics, login_clock, **extra)
    tls = certificates.server_context(client_authority=certificates.authority)
    server = ApiServer(app, host="127.0.0.1", port=0, tls=tls, clock=clock, max_connections=most)
    await server.start()
    try:
        yield Wire(server, metrics, certificates)
    finally:
        await server.stop()


def with_server(
    service: Any,
    directory: Path,
    test: Callable[[Wire], Coroutine[Any, Any, T]],
    *,
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    **extra: Any,
) -> T:
    """Run one test against one server."""

    async def run() -> T:
        async with serving(service, directory, **extra) as wire:
            return await test(wire)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())
