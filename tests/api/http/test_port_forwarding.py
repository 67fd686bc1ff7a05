"""pods/portforward over a real WebSocket, to a server that listens in this process."""

import asyncio
import gc
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from onejob.api.sessions.port_forwarding import CHANNEL_PROTOCOLS, TUNNEL_PROTOCOL
from onejob.api.sessions.spdy import SpdyReader, SpdyWriter, StreamData, StreamReset
from tests.api.http.exec_sessions_support import pod, session
from tests.api.http.port_forwarding_support import FORWARD, PORT, Ports
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import TOKEN, Wire, with_server

V4 = CHANNEL_PROTOCOLS[0]


def forwarding(
    directory: Path,
    test: Callable[[Wire, Ports], Coroutine[Any, Any, None]],
    phase: str = "Running",
) -> None:
    async def run(wire: Wire) -> None:
        await ports.start()
        try:
            async with asyncio.timeout(60):
                await test(wire, ports)
        finally:
            await ports.close()

    ports = Ports()
    service = ScriptedService({"p": pod(phase=phase)})
    with_server(service, directory, run, ports=ports)


def test_a_channel_carries_a_connection_until_the_pod_hangs_up(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, f"{FORWARD}?ports={PORT}", V4) as socket:
            port = struct.pack("<H", PORT)
            assert await socket.receive_bytes() == b"\0" + port
            assert await socket.receive_bytes() == b"\1" + port
            await socket.send_bytes(b"\0hello")
            assert await socket.receive_bytes() == b"\0HELLO"
            await socket.send_bytes(b"\0bye")
            assert await socket.receive_bytes() == b"\0BYE"
            assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000

    forwarding(tmp_path, test)


def test_each_port_has_two_channels_and_errors_have_theirs(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, f"{FORWARD}?ports=22&ports={PORT}", V4) as socket:
            begun = [await socket.receive_bytes() for _ in range(4)]
            assert [message[0] for message in begun] == [0, 1, 2, 3]
            problem = await socket.receive_bytes()
            assert problem == b"\1error forwarding port 22: no process listens on port 22"
            # Neither a port that failed nor a channel that does not exist disturbs the others.
            for channel in (b"\0", b"\1", b"\3", b"\x63", b"\2"):
                await socket.send_bytes(channel + b"bye")
            assert await socket.receive_bytes() == b"\2BYE"

    forwarding(tmp_path, test)


def test_channels_in_base64_are_text(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, f"{FORWARD}?ports={PORT}", CHANNEL_PROTOCOLS[1]) as socket:
            assert b64decode((await socket.receive_str())[1:]) == struct.pack("<H", PORT)
            await socket.receive_str()
            await socket.send_str("0" + b64encode(b"bye").decode())
            assert await socket.receive_str() == "0" + b64encode(b"BYE").decode()

    forwarding(tmp_path, test)


def test_the_pods_end_is_closed_when_the_client_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, f"{FORWARD}?ports={PORT}", V4) as socket:
            await socket.send_bytes(b"\0hello")
            for _ in range(3):
                await socket.receive_bytes()
            assert not ports.ended.is_set()
        await ports.ended.wait()

    forwarding(tmp_path, test)
    # Tasks and futures with an unretrieved exception log it when they are collected.
    gc.collect()
    assert "never retrieved" not in caplog.text


