"""A control plane with claims, and their documents."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from onejob.client.base import Create, Delete, Patch, Selection
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.objects.claims import CLAIMS, CLASSES, VOLUMES
from onejob.objects.meta import EVENTS, JOBS, NAMESPACES, PODS, Key
from onejob.planning.claims.names import PROVISIONER
from onejob.wire.errors import NotFound
from tests.build import a_job, creation, shell, template

Document = dict[str, Any]

PATIENCE = 60


class World:
    """A control plane and shortcuts to its API."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.volumes = plane.settings.data_dir / "volumes"

    async def create(self, resource: str, document: Document, namespace: str = "default") -> None:
        place = "" if resource in (VOLUMES, CLASSES) else namespace
        await self.plane.client.write(Create(resource, place, msgspec.json.encode(document)))

    async def claim(self, name: str = "data", **spec: Any) -> None:
        await self.create(CLAIMS, a_claim(name, **spec))

    async def job(self, script: str, claim: str = "data", name: str = "j", **pod: Any) -> None:
        await self.plane.client.write(creation(a_job(name, template=using(claim, script, **pod))))

    async def get(self, resource: str, name: str, namespace: str = "default") -> Document:
        place = "" if resource in (VOLUMES, CLASSES) else namespace
        found: Document = msgspec.json.decode(
            await self.plane.client.get(Key(resource, place, name))
        )
        return found

    async def names(self, resource: str) -> list[str]:
        listed = await self.plane.client.list(Selection(resource))
        return [msgspec.json.decode(each)["metadata"]["name"] for each in listed.documents]

    async def delete(self, resource: str, name: str, namespace: str = "default") -> None:
        place = "" if resource in (VOLUMES, CLASSES) else namespace
        await self.plane.client.write(Delete(Key(resource, place, name)))

    async def patch(self, resource: str, name: str, body: Document) -> None:
        place = "" if resource in (VOLUMES, CLASSES, NAMESPACES) else "default"
        encoded = msgspec.json.encode(body)
        await self.plane.client.write(Patch(Key(resource, place, name), encoded, "merge"))

    async def until(
        self, resource: str, name: str, holds: Callable[[Document], object]
    ) -> Document:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = await self.get(resource, name)
                    if holds(found):
                        return found
                except NotFound:
                    pass
                await asyncio.sleep(0.02)

    async def until_gone(self, resource: str, name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while name in await self.names(resource):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def bound(self, name: str = "data") -> Document:
        return await self.until(CLAIMS, name, lambda claim: phase(claim) == "Bound")

    async def finished(self, name: str = "j") -> None:
        await self.until(JOBS, name, lambda job: "completionTime" in (job.get("status") or {}))

    async def told(self, reason: str) -> str:
        """Return the message of the first Event with this reason."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for document in (await self.plane.client.list(Selection(EVENTS))).documents:
                    event = msgspec.json.decode(document)
                    if event["reason"] == reason:
                        return str(event["message"])
                await asyncio.sleep(0.02)

    async def waiting_pod(self, text: str) -> Document:
        """Return the first Pod whose PodScheduled condition contains the text."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for document in (await self.plane.client.list(Selection(PODS))).documents:
                    pod: Document = msgspec.json.decode(document)
                    for condition in pod["status"].get("conditions", ()):
                        if text in condition.get("message", ""):
                            return pod
                await asyncio.sleep(0.02)


@asynccontextmanager
async def a_world(
    folder: Path, dependencies: Dependencies | None = None, **settings: Any
) -> AsyncIterator[World]:
    node = settings.pop("node", NodeOptions(name="here", pods_end_with_server=True))
    plane = await ControlPlane.start(Settings(folder, node, **settings), dependencies)
    try:
        yield World(plane)
    finally:
        await plane.stop()


def a_claim(name: str = "data", *modes: str, storage: str = "1Mi", **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": list(modes) or ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
            **spec,
        },
    }


def a_volume(name: str = "disk", *modes: str, storage: str = "1Gi", **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": list(modes) or ["ReadWriteOnce"],
            "capacity": {"storage": storage},
            "storageClassName": "",
            **({} if "local" in spec else {"hostPath": {"path": "/nowhere"}}),
            **spec,
        },
    }


def a_class(name: str, **fields: Any) -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": fields.pop("annotations", {})},
        "provisioner": PROVISIONER,
        **fields,
    }


def using(claim: str, script: str, **pod: Any) -> Document:
    """Return a Pod template whose container has the claim at /data."""
    container = shell(script, volumeMounts=[{"name": "v", "mountPath": "/data"}])
    source = {"persistentVolumeClaim": {"claimName": claim, **pod.pop("source", {})}}
    return template(container, volumes=[{"name": "v", **source}], **pod)


def phase(document: Document) -> str:
    return str((document.get("status") or {}).get("phase", ""))
