"""Exec sessions with programs of known behaviour."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams, TerminalSize
from onejob.wire.errors import BadRequest, InternalError
from tests.api.http.wire import TOKEN, Wire

EXEC = "/api/v1/namespaces/default/pods/p/exec"

V5 = "v5.channel.k8s.io"


class Programs:
    """Fake node with a few commands that use their streams."""

    def __init__(self) -> None:
        self.requests: list[ExecRequest] = []
        self.cancelled = asyncio.Event()
        self.sizes: list[TerminalSize] = []

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        self.requests.append(request)
        match request.command:
            case ("cat",) | ():
                while data := await streams.read_stdin():
                    await streams.write_stdout(data)
                return 0
            case ("line",):
                await streams.write_stdout(await streams.read_stdin())
                return 0
            case ("fail", code):
                await streams.write_stderr(b"no\n")
                return int(code)
            case ("size",):
                self.sizes.append(await streams.next_size())
                return 0
            case ("crash",):
                raise RuntimeError("inside")
            case ("refuse",):
                raise BadRequest("no such program")
            case _:
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    self.cancelled.set()
        raise InternalError("not reached")


def pod(node: str = "n", phase: str = "Running") -> bytes:
    document = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": phase},
    }
    return json.dumps(document).encode()


@asynccontextmanager
async def session(
    wire: Wire, target: str, protocol: str | None = V5, token: str = TOKEN
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    tls = ssl.create_default_context(cafile=str(wire.certificates.authority))
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(connector=connector) as http:
        headers = {"Authorization": f"Bearer {token}"}
        url = wire.server.url + target
        protocols = [protocol] if protocol else []
        async with http.ws_connect(url, protocols=protocols, headers=headers) as socket:
            assert socket.protocol == protocol
            yield socket
