"""Two real servers over TLS in this process: `here` mirrors to `there`."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Client, Create, Delete, Patch, Selection
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.control_plane import Settings
from onejob.controllers.selection import ALL
from onejob.node.options import NodeOptions
from onejob.objects.meta import JOBS, PODS, Key
from onejob.planning.mirror import names
from onejob.server import HttpsServer
from onejob.wire.errors import NotFound
from tests import build

Document = dict[str, Any]
TARGET = "there"
_PATIENCE_SECONDS = 30.0


@dataclass
class Pair:
    """Two servers: Jobs of `here` are mirrored to `there`."""

    here: HttpsServer
    there: HttpsServer
    folder: Path
    #: Client over HTTPS, as kubectl is.
    http: HttpClient

    @property
    def local(self) -> Client:
        return self.here.plane.client

    @property
    def remote(self) -> Client:
        return self.there.plane.client

    async def add_target(self, name: str = TARGET, kubeconfig: bytes | None = None) -> None:
        text = kubeconfig if kubeconfig is not None else self.there.kubeconfig.read_bytes()
        await add_target(self.local, name, text)

    async def create(self, name: str = "x", **options: Any) -> str:
        """Create a Job and return its UID."""
        job = a_job(name, **options)
        written = await self.local.write(Create(JOBS, "default", msgspec.json.encode(job)))
        uid: str = msgspec.json.decode(written.document)["metadata"]["uid"]
        return uid

    async def job(self, name: str = "x") -> Document:
        return await read(self.local, JOBS, name)

    async def copy(self, name: str = "x") -> Document:
        return await read(self.remote, JOBS, name)

    async def until(self, test: Callable[[Document], bool], name: str = "x") -> Document:
        return await until(self.local, Key(JOBS, "default", name), test)

    async def until_copy(self, test: Callable[[Document], bool], name: str = "x") -> Document:
        return await until(self.remote, Key(JOBS, "default", name), test)

    async def delete(self, name: str = "x", propagation: Any = "Background") -> None:
        await self.local.write(Delete(Key(JOBS, "default", name), propagation))

    async def patch(self, body: Document, name: str = "x") -> None:
        key = Key(JOBS, "default", name)
        await self.local.write(Patch(key, msgspec.json.encode(body), "merge"))

    async def pods(self, client: Client) -> list[Document]:
        found = await client.list(Selection(PODS, "default"))
        return [msgspec.json.decode(document) for document in found.documents]


async def add_target(client: Client, name: str, text: bytes, namespace: str = "default") -> None:
    """Create the Secret that makes the cluster of a kubeconfig a mirror target."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {names.TARGET_LABEL: "true"}},
        "data": {names.KUBECONFIG_KEY: base64.b64encode(text).decode()},
    }
    await client.write(Create("secrets", namespace, msgspec.json.encode(secret)))


def a_job(
    name: str = "x",
    *,
    command: str = "exit 0",
    annotations: dict[str, str] | None = None,
    target: str = TARGET,
    pod: Document | None = None,
    container: Document | None = None,
    **spec: Any,
) -> Document:
    """Return a mirrored Job; keywords are fields of its spec."""
    main = build.shell(command, name="main", **(container or {}))
    return build.a_job(
        name,
        metadata={"annotations": {names.TARGET: target, **(annotations or {})}},
        **{"managedBy": names.MANAGER, **spec},
        template=build.template(main, **{"terminationGracePeriodSeconds": 1, **(pod or {})}),
    )


async def read(client: Client, resource: str, name: str) -> Document:
    document: Document = msgspec.json.decode(await client.get(Key(resource, "default", name)))
    return document


async def until(client: Client, key: Key, test: Callable[[Document], bool]) -> Document:
    """Return the object once `test` accepts it; fail with its last state after a while."""
    last: Document = {}
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                last = msgspec.json.decode(await client.get(key))
                if test(last):
                    return last
                await asyncio.sleep(0.02)
    except TimeoutError:
        text = msgspec.json.format(msgspec.json.encode(last)).decode()
        raise AssertionError(f"{key} did not become as expected: {text}") from None


async def until_gone(client: Client, key: Key) -> None:
    """Wait until the object does not exist any more."""
    try:
        await until(client, key, lambda _: False)
    except NotFound:
        return


def condition(job: Document, kind: str = names.READY) -> Document:
    """Return the condition of this type, or {}."""
    for one in job.get("status", {}).get("conditions", ()):
        if one["type"] == kind:
            return dict(one)
    return {}


def is_complete(job: Document) -> bool:
    return condition(job, "Complete").get("status") == "True"


def is_failed(job: Document) -> bool:
    return condition(job, "Failed").get("status") == "True"


def trouble(reason: str) -> Callable[[Document], bool]:
    """Return a test for a Job whose MirrorReady condition has this reason."""
    return lambda job: condition(job).get("reason") == reason


def make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


@asynccontextmanager
async def a_server(
    folder: Path, runtime: str, *, controllers: frozenset[str] = ALL
) -> AsyncIterator[HttpsServer]:
    """Run one HTTPS server with the given node runtime."""
    make_folder(folder)
    server = await HttpsServer.start(
        Settings(
            folder / "data",
            NodeOptions(runtime=runtime, pods_end_with_server=True),
            controllers=controllers,
        ),
        host="127.0.0.1",
        port=0,
        kubeconfig=folder / "kubeconfig",
    )
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def a_pair(
    folder: Path, runtime: str = "simulated", *, controllers: frozenset[str] = ALL
) -> AsyncIterator[Pair]:
    """Run two servers. `runtime` is that of the remote side; here nothing runs.

    `controllers` are the ones of the local side.
    """
    async with (
        a_server(folder / "here", "simulated", controllers=controllers) as here,
        a_server(folder / "there", runtime) as there,
    ):
        http = HttpClient(load_kubeconfig(here.kubeconfig, SystemClock()), rng=Random(1))
        pair = Pair(here, there, folder, http)
        try:
            await pair.add_target()
            yield pair
        finally:
            await http.close()
