"""gRPC health checks. The responses are laid out as a real server's are."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from onejob.node.probing.grpc_health import health
from tests.node.support import a_process_node, shell, the_container, until_true

SETTINGS, PING, HEADERS, DATA, GOAWAY = 4, 6, 1, 0, 7


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def message(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


HELLO = frame(SETTINGS, b"\0\4\0\x40\0\0", stream=0)
#: `:status 200`, without the end of the stream.
BEGIN = frame(HEADERS, b"\x88", flags=4)
SERVING = message(b"\x08\x01")


class Peer:
    """Server that sends a fixed response and records the request."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.heard = b""
        self._talking = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talking += 1
        writer.write(self._answer)
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(4096):
                self.heard += piece
                if not self._answer:
                    break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._talking -= 1

    async def hung_up(self) -> None:
        await until_true(lambda: not self._talking)


async def asked(peer: Peer, service: str = "") -> str:
    async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        try:
            return await health("127.0.0.1", port, service)
        finally:
            await peer.hung_up()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (HELLO + BEGIN + frame(DATA, SERVING), "SERVING"),
        (HELLO + BEGIN + frame(DATA, message(b"\x08\x02")), "NOT_SERVING"),
        (HELLO + BEGIN + frame(DATA, message(b"")), "UNKNOWN"),
        (HELLO + frame(PING, b"12345678", stream=0) + BEGIN + frame(DATA, SERVING), "SERVING"),
        (HELLO + BEGIN + frame(DATA, SERVING[:4]) + frame(DATA, SERVING[4:]), "SERVING"),
        (HELLO + BEGIN + frame(DATA, b"\3" + SERVING + b"\0\0\0", flags=8), "SERVING"),
    ],
)
def test_a_status_is_read_however_it_is_sent(answer: bytes, status: str) -> None:
    assert asyncio.run(asked(Peer(answer))) == status


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HELLO + frame(HEADERS, b"\x88", flags=5), "does not implement the health service"),
        (HELLO + frame(GOAWAY, b"\0" * 8, stream=0), "does not implement"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not an HTTP/2 response"),
        (b"", "closed the connection"),
    ],
)
def test_invalid_grpc_response_is_named(answer: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        asyncio.run(asked(Peer(answer)))


@pytest.mark.parametrize("length", [1, 127, 200])
def test_the_question_names_the_service(length: int) -> None:
    peer, name = Peer(HELLO + BEGIN + frame(DATA, SERVING)), "s" * length
    asyncio.run(asked(peer, name))
    assert b"/grpc.health.v1.Health/Check" in peer.heard
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    assert message(b"\x0a" + size + name.encode()) in peer.heard


async def test_grpc_probe_sets_readiness(tmp_path: Path) -> None:
    good, bad = Peer(HELLO + BEGIN + frame(DATA, SERVING)), Peer(b"")
    async with (
        await asyncio.start_server(good, "127.0.0.1", 0) as serving,
        await asyncio.start_server(bad, "127.0.0.1", 0) as silent,
        a_process_node(tmp_path) as node,
    ):
        for name, server in (("p", serving), ("q", silent)):
            port = server.sockets[0].getsockname()[1]
            probe = {"grpc": {"port": port}, "periodSeconds": 1}
            await node.create(shell("sleep 60", name=name, readinessProbe=probe))
        await node.until("p", lambda p: _has(p) and the_container(p)["ready"])
        reason, words = (await node.until_told("q"))[0]
        assert reason == "Unhealthy"
        assert words == (
            "Readiness probe failed: the server closed the connection without a response"
        )
        assert not the_container(await node.pod("q"))["ready"]
    await good.hung_up()
    await bad.hung_up()


def _has(pod: dict[str, dict[str, object]]) -> bool:
    return "containerStatuses" in pod["status"]
