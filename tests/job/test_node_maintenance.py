"""Job Pods that end on a node under maintenance, in a whole control plane in virtual time."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Create, Delete, Patch
from onejob.control_plane import ControlPlane
from onejob.objects.meta import NODES, PODS, Key
from tests import build
from tests.job.terms import a_plane, create_job, names

pytestmark = pytest.mark.virtual_time

GATE = "JobPodReplacementOnNodeMaintenance=true"


async def a_job_whose_pod_hangs(plane: ControlPlane) -> Key:
    """Create a Job on a node that no longer answers, and delete its Pod."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mute"}}
    await plane.client.write(Create(NODES, "", msgspec.json.encode(node)))
    key = await create_job(
        plane, template=build.template(nodeName="mute"), podReplacementPolicy="Failed"
    )
    await asyncio.sleep(1)
    (name,) = await names(plane, PODS)
    await plane.client.write(Delete(Key(PODS, "default", name)))
    await asyncio.sleep(60)
    assert await names(plane, PODS) == [name]
    return key


async def set_maintenance(plane: ControlPlane, status: str) -> None:
    condition = {"type": "MaintenanceInProgress", "status": status}
    body = msgspec.json.encode({"status": {"conditions": [condition]}})
    await plane.client.write(Patch(Key(NODES, "", "mute"), body, "strategic", "status"))
    await asyncio.sleep(1)


async def test_pod_that_ends_on_a_node_under_maintenance_is_replaced_once(tmp_path: Path) -> None:
    async with a_plane(tmp_path, GATE) as plane:
        key = await a_job_whose_pod_hangs(plane)
        await set_maintenance(plane, "False")
        assert len(await names(plane, PODS)) == 1
        await set_maintenance(plane, "True")
        assert len(await names(plane, PODS)) == 2
        await asyncio.sleep(600)
        assert len(await names(plane, PODS)) == 2
        status = msgspec.json.decode(await plane.client.get(key))["status"]
        assert (status["active"], status["terminating"]) == (1, 1)
        assert "failed" not in status


async def test_pod_that_ends_on_a_node_under_maintenance_blocks_without_the_gate(
    tmp_path: Path,
) -> None:
    async with a_plane(tmp_path) as plane:
        await a_job_whose_pod_hangs(plane)
        await set_maintenance(plane, "True")
        assert len(await names(plane, PODS)) == 1
