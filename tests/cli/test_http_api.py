"""`HttpApi` with servers that close connections."""

import socket
import threading
from collections.abc import Iterator

import pytest

from onejob.cli.sources.base import ApiRequest
from onejob.cli.sources.http_api import HttpApi, open_http_api
from onejob.client.credentials import Credential, FixedCredential
from onejob.client.kubeconfig import Connection
from tests.cli.command_line import CommandLine

_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class ClosingServer:
    """Server that closes each connection after one response without announcing it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                request = b""
                while not request.endswith(b"\r\n\r\n"):
                    piece = connection.recv(4096)
                    if not piece:
                        # `close` has connected to end this thread.
                        return
                    request += piece
                connection.sendall(_RESPONSE)
            self.closed.release()

    def close(self) -> None:
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()


@pytest.fixture
def server() -> Iterator[ClosingServer]:
    server = ClosingServer()
    yield server
    server.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_request_after_the_server_closed_an_idle_connection_uses_a_new_one(
    server: ClosingServer, method: str
) -> None:
    api = HttpApi(Connection(server.url, FixedCredential(Credential())), "")
    for _ in range(3):
        assert api.send(ApiRequest(method, "/version")).body == b"{}"
        assert server.closed.acquire(timeout=60)
    api.close()


def test_requests_over_tls_share_a_connection(served: CommandLine) -> None:
    api = open_http_api(served.data_dir / "kubeconfig", "")
    connections = set()
    for _ in range(5):
        api.send(ApiRequest("GET", "/version"))
        assert api._open is not None
        connections.add(api._open.sock)
    assert len(connections) == 1
    api.close()
