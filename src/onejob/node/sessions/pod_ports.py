"""Port forwarding to Pods: the node as the API's `PortSource`.

Pods are processes of this machine and share its ports with all other processes. A connection is
therefore made only while a process of that Pod listens on the port; otherwise port forwarding would
give access to every service of this machine.
"""

import asyncio
from collections.abc import Sequence

from onejob.api.sessions.port_forwarding import Connection
from onejob.client.base import Client
from onejob.node.process.process_table import ProcessTable
from onejob.node.process.supervisor_client import SupervisorGone
from onejob.node.runtime import Runtime
from onejob.node.sessions.listening import Listener, listeners, sockets_of
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import read_node_pod
from onejob.wire.errors import BadRequest, InternalError


class PodPorts:
    """Ports of Pods on this node."""

    def __init__(self, runtime: Runtime, client: Client) -> None:
        self._runtime = runtime
        self._client = client

    async def connect(self, namespace: str, name: str, port: int) -> Connection:
        """Connect to a port that a process of the Pod listens on. Raises BadRequest, InternalError,
        NotFound."""
        if not self._runtime.traits.on_host:
            raise BadRequest(f"the {self._runtime.name} runtime does not support port forwarding")
        pod = read_node_pod(await self._client.get(Key(PODS, namespace, name)))
        try:
            running = await self._runtime.first_processes()
        except SupervisorGone as gone:
            raise InternalError(str(gone)) from gone
        first = [pid for ref, pid in running.items() if ref.uid == pod.uid]
        found = await asyncio.to_thread(_listeners_of, first, port)
        if not found:
            raise BadRequest(f'no process of pod "{name}" listens on port {port}')
        return await _connected(found)


def _listeners_of(first_processes: Sequence[int], port: int) -> list[Listener]:
    table = ProcessTable.read()
    pids = [process.pid for pid in first_processes for process in table.tree(pid)]
    if not pids:
        return []
    own = sockets_of(pids)
    return [listener for listener in listeners(port, pids[0]) if listener.inode in own]


async def _connected(found: Sequence[Listener]) -> Connection:
    """Connect to the first listener that accepts. Raises OSError."""
    for listener in found[:-1]:
        try:
            return await asyncio.open_connection(listener.reachable_at, listener.port)
        except OSError:
            continue
    return await asyncio.open_connection(found[-1].reachable_at, found[-1].port)
