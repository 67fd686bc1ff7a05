"""Logs, sessions and ports of Pods, local or remote.

A Pod runs on this node, or at the target that its stand-in Pod belongs to. The code for targets is
imported on first use.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from onejob.api.sessions.pod_streams import ExecRequest, ExecSource, ExecStreams, LogSource
from onejob.api.sessions.port_forwarding import Connection, PortSource
from onejob.client.base import Client
from onejob.objects.meta import PODS, Key
from onejob.planning.mirror.names import NODE_SUFFIX, target_of_node
from onejob.wire.errors import BadRequest
from onejob.wire.requests import LogOptions

_NO_NODE = "this server runs no Pods"


class PodLogs:
    """Source of logs, by the Pod's place."""

    def __init__(self, here: LogSource | None, client: Client) -> None:
        self._here = here
        self._client = client

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        pod = await _remote_pod(self._client, namespace, name)
        if pod is not None:
            from onejob.controllers.mirror.sessions import remote_logs

            return remote_logs(self._client, pod, container, options)
        if self._here is None:
            return _empty_stream()
        return await self._here.logs(namespace, name, container, options)


class Sessions:
    """Source of exec sessions, by the Pod's place."""

    def __init__(self, here: ExecSource | None, client: Client) -> None:
        self._here = here
        self._client = client

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        pod = await _remote_pod(self._client, request.namespace, request.name)
        if pod is not None:
            from onejob.controllers.mirror.sessions import remote_session

            return await remote_session(self._client, pod, request, streams)
        if self._here is None:
            raise BadRequest(_NO_NODE)
        return await self._here.exec(request, streams)


class Ports:
    """Source of connections to ports; only of local Pods."""

    def __init__(self, here: PortSource | None, client: Client) -> None:
        self._here = here
        self._client = client

    async def connect(self, namespace: str, name: str, port: int) -> Connection:
        pod = await _remote_pod(self._client, namespace, name)
        if pod is not None:
            target = target_of_node(pod["spec"]["nodeName"])
            raise BadRequest(f"pod {name} runs on target {target}: forward its ports from there")
        if self._here is None:
            raise BadRequest(_NO_NODE)
        return await self._here.connect(namespace, name, port)


async def _empty_stream() -> AsyncIterator[bytes]:
    return
    yield b""


async def _remote_pod(client: Client, namespace: str, name: str) -> dict[str, Any] | None:
    """Return the Pod if it is a stand-in for a remote one, otherwise None."""
    document = await client.get(Key(PODS, namespace, name))
    if NODE_SUFFIX.encode() not in document:
        return None
    pod: dict[str, Any] = msgspec.json.decode(document)
    return pod if target_of_node(pod["spec"].get("nodeName", "")) else None
