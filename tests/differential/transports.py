"""Transports of a scenario's requests: over HTTPS, or straight into the application.

The second serves replays in virtual time, where a wait costs nothing; it is the same application
with the same requests.
"""

import asyncio
import json
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp

from onejob.api.access.authentication import ADMIN, TokenAuthenticator
from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.http.app import ApiApp
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import Clock, SystemClock
from onejob.control_plane import ControlPlane, Settings, World
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock

_TOKEN = "differential"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]

    @property
    def target(self) -> str:
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: bytes
    warnings: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


class Transport(Protocol):
    clock: Clock

    async def send(self, request: Request) -> Answer: ...

    def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch as they come. The first one is the status code."""
        ...


class HttpTransport:
    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self.clock: Clock = SystemClock()
        self._session = session
        self._server = server

    async def send(self, request: Request) -> Answer:
        async with self._open(request) as response:
            return Answer(
                response.status,
                await response.read(),
                tuple(response.headers.getall("Warning", ())),
            )

    async def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        async with self._open(request) as response:
            yield b"%d" % response.status
            async for line in response.content:
                yield line

    def _open(self, request: Request) -> Any:
        return self._session.request(
            request.method,
            self._server + request.target,
            data=request.body or None,
            headers=request.headers,
        )


@asynccontextmanager
async def over_https(kubeconfig: Path) -> AsyncIterator[HttpTransport]:
    """Connect with the identity of the kubeconfig."""
    connection = load_kubeconfig(kubeconfig, SystemClock())
    credential = await connection.credentials.current()
    trust = ssl.create_default_context(cadata=connection.authority.decode())
    headers = {}
    if credential.certificate:
        # ssl reads certificates from files only.
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder) / "client.pem"
            pem.touch(mode=0o600)
            pem.write_bytes(credential.certificate + b"\n" + credential.key)
            trust.load_cert_chain(pem)
    else:
        headers["Authorization"] = credential.authorization
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=trust),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=120),
        read_bufsize=2**22,
    ) as session:
        yield HttpTransport(session, connection.server)


class AppTransport:
    """Transport that calls the application: no sockets, so time may be virtual."""

    def __init__(self, app: ApiApp, clock: Clock) -> None:
        self.clock = clock
        self._app = app

    async def send(self, request: Request) -> Answer:
        code, warnings, body = 0, [], bytearray()
        async for message in self._messages(request):
            if message["type"] == "http.response.start":
                code = message["status"]
                warnings = [v.decode() for k, v in message["headers"] if k.lower() == b"warning"]
            else:
                body += message.get("body", b"")
        return Answer(code, bytes(body), tuple(warnings))

    async def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        rest = b""
        async for message in self._messages(request):
            if message["type"] == "http.response.start":
                yield b"%d" % message["status"]
                continue
            *whole, rest = (rest + message.get("body", b"")).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest

    async def _messages(self, request: Request) -> AsyncGenerator[dict[str, Any], None]:
        path, _, query = request.target.partition("?")
        names = {"Host": "localhost", "Authorization": f"Bearer {_TOKEN}", **request.headers}
        scope = {
            "type": "http",
            "method": request.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in names.items()],
            "state": {},
        }
        sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        unread = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> Any:
            if unread:
                return unread.pop()
            return await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            sent.put_nowait(dict(message))

        call = asyncio.ensure_future(self._app(scope, receive, send))
        call.add_done_callback(lambda _: sent.put_nowait(None))
        try:
            while (message := await sent.get()) is not None:
                yield message
            await call
        finally:
            call.cancel()


@asynccontextmanager
async def in_virtual_time(folder: Path) -> AsyncIterator[AppTransport]:
    """Start a control plane of its own, like `onejob serve --no-node`."""
    clock = virtual_clock()
    plane = await ControlPlane.start(
        Settings(folder, with_node=False), World(clock, Random(1), LoopCommitter())
    )
    try:
        app = ApiApp(
            plane.service,
            authenticator=TokenAuthenticator({_TOKEN: ADMIN}),
            authorizer=AllowAuthenticated(),
            openapi=OpenApiDocuments(plane.service.schema, plane.service.kinds),
            release=plane.service.schema.release,
            rng=Random(2),
            metrics=plane.metrics,
        )
        yield AppTransport(app, clock)
        app.close_streams()
    finally:
        await plane.stop()
