"""Upper bounds on the cost of one request, counted in calls of onejob's functions.

They show the cost of the steps that every request goes through (authentication, authorization, fair
queuing, metrics).
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from types import FrameType

import pytest

from onejob.api.access.admin_token import TOKEN_FILE
from onejob.api.http.app import ApiApp
from onejob.api.http.connection import Connection, OpenConnections
from onejob.api.http.requests import Request
from onejob.clock import SystemClock
from onejob.control_plane import Settings
from onejob.node.options import NodeOptions
from onejob.server import HttpsServer

#: 58 when the bound was set, and 60 once a test in the same process has used the audit log.
MAX_CALLS_PER_GET = 61
#: 82 when the bound was set, and 84 likewise.
MAX_CALLS_WITH_CONNECTION = 86
_REQUESTS = 50
_NODE = "/api/v1/nodes/here"


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default", _NODE])
def test_calls_per_get(tmp_path: Path, path: str) -> None:
    """Including a Node, whose document is completed on read, but once per version."""
    calls = asyncio.run(_calls_per_get(tmp_path, path))
    assert 20 <= calls <= MAX_CALLS_PER_GET


def test_calls_per_get_from_bytes_to_bytes(tmp_path: Path) -> None:
    calls = asyncio.run(_calls_with_connection(tmp_path))
    assert 20 <= calls <= MAX_CALLS_WITH_CONNECTION


@asynccontextmanager
async def _a_server(tmp_path: Path) -> AsyncIterator[tuple[ApiApp, bytes]]:
    """Run a server; yield its application and the token of its admin."""
    settings = Settings(tmp_path / "data", NodeOptions(runtime="simulated", name="here"))
    kubeconfig = tmp_path / "kubeconfig"
    server = await HttpsServer.start(settings, host="127.0.0.1", port=0, kubeconfig=kubeconfig)
    try:
        yield server.listener.app, (settings.data_dir / TOKEN_FILE).read_bytes().strip()
    finally:
        await server.stop()


async def _calls_per_get(tmp_path: Path, path: str) -> float:
    async with _a_server(tmp_path) as (app, token):
        headers = [(b"authorization", b"Bearer " + token), (b"accept", b"application/json")]
        request = Request("GET", path, b"", headers, dict(headers))
        codes: set[int] = set()

        async def ask() -> None:
            response = await app(request)
            codes.add(response.code)
            assert response.on_end is not None
            response.on_end()

        # Nothing in here waits, so no other task of the server is counted.
        calls = await _counted(ask)
        assert codes == {200}
        return calls


class _Written(asyncio.Transport):
    """Transport of a client that reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.last = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no buffer."""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing."""


async def _calls_with_connection(tmp_path: Path) -> float:
    async with _a_server(tmp_path) as (app, token):
        shared = OpenConnections(app, SystemClock())
        connection = Connection(shared, asyncio.get_running_loop())
        transport = _Written()
        connection.connection_made(transport)
        request = (
            b"GET /api/v1/namespaces/default HTTP/1.1\r\nhost: h\r\naccept: application/json\r\n"
            b"authorization: Bearer %b\r\n\r\n" % token
        )

        async def ask() -> None:
            transport.last = b""
            connection.data_received(request)
            await asyncio.gather(*shared.tasks)
            assert transport.last.startswith(b"HTTP/1.1 200 OK\r\n")

        calls = await _counted(ask)
        connection.connection_lost(None)
        return calls


async def _counted(ask: Callable[[], Awaitable[None]]) -> float:
    """Return the median: some requests also renew what is cached for a second."""
    await ask()
    counted = 0
    counts = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call" and "/onejob/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        for _ in range(_REQUESTS):
            before = counted
            await ask()
            counts.append(counted - before)
    finally:
        sys.setprofile(None)
    return median(counts)
