"""Engines that run the corpus: each a place to create Jobs at, and one to read their Pods from."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from onejob.client.base import Client
from onejob.clock import SystemClock
from onejob.control_plane import Settings
from onejob.informers.shared import SharedInformers
from onejob.node.agent.agent import NodeAgent
from onejob.node.options import NodeOptions, SlurmOptions
from onejob.planning.mirror import names
from onejob.server import HttpsServer
from tests.mirror.pairs import add_target
from tests.node.podman import support as podman
from tests.node.support import NODE, process_runtime
from tests.upstream.jobs import a_real_cluster, client_of

#: Room for all Jobs of the corpus at once.
CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
_AMOUNTS = {"cpu": 64000, "memory": 64 << 30, "pods": 1000}


class Engine(NamedTuple):
    #: Creates and reads Jobs.
    client: Client
    #: Reads their Pods.
    pods: Client
    #: Whether Jobs have to ask for the mirror.
    mirrored: bool = False
    image: str = "example"


@asynccontextmanager
async def _server(folder: Path, options: NodeOptions) -> AsyncIterator[HttpsServer]:
    folder.mkdir(parents=True, exist_ok=True)
    server = await HttpsServer.start(
        Settings(folder / "data", options),
        host="127.0.0.1",
        port=0,
        kubeconfig=folder / "kubeconfig",
    )
    try:
        yield server
    finally:
        await server.stop()


def _options(runtime: str, **fields: object) -> NodeOptions:
    return NodeOptions(runtime=runtime, capacity=CAPACITY, pods_end_with_server=True, **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def process(folder: Path) -> AsyncIterator[Engine]:
    async with _server(folder, _options("process")) as server:
        yield Engine(server.plane.client, server.plane.client)


@asynccontextmanager
async def in_podman(folder: Path) -> AsyncIterator[Engine]:
    options = _options("podman", engine=podman.ENGINE, engine_options=podman.OPTIONS)
    async with _server(folder, options) as server:
        yield Engine(server.plane.client, server.plane.client, image=podman.IMAGE)


@asynccontextmanager
async def slurm(folder: Path) -> AsyncIterator[Engine]:
    """Slurm, or stand-ins for its commands, as the PATH has them."""
    fleet = SlurmOptions(max_nodes=2, query_seconds=1.0, pods=500)
    async with _server(folder, _options("slurm", slurm=fleet)) as server:
        yield Engine(server.plane.client, server.plane.client)


@asynccontextmanager
async def mirror(folder: Path) -> AsyncIterator[Engine]:
    async with (
        _server(folder / "here", _options("simulated")) as here,
        _server(folder / "there", _options("process")) as there,
    ):
        await add_target(here.plane.client, "there", there.kubeconfig.read_bytes())
        yield Engine(here.plane.client, there.plane.client, mirrored=True)


@asynccontextmanager
async def kubernetes(folder: Path) -> AsyncIterator[Engine]:
    """A real kube-apiserver and kube-controller-manager; our node agent is the kubelet."""
    folder.mkdir(parents=True, exist_ok=True)
    with a_real_cluster() as cluster:
        await asyncio.to_thread(
            cluster.start_controller_manager, "*", "--kube-api-qps=1000", "--kube-api-burst=1000"
        )
        client = client_of(cluster)
        informers = SharedInformers(client)
        agent = NodeAgent(
            client,
            informers.pods,
            process_runtime(folder),
            node_name=NODE,
            clock=SystemClock(),
            rng=Random(1),
            capacity=_AMOUNTS,
            sources=[informers.metadata(resource) for resource in ("configmaps", "secrets")],
        )
        await informers.start()
        await agent.start()
        try:
            yield Engine(client, client)
        finally:
            await agent.stop(end_pods=True)
            await informers.stop()
            await client.close()


ENGINES: dict[str, Callable[[Path], AbstractAsyncContextManager[Engine]]] = {
    "process": process,
    "podman": in_podman,
    "slurm": slurm,
    "mirror": mirror,
    "kubernetes": kubernetes,
}

#: Fields that a mirrored Job has.
MIRRORED = {"annotations": {names.TARGET: "there"}}
MANAGER = names.MANAGER
