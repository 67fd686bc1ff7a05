"""HTTP client for decoded documents, with a server and the real service."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.api.http.wire import Reply, Wire, closed, read_chunk, read_head, request_bytes
from tests.build import a_pod
from tests.harness import HttpPlane, running_http

JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRONJOBS = "/apis/batch/v1/namespaces/default/cronjobs"
PODS = "/api/v1/namespaces/default/pods"
CONFIGS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"


class Api:
    """One server with a client for decoded documents."""

    def __init__(self, plane: HttpPlane) -> None:
        self.plane = plane
        self._wire = Wire(plane.server, plane.metrics, plane.certificates)

    async def call(self, method: str, target: str, body: Any = b"", **headers: str) -> Reply:
        return await self._wire.call(method, target, body, token=self.plane.token, **headers)

    async def ok(self, method: str, target: str, body: Any = b"", **headers: str) -> Any:
        reply = await self.call(method, target, body, **headers)
        assert reply.code in (200, 201), reply
        return reply.json()

    async def watch(self, target: str, **headers: str) -> "Watching":
        reader, writer = await self._wire.connect()
        writer.write(request_bytes("GET", target, token=self.plane.token, **headers))
        code, _ = await read_head(reader)
        assert code == 200
        return Watching(reader, writer)


class Watching:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._lines: list[bytes] = []

    async def next(self) -> Any:
        async with asyncio.timeout(30):
            while not self._lines:
                self._lines = (await read_chunk(self._reader)).splitlines()
        return json.loads(self._lines.pop(0))

    async def close(self) -> None:
        self._writer.close()
        await closed(self._writer)


def with_api(directory: Path, test: Callable[[Api], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with running_http(directory) as plane:
            await test(Api(plane))

    asyncio.run(run())


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return a_pod(name, metadata=metadata)


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
