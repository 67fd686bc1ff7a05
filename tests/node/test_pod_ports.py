"""Ports of this machine that are reachable through a Pod: its own, and no others."""

import asyncio
import socket
from pathlib import Path

import pytest

from onejob.clock import SystemClock
from onejob.node.sessions.pod_ports import PodPorts
from onejob.node.simulated import SimulatedRuntime
from onejob.wire.errors import BadRequest
from tests.node.support import Node, a_process_node, an_api, shell

#: Listens on the given address, prints its port, and greets every client.
PROGRAM = """
import socket
family = socket.AF_INET6 if ":" in "{address}" else socket.AF_INET
listener = socket.socket(family)
listener.bind(("{address}", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"from the pod")
    connection.close()
"""


async def listening(node: Node, address: str, name: str = "p") -> int:
    """Run a Pod whose second process listens; return its port."""
    program = PROGRAM.format(address=address)
    await node.create(shell(f"python3 -c '{program}' & wait", name=name))
    await node.until(name, lambda pod: pod["status"].get("phase") == "Running")
    async with asyncio.timeout(60):
        printed = ""
        while "\n" not in printed:
            printed = await node.output(name, follow=True, limit_bytes=6)
    return int(printed)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
async def test_a_port_that_the_pod_listens_on_is_connected_to(tmp_path: Path, address: str) -> None:
    async with a_process_node(tmp_path) as node:
        port = await listening(node, address)
        reader, writer = await PodPorts(node.agent.runtime, node.client).connect(
            "default", "p", port
        )
        assert await reader.read() == b"from the pod"
        writer.close()


async def test_no_other_port_of_this_machine_is(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        others = await listening(node, "127.0.0.1", "other")
        await listening(node, "127.0.0.1", "p")
        ports = PodPorts(node.agent.runtime, node.client)
        with socket.create_server(("127.0.0.1", 0)) as ours:
            for port in (ours.getsockname()[1], others, 1):
                with pytest.raises(BadRequest, match=f"listens on port {port}"):
                    await ports.connect("default", "p", port)


async def test_pods_that_are_no_processes_have_no_ports(tmp_path: Path) -> None:
    async with an_api(tmp_path) as client:
        ports = PodPorts(SimulatedRuntime(SystemClock()), client)
        with pytest.raises(BadRequest, match="simulated runtime does not support port forwarding"):
            await ports.connect("default", "p", 80)
