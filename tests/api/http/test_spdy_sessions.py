"""exec and port forwarding over SPDY on the bare connection, as clients before WebSockets did."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onejob.api.sessions.pod_streams import TerminalSize
from onejob.api.sessions.spdy import SpdyReader, SpdyWriter, StreamData, StreamReset
from tests.api.http.exec_sessions_support import EXEC, Programs, pod
from tests.api.http.port_forwarding_support import FORWARD, PORT, Ports
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import (
    TOKEN,
    Wire,
    closed,
    read_head,
    read_reply,
    request_bytes,
    with_server,
)

V4 = "v4.channel.k8s.io"
UPGRADE = {"connection": "Upgrade", "upgrade": "SPDY/3.1"}


class Client:
    """The other end of an upgraded connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames, self._spdy = SpdyWriter(), SpdyReader()
        self.data: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()

    def open(self, stream: int, **headers: str) -> None:
        self.send(self._frames.open(stream, headers))

    def send(self, frames: bytes) -> None:
        self._writer.write(frames)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                data = await self._reader.read(100_000)
                assert data, "the server hung up"
                self._take(data)

    async def to_the_end(self) -> None:
        async with asyncio.timeout(60):
            while data := await self._reader.read(100_000):
                self._take(data)

    def _take(self, data: bytes) -> None:
        for event in self._spdy.feed(data):
            if isinstance(event, StreamData):
                self.data[event.stream] = self.data.get(event.stream, b"") + event.data
                if event.ended:
                    self.ended.add(event.stream)
            elif isinstance(event, StreamReset):
                self.reset.add(event.stream)


def upgraded(
    directory: Path,
    target: str,
    versions: str,
    test: Callable[[Client], Awaitable[None]],
    **sources: Any,
) -> None:
    async def run(wire: Wire) -> None:
        reader, writer = await wire.connect()
        try:
            writer.write(
                request_bytes("POST", target, x_stream_protocol_version=versions, **UPGRADE)
            )
            code, headers = await read_head(reader)
            fields = dict(headers)
            assert (code, fields["upgrade"]) == (101, "SPDY/3.1")
            assert fields["x-stream-protocol-version"] in versions.split(", ")
            await test(Client(reader, writer))
        finally:
            writer.close()
            await closed(writer)

    with_server(ScriptedService({"p": pod()}), directory, run, **sources)


@pytest.mark.parametrize("early", [True, False])
def test_a_command_gets_its_input_and_its_end(tmp_path: Path, early: bool) -> None:
    """Including input typed before all streams were open."""

    async def test(client: Client) -> None:
        client.open(1, streamtype="error")
        client.open(3, streamtype="stdin")
        if early:
            client.send(SpdyWriter.data(3, b"hello", ends=True))
            await asyncio.sleep(0.05)
        client.open(5, streamtype="stdout")
        if not early:
            client.send(SpdyWriter.data(3, b"hello"))
            client.send(SpdyWriter.data(3, b"", ends=True))
        await client.to_the_end()
        assert client.data[5] == b"hello"
        assert json.loads(client.data[1]) == {"metadata": {}, "status": "Success"}
        assert client.ended == {1, 3, 5}

    target = f"{EXEC}?command=cat&stdin=true&stdout=true"
    upgraded(tmp_path, target, f"{V4}, v3.channel.k8s.io", test, sessions=Programs())


def test_exec_returns_exit_code_of_failed_command(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        client.open(1, streamtype="error")
        client.open(3, streamtype="stderr")
        await client.to_the_end()
        assert client.data[3] == b"no\n"
        assert json.loads(client.data[1])["details"]["causes"] == [
            {"reason": "ExitCode", "message": "3"}
        ]

    target = f"{EXEC}?command=fail&command=3&stderr=true"
    upgraded(tmp_path, target, V4, test, sessions=Programs())


def test_a_terminal_has_a_size_and_pings_are_answered(tmp_path: Path) -> None:
    programs = Programs()

    async def test(client: Client) -> None:
        for stream, kind in ((1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")):
            client.open(stream, streamtype=kind)
        client.open(9, streamtype="nonsense")
        client.send(SpdyWriter.ping(1))
        await client.until(lambda: 9 in client.reset)
        client.send(SpdyWriter.data(7, b'{"Width":80,"Height":24}\n'))
        await client.to_the_end()

    target = f"{EXEC}?command=size&tty=true&stdin=true&stdout=true"
    upgraded(tmp_path, target, V4, test, sessions=programs)
    assert programs.sizes == [TerminalSize(80, 24)]


def test_a_command_is_cancelled_when_its_caller_goes(tmp_path: Path) -> None:
    programs = Programs()

    async def test(client: Client) -> None:
        client.open(1, streamtype="error")
        client.open(3, streamtype="stdout")
        async with asyncio.timeout(60):
            while not programs.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        client.send(b"\xff" * 8)
        async with asyncio.timeout(60):
            await programs.cancelled.wait()

    upgraded(tmp_path, f"{EXEC}?command=sleep&stdout=true", V4, test, sessions=programs)


def test_ports_are_forwarded(tmp_path: Path) -> None:
    ports = Ports()

    async def test(client: Client) -> None:
        await ports.start()
        try:
            for stream, kind in ((1, "error"), (3, "data")):
                client.open(stream, streamtype=kind, port=str(PORT), requestid="0")
            client.send(SpdyWriter.data(3, b"bye"))
            await client.until(lambda: {1, 3} <= client.ended)
            assert client.data == {1: b"", 3: b"BYE"}
        finally:
            await ports.close()

    upgraded(tmp_path, FORWARD, "portforward.k8s.io", test, ports=ports)


@pytest.mark.parametrize(
    ("target", "version", "token", "code"),
    [
        (f"{EXEC}?command=cat&stdout=true", V4, "wrong", 401),
        (f"{EXEC}?command=cat&stdout=true", "v9.channel.k8s.io", TOKEN, 400),
        (f"{EXEC}?command=cat&stdout=true&container=x", V4, TOKEN, 400),
        (EXEC.replace("/p/", "/q/") + "?command=cat&stdout=true", V4, TOKEN, 404),
        ("/apis/batch/v1/namespaces/default/jobs", V4, TOKEN, 400),
        ("/nope", V4, TOKEN, 404),
    ],
)
def test_invalid_session_is_rejected_with_reason(
    tmp_path: Path, target: str, version: str, token: str, code: int
) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(
            request_bytes("POST", target, token=token, x_stream_protocol_version=version, **UPGRADE)
        )
        reply = await read_reply(reader)
        assert reply.code == code
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


def test_sessions_end_with_the_server(tmp_path: Path) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(
            request_bytes(
                "POST",
                f"{EXEC}?command=sleep&stdout=true",
                x_stream_protocol_version=V4,
                **UPGRADE,
            )
        )
        await read_head(reader)
        async with asyncio.timeout(30):
            await wire.server.stop()
            assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)
