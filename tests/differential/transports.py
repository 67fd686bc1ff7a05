"""Transports of a scenario's requests: over HTTPS, or straight into the application.

The second serves replays in virtual time, where a wait costs nothing; it is the same application
with the same requests.
"""

import json
import os
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp

from onejob.api.access.authentication import ADMIN, TokenAuthenticator
from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.audit.log_file import AuditLog, Rotation
from onejob.api.audit.recorder import Auditor
from onejob.api.http.app import Access, ApiApp
from onejob.api.http.requests import Request as HttpRequest
from onejob.api.http.responses import Response
from onejob.api.http.server_pages import ServerPages
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import Clock, SystemClock
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.planning.audit import read_policy
from onejob.store.writer import LoopCommitter

_TOKEN = "differential"
#: Only the ConfigMaps of scenarios about the audit log.
AUDIT_POLICY: Final[Mapping[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "Metadata",
            "resources": [{"group": "", "resources": ["configmaps"]}],
            "namespaces": ["webhooks-audit-annotations"],
            "omitStages": ["RequestReceived"],
        }
    ],
}


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
    audit_log: Path

    async def send(self, request: Request) -> Answer: ...

    def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch as they come. The first one is the status code."""
        ...


class HttpTransport:
    def __init__(self, session: aiohttp.ClientSession, server: str, audit_log: Path) -> None:
        self.clock: Clock = SystemClock()
        self.audit_log = audit_log
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
async def over_https(
    kubeconfig: Path, audit_log: Path = Path(os.devnull)
) -> AsyncIterator[HttpTransport]:
    """Connect with the identity of the kubeconfig. `audit_log`: what the server writes."""
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
        yield HttpTransport(session, connection.server, audit_log)


class AppTransport:
    """Transport that calls the application: no sockets, so time may be virtual."""

    def __init__(self, app: ApiApp, clock: Clock, audit_log: Path) -> None:
        self.clock = clock
        self.audit_log = audit_log
        self._app = app

    async def send(self, request: Request) -> Answer:
        async with self._responded(request) as response:
            body = b"".join([piece async for piece in _pieces(response.body)])
            warnings = tuple(v.decode() for k, v in response.headers if k == b"warning")
            return Answer(response.code, body, warnings)

    async def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        async with self._responded(request) as response:
            yield b"%d" % response.code
            rest = b""
            async with aclosing(_pieces(response.body)) as pieces:
                async for piece in pieces:
                    *whole, rest = (rest + piece).split(b"\n")
                    for line in whole:
                        yield line
            if rest:
                yield rest

    @asynccontextmanager
    async def _responded(self, request: Request) -> AsyncIterator[Response]:
        path, _, query = request.target.partition("?")
        names = {"Host": "localhost", "Authorization": f"Bearer {_TOKEN}", **request.headers}
        headers = [(name.lower().encode(), value.encode()) for name, value in names.items()]
        response = await self._app(
            HttpRequest(
                request.method, path, query.encode(), headers, dict(headers), _Body(request.body)
            )
        )
        try:
            yield response
        finally:
            assert response.on_end is not None
            response.on_end()


class _Body:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def receive(self) -> tuple[bytes, bool]:
        return self._body, False


async def _pieces(body: bytes | AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(body, bytes):
        yield body
        return
    try:
        async for piece in body:
            yield piece
    finally:
        if isinstance(body, AsyncGenerator):
            await body.aclose()


@asynccontextmanager
async def in_process(folder: Path, clock: Clock) -> AsyncIterator[AppTransport]:
    """Start a control plane of its own, like `onejob serve --no-node`."""
    plane = await ControlPlane.start(
        Settings(folder, with_node=False), Dependencies(clock, Random(1), LoopCommitter())
    )
    audit_log = folder / "audit.log"
    log = AuditLog(str(audit_log), Rotation(), clock.now)
    try:
        app = ApiApp(
            plane.service,
            access=Access(TokenAuthenticator({_TOKEN: ADMIN}), AllowAuthenticated()),
            pages=ServerPages(
                plane.service.schema.release,
                OpenApiDocuments(plane.service.schema, plane.service.kinds),
                plane.metrics,
            ),
            rng=Random(2),
            metrics=plane.metrics,
            auditor=Auditor(read_policy(AUDIT_POLICY), log, clock.now, Random(3)),
        )
        yield AppTransport(app, clock, audit_log)
        app.close_streams()
    finally:
        log.stop()
        await plane.stop()
