"""Registration of the Node object."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Delete
from onejob.client.local import LocalClient
from onejob.node.agent.node_object import _RENEW_SECONDS
from onejob.node.conditions import NodeCondition
from onejob.node.simulated import SimulatedRuntime
from onejob.node.supervisor.pressure import DISK
from onejob.objects.meta import NODES, Key
from onejob.virtual_time import virtual_clock
from tests.node.support import NODE, Node, a_node, an_api

pytestmark = pytest.mark.virtual_time

THE_NODE = Key(NODES, "", NODE)
#: With its jitter.
A_HEARTBEAT = _RENEW_SECONDS * 1.05


async def with_node(path: Path, test: Any) -> None:
    clock = virtual_clock()
    async with (
        an_api(path, clock, in_this_thread=True) as client,
        a_node(client, SimulatedRuntime(clock), clock=clock) as node,
    ):
        await asyncio.sleep(1)
        await test(node, client)


async def conditions(client: LocalClient) -> dict[str, str]:
    node = msgspec.json.decode(await client.get(THE_NODE))
    return {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}


async def test_deleted_node_is_registered_again_within_a_heartbeat(tmp_path: Path) -> None:
    async def test(node: Node, client: LocalClient) -> None:
        for _ in range(3):
            await client.write(Delete(THE_NODE))
            await asyncio.sleep(A_HEARTBEAT)
            assert (await conditions(client))["Ready"] == "True"

    await with_node(tmp_path, test)


async def test_changed_condition_registers_a_deleted_node(tmp_path: Path) -> None:
    async def test(node: Node, client: LocalClient) -> None:
        await client.write(Delete(THE_NODE))
        node.agent._node.conditions.set(NodeCondition(DISK, True, "DiskFull", "the disk is full"))
        await asyncio.sleep(2)
        assert (await conditions(client))[DISK] == "True"

    await with_node(tmp_path, test)
