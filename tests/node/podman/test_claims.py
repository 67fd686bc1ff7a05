"""PersistentVolumeClaims in real containers."""

import asyncio
from pathlib import Path

import msgspec

from onejob.client.base import Create
from onejob.clock import SystemClock
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.node.podman.engine_settings import PodmanSettings
from onejob.node.podman.runtime import PodmanRuntime
from onejob.node.runtime import NodeContext, Runtime
from onejob.objects.claims import CLAIMS
from tests.claims.support import World, a_claim
from tests.node.podman.support import ENGINE, NEEDS_PODMAN, OPTIONS, script
from tests.node.support import Document, Node, with_spec

pytestmark = NEEDS_PODMAN


async def test_containers_share_the_folder_of_a_claim(place: Path) -> None:
    options = NodeOptions(engine=ENGINE, engine_options=OPTIONS, pods_end_with_server=True)

    def runtime(context: NodeContext) -> Runtime:
        return PodmanRuntime(place, SystemClock(), PodmanSettings(context, options))

    plane = await ControlPlane.start(Settings(place, options), Dependencies(runtime=runtime))
    try:
        async with asyncio.timeout(120):
            await plane.client.write(Create(CLAIMS, "default", msgspec.json.encode(a_claim())))
            node = Node(plane.client, plane.node)
            await node.run(_using("echo one > /data/x", "p", runAsUser=1234))
            await node.run(_using("cat /data/x; id -u > /data/y", "q", runAsUser=1234))
            assert await node.output("q") == "one\n"
            claim = await World(plane).bound()
        folder = place / "volumes" / claim["spec"]["volumeName"]
        assert (folder / "y").read_text() == "1234\n"
    finally:
        await plane.stop()


def _using(text: str, name: str, **security: int) -> Document:
    pod = script(text)
    pod["metadata"]["name"] = name
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/data"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    return with_spec(pod, volumes=volumes, securityContext=security)