class Tunnel:
    """kubectl's side of a tunnel."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._writer = SpdyWriter()
        self._reader = SpdyReader()
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()

    async def open(self, error: int, data: int, port: int = PORT, number: str = "0") -> None:
        for stream, kind in ((error, "error"), (data, "data")):
            headers = {"streamtype": kind, "port": str(port)}
            if number:
                headers["requestid"] = number
            await self.send(self._writer.open(stream, headers))
        await self.send(self._writer.data(error, b"", ends=True))

    async def send(self, frames: bytes) -> None:
        await self._socket.send_bytes(frames)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            for event in self._reader.feed(await self._socket.receive_bytes()):
                if isinstance(event, StreamData):
                    self.data[event.stream] = self.data.get(event.stream, b"") + event.data
                    if event.ended:
                        self.ended.add(event.stream)
                elif isinstance(event, StreamReset):
                    self.reset.add(event.stream)


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "old"])
def test_a_tunnel_carries_many_connections(tmp_path: Path, numbered: bool) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, FORWARD, TUNNEL_PROTOCOL) as socket:
            tunnel = Tunnel(socket)
            await tunnel.open(1, 3, number="0" if numbered else "")
            await tunnel.open(5, 7, number="1" if numbered else "")
            large = b"x" * 300_000
            await tunnel.send(SpdyWriter.data(7, large))
            await tunnel.send(SpdyWriter.data(3, b"hello"))
            await tunnel.until(lambda: len(tunnel.data.get(7, b"")) == len(large))
            await tunnel.send(SpdyWriter.data(3, b" world", ends=True))
            await tunnel.until(lambda: {1, 3} <= tunnel.ended)
            assert tunnel.data == {1: b"", 3: b"HELLO WORLD", 7: large.upper()}
            assert (ports.connections, tunnel.reset) == (2, set())

    forwarding(tmp_path, test)


def test_data_before_second_stream_is_not_lost(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, FORWARD, TUNNEL_PROTOCOL) as socket:
            tunnel, writer = Tunnel(socket), SpdyWriter()
            headers = {"port": str(PORT), "requestid": "0"}
            await tunnel.send(writer.open(1, headers | {"streamtype": "data"}))
            await tunnel.send(writer.data(1, b"early", ends=True))
            await tunnel.send(writer.open(3, headers | {"streamtype": "error"}))
            await tunnel.until(lambda: {1, 3} <= tunnel.ended)
            assert tunnel.data[1] == b"EARLY"

    forwarding(tmp_path, test)


def test_closed_port_fails_only_its_connection(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, FORWARD, TUNNEL_PROTOCOL) as socket:
            tunnel = Tunnel(socket)
            await tunnel.open(1, 3, port=22)
            await tunnel.until(lambda: 1 in tunnel.ended and 3 in tunnel.reset)
            assert tunnel.data[1] == b"error forwarding port 22: no process listens on port 22"
            await tunnel.open(5, 7, number="1")
            await tunnel.send(SpdyWriter.data(7, b"bye"))
            await tunnel.until(lambda: 7 in tunnel.ended)
            assert tunnel.data[7] == b"BYE"

    forwarding(tmp_path, test)


def test_a_connection_that_the_client_resets_is_closed(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, FORWARD, TUNNEL_PROTOCOL) as socket:
            tunnel = Tunnel(socket)
            await tunnel.open(1, 3)
            await tunnel.send(SpdyWriter.data(3, b"x"))
            await tunnel.until(lambda: 3 in tunnel.data)
            await tunnel.send(SpdyWriter.reset(3))
            await ports.ended.wait()

    forwarding(tmp_path, test)


@pytest.mark.parametrize(
    "headers",
    [
        {"streamtype": "data"},
        {"streamtype": "data", "port": "0"},
        {"streamtype": "data", "port": "70000"},
        {"streamtype": "other", "port": "1"},
        {"port": "1"},
    ],
    ids=str,
)
def test_a_stream_that_makes_no_sense_is_reset(tmp_path: Path, headers: dict[str, str]) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, FORWARD, TUNNEL_PROTOCOL) as socket:
            tunnel = Tunnel(socket)
            await tunnel.send(SpdyWriter().open(1, headers))
            await tunnel.until(lambda: 1 in tunnel.reset)

    forwarding(tmp_path, test)


def test_tunnel_answers_pings_and_ends_at_invalid_spdy(tmp_path: Path) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        async with session(wire, FORWARD, TUNNEL_PROTOCOL) as socket:
            await socket.send_bytes(SpdyWriter.ping(7))
            assert await socket.receive_bytes() == SpdyWriter.ping(7)
            await socket.send_bytes(b"\xff" * 8)
            assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1002

    forwarding(tmp_path, test)


@pytest.mark.parametrize(
    ("target", "protocol", "phase", "code"),
    [
        (FORWARD, V4, "Running", 400),
        (f"{FORWARD}?ports=", V4, "Running", 400),
        (f"{FORWARD}?ports=x", V4, "Running", 400),
        (f"{FORWARD}?ports=65536", V4, "Running", 400),
        (f"{FORWARD}?ports={','.join(map(str, range(1, 200)))}", V4, "Running", 400),
        (f"{FORWARD}?ports=80", "v5.channel.k8s.io", "Running", 400),
        (FORWARD, TUNNEL_PROTOCOL, "Succeeded", 400),
        (FORWARD.replace("/p/", "/q/"), TUNNEL_PROTOCOL, "Running", 404),
    ],
)
def test_invalid_port_forward_is_rejected(
    tmp_path: Path, target: str, protocol: str, phase: str, code: int
) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            async with session(wire, target, protocol, TOKEN):
                raise AssertionError("must be refused")
        assert raised.value.status == code

    forwarding(tmp_path, test, phase)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_an_upgrade_there_is_nothing(tmp_path: Path, method: str) -> None:
    async def test(wire: Wire, ports: Ports) -> None:
        reply = await wire.call(method, FORWARD)
        assert (reply.code, reply.json()["message"]) == (400, "Upgrade request required")

    forwarding(tmp_path, test)
