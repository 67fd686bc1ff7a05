"""Plain HTTP requests to a whole server, for any kind."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.control_plane import Settings
from onejob.node.options import NodeOptions
from onejob.server import HttpsServer

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Requests:
    """Client of one server, for any path and body."""

    def __init__(self, server: HttpsServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        #: Authenticated as the admin.
        self.session = session
        #: Headers of the last response.
        self.headers: Mapping[str, str] = {}
        self.warnings: list[str] = []

    async def __call__(
        self, method: str, path: str, body: Any = None, *, accept: str = "application/json",
        content_type: str = "application/json", headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        """Send a request; return status code and decoded response."""
        headers = {"Accept": accept, "Content-Type": content_type, **(headers or {})}
        data = None if body is None else msgspec.json.encode(body)
        async with self.session.request(method, path, data=data, headers=headers) as answer:
            self.headers = answer.headers
            self.warnings = answer.headers.getall("Warning", [])
            content = await answer.read()
            if answer.content_type == "text/plain":
                return answer.status, content.decode()
            return answer.status, json.loads(content)

    async def get(self, path: str, **options: Any) -> Any:
        return (await self("GET", path, **options))[1]

    async def until(self, path: str, settled: Callable[[Any], bool]) -> Any:
        """Poll a path until `settled` accepts the response; return it."""
        while True:
            answer = await self.get(path)
            if settled(answer):
                return answer
            await asyncio.sleep(0.02)

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        code, answer = await self(method, path, body, **options)
        assert code < 300, answer
        return answer

    async def events(self, path: str, count: int) -> list[dict[str, Any]]:
        """Return the first `count` events of a watch."""
        found = []
        target = f"{path}{'&' if '?' in path else '?'}watch=true"
        async with self.session.get(target) as answer:
            async for line in answer.content:
                found.append(json.loads(line))
                if len(found) == count:
                    break
        return found


@asynccontextmanager
async def a_server(folder: Path, **settings: Any) -> AsyncIterator[Requests]:
    """Run a whole server with all controllers; its Pods end at once."""
    server = await HttpsServer.start(
        Settings(folder / "data", NodeOptions(runtime="simulated", name="node"), **settings),
        host="127.0.0.1",
        port=0,
        kubeconfig=folder / "kubeconfig",
    )
    try:
        connection = load_kubeconfig(server.kubeconfig, SystemClock())
        credential = await connection.credentials.current()
        async with aiohttp.ClientSession(
            server.url,
            headers={"Authorization": credential.authorization},
            connector=aiohttp.TCPConnector(ssl=False),
        ) as session:
            yield Requests(server, session)
    finally:
        await server.stop()


def with_requests(folder: Path, test: Callable[[Requests], Awaitable[None]]) -> None:
    """Run one test against a whole server."""

    async def run() -> None:
        async with a_server(folder) as requests, asyncio.timeout(60):
            await test(requests)

    asyncio.run(run())


async def eventually(look: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition that controllers establish; fail after a while."""
    for _ in range(1200):
        if await look():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what}: not so after a minute")
