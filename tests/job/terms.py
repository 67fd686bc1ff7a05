"""Successive control planes ("terms"), each on the data of the previous one, with its own gates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Create, Selection
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.gates import parse_gates
from onejob.node.options import NodeOptions
from onejob.objects.meta import EVENTS, JOBS, Key
from onejob.objects.pod import Pod
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from tests import build
from tests.scripted_cluster import Cluster, RunningController, Script, ScriptedNode, a_cluster


@dataclass
class Term:
    """One control plane of a series on the same data."""

    cluster: Cluster
    node: ScriptedNode
    controller: RunningController

    async def document(self, key: Key) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.json.decode(await self.cluster.client.get(key))
        return document

    async def pods_of(self, name: str) -> list[Pod]:
        """Return the Pods that the Job of this name controls."""
        return [
            pod
            for pod in await self.cluster.pods()
            if pod.metadata.controller_ref is not None and pod.metadata.controller_ref.name == name
        ]

    async def reasons(self) -> list[str]:
        """Return the reasons of all events, in the order in which they were written."""
        listing = await self.cluster.client.list(Selection(EVENTS))
        events = [msgspec.json.decode(document) for document in listing.documents]
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["reason"] for event in events]


@asynccontextmanager
async def a_term(
    folder: Path, gates: str = "", *, script: Script = lambda pod: None, **settings: Any
) -> AsyncIterator[Term]:
    """Run API server, Job controller and a node whose Pods end as the script says (never)."""
    async with a_cluster(folder, seed=_seed(), gates=parse_gates(gates), **settings) as cluster:
        node = cluster.start_node(script)
        controller = await cluster.start_job_controller()
        try:
            yield Term(cluster, node, controller)
        finally:
            await controller.stop()


@asynccontextmanager
async def a_plane(folder: Path, gates: str = "", **settings: Any) -> AsyncIterator[ControlPlane]:
    """Run everything that `onejob serve` runs except HTTPS; Pods end at once."""
    plane = await ControlPlane.start(
        Settings(
            data_dir=folder,
            node=NodeOptions(runtime="simulated", name="node"),
            gates=parse_gates(gates),
            **settings,
        ),
        Dependencies(virtual_clock(), Random(_seed()), LoopCommitter()),
    )
    try:
        yield plane
    finally:
        await plane.stop()


def _seed() -> int:
    """Return a new seed for each term: names and UIDs must not repeat."""
    return int(asyncio.get_running_loop().time())


async def create(plane: ControlPlane, resource: str, document: dict[str, Any]) -> Key:
    """Create an object in namespace `default` and return its key."""
    await plane.client.write(Create(resource, "default", msgspec.json.encode(document)))
    return Key(resource, "default", document["metadata"]["name"])


async def create_job(plane: ControlPlane, name: str = "job", **spec: Any) -> Key:
    """Create a Job and return its key; keywords are fields of its spec."""
    metadata = {"annotations": spec.pop("annotations", {})}
    document = build.a_job(name, metadata=metadata, **spec)
    return await create(plane, JOBS, document)


def template(**annotations: str) -> dict[str, Any]:
    """Return a Pod template with these annotations."""
    return build.template(metadata={"annotations": annotations})


async def names(plane: ControlPlane, resource: str) -> list[str]:
    """Return the names of all objects of a resource."""
    listing = await plane.client.list(Selection(resource))
    return [msgspec.json.decode(d)["metadata"]["name"] for d in listing.documents]


async def settled() -> None:
    """Sleep long enough for everything that does not wait on purpose."""
    await asyncio.sleep(30)
