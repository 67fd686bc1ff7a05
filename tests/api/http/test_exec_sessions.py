"""exec and attach over a real WebSocket."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from onejob.api.sessions.exec_sessions import run_session
from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams, TerminalSize
from onejob.virtual_time import run_virtual
from onejob.wire.requests import LogOptions
from tests.api.http.exec_sessions_support import EXEC, V5, Programs, pod, session
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import TOKEN, Wire, with_server


async def to_the_end(socket: aiohttp.ClientWebSocketResponse) -> tuple[dict[int, bytes], Any]:
    """Read until the end; return all output by channel, and the status."""
    output: dict[int, bytes] = {}
    status = None
    async for message in socket:
        channel, data = message.data[0], message.data[1:]
        if channel == 3:
            status = json.loads(data)
        else:
            output[channel] = output.get(channel, b"") + data
    assert socket.close_code == 1000
    return output, status


@pytest.mark.parametrize("protocol", [V5, "v4.channel.k8s.io"])
def test_a_command_gets_its_input_and_its_end(tmp_path: Path, protocol: str) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        target = f"{EXEC}?command=cat&stdin=true&stdout=true&stderr=true"
        async with session(wire, target, protocol) as socket:
            await socket.send_bytes(b"\x00hello ")
            await socket.send_bytes(b"\x00world")
            await socket.ping()
            await socket.send_bytes(b"\xff\x00")
            output, status = await to_the_end(socket)
        assert output == {1: b"hello world"}
        assert status == {"metadata": {}, "status": "Success"}

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)
    assert programs.requests == [
        ExecRequest("default", "p", "c", ("cat",), stdin=True, stdout=True, stderr=True)
    ]


FIRST = ["channel.k8s.io", None]


@pytest.mark.parametrize("protocol", FIRST)
def test_the_first_protocol_ends_without_a_status(tmp_path: Path, protocol: str | None) -> None:
    """Its clients take everything that is not empty for output."""

    async def test(wire: Wire) -> None:
        target = f"{EXEC}?command=cat&stdin=true&stdout=true"
        async with session(wire, target, protocol) as socket:
            await socket.send_bytes(b"\x00hello")
            await socket.send_bytes(b"\xff\x00")
            assert await to_the_end(socket) == ({1: b"hello"}, None)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


@pytest.mark.parametrize("protocol", FIRST)
def test_the_first_protocol_has_the_text_of_a_failure(tmp_path: Path, protocol: str | None) -> None:
    async def test(wire: Wire) -> None:
        async with session(wire, f"{EXEC}?command=fail&command=3&stderr=true", protocol) as socket:
            messages = [message.data async for message in socket]
        assert messages == [
            b"\x02no\n",
            b"\x03command terminated with non-zero exit code: exit status 3",
        ]

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


@pytest.mark.parametrize(
    ("protocol", "end"),
    [
        ("base64.channel.k8s.io", []),
        (
            "v4.base64.channel.k8s.io",
            ["3" + b64encode(b'{"metadata":{},"status":"Success"}').decode()],
        ),
    ],
)
def test_base64_protocols_speak_in_text(tmp_path: Path, protocol: str, end: list[str]) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        target = f"{EXEC}?command=line&stdin=true&stdout=true"
        async with session(wire, target, protocol) as socket:
            await socket.send_str("0not base64!")
            await socket.send_str("0" + b64encode(b"hello").decode())
            messages = [message.data async for message in socket]
        assert messages == ["1" + b64encode(b"hello").decode(), *end]

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)


def test_exec_returns_exit_code_of_failed_command(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        target = f"{EXEC}?command=fail&command=3&stdout=true&stderr=true"
        async with session(wire, target) as socket:
            output, status = await to_the_end(socket)
        assert output == {2: b"no\n"}
        assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [("refuse", 400, "no such program"), ("crash", 500, "an error on the server was logged")],
)
def test_a_session_that_cannot_be_had_ends_with_its_error(
    tmp_path: Path, command: str, code: int, message: str
) -> None:
    async def test(wire: Wire) -> None:
        async with session(wire, f"{EXEC}?command={command}&stdout=true") as socket:
            _, status = await to_the_end(socket)
        assert (status["code"], status["message"]) == (code, message)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


def test_a_terminal_has_a_size_and_one_output(tmp_path: Path) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        target = f"{EXEC}?command=size&tty=true&stdin=true&stdout=true&stderr=true"
        async with session(wire, target) as socket:
            await socket.send_bytes(b"\x04nonsense")
            await socket.send_bytes(b'\x04{"Width":80,"Height":24}')
            await to_the_end(socket)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)
    assert programs.sizes == [TerminalSize(80, 24)]
    assert programs.requests[0].tty
    assert not programs.requests[0].stderr


def test_attach_has_no_command(tmp_path: Path) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        target = EXEC.replace("exec", "attach") + "?stdin=true&stdout=true"
        async with session(wire, target) as socket:
            await socket.send_bytes(b"\xff\x00")
            await to_the_end(socket)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)
    assert programs.requests[0].command == ()


def test_a_command_is_cancelled_when_its_caller_goes(tmp_path: Path) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        async with session(wire, f"{EXEC}?command=sleep&stdout=true"):
            pass
        async with asyncio.timeout(30):
            await programs.cancelled.wait()

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)


def test_sessions_end_with_the_server(tmp_path: Path) -> None:
    programs = Programs()

    async def test(wire: Wire) -> None:
        async with session(wire, f"{EXEC}?command=sleep&stdout=true") as socket:
            async with asyncio.timeout(30):
                await wire.server.stop()
            assert (await socket.receive()).type in (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSED,
            )
        assert programs.cancelled.is_set()

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=programs)


@pytest.mark.parametrize(
    ("target", "protocol", "token", "code"),
    [
        (f"{EXEC}?command=cat&stdout=true", V5, "wrong", 401),
        (f"{EXEC}?command=cat&stdout=true", "v9.channel.k8s.io", TOKEN, 400),
        (f"{EXEC}?stdout=true", V5, TOKEN, 400),
        (f"{EXEC}?command=cat", V5, TOKEN, 400),
        (f"{EXEC}?command=cat&stdout=true&container=x", V5, TOKEN, 400),
        (EXEC.replace("/p/", "/q/") + "?command=cat&stdout=true", V5, TOKEN, 404),
        (EXEC.replace("exec", "log"), V5, TOKEN, 400),
        (EXEC.replace("exec", "status"), V5, TOKEN, 400),
        ("/apis/batch/v1/nope", V5, TOKEN, 404),
        ("/nope", V5, TOKEN, 404),
    ],
)
def test_bad_sessions_are_refused_before_they_begin(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    target: str,
    protocol: str,
    token: str,
    code: int,
) -> None:
    async def test(wire: Wire) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await anext(session_entry(wire, target, protocol, token))
        assert raised.value.status == code

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())
    assert not caplog.records, "whoever asks wrongly must not fill our log"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("command=cat&stdout=true", "Upgrade request required"),
        ("command=cat&stdout=true&container=x", "container x is not valid for pod p"),
        ("stdout=true", "you must specify at least 1 command"),
    ],
)
def test_exec_without_upgrade_reports_other_errors_first(
    tmp_path: Path, method: str, query: str, message: str
) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call(method, f"{EXEC}?{query}")
        assert (reply.code, reply.json()["message"]) == (400, message)

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


async def session_entry(
    wire: Wire, target: str, protocol: str, token: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with session(wire, target, protocol, token) as socket:
        yield socket


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://test"])
def test_session_with_token_opens_from_any_origin(tmp_path: Path, origin: str) -> None:
    """Go's x/net/websocket sends an Origin of the caller's choice.

    Browsers add no tokens; requests with a certificate alone are in tests/hostile.
    """

    async def test(wire: Wire) -> None:
        reply = await wire.call(
            "GET",
            f"{EXEC}?command=cat&stdout=true",
            connection="upgrade",
            upgrade="websocket",
            sec_websocket_version="13",
            sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==",
            sec_websocket_protocol=V5,
            origin=origin,
        )
        assert reply.code == 101

    with_server(ScriptedService({"p": pod()}), tmp_path, test, sessions=Programs())


@pytest.mark.parametrize(("node", "phase"), [("", "Pending"), ("n", "Succeeded")])
def test_only_a_running_pod_has_sessions(tmp_path: Path, node: str, phase: str) -> None:
    async def test(wire: Wire) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await anext(session_entry(wire, f"{EXEC}?command=cat&stdout=true", V5, TOKEN))
        assert raised.value.status == 400

    service = ScriptedService({"p": pod(node, phase)})
    with_server(service, tmp_path, test, sessions=Programs())


class _LateReader:
    """Command that reads its input only after a long while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.read = 0

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        await asyncio.sleep(self._seconds)
        self.read = len(await streams.read_stdin())
        return 0


_MEGABYTE = bytes(1024 * 1024)


class _FarAhead:
    """Socket of a caller who types more than the buffer, sends `rest` and stops."""

    def __init__(self, *rest: bytes | None) -> None:
        self._arriving: list[bytes | None] = [*[b"\0" + _MEGABYTE] * 17, *rest]
        self.sent: list[bytes | str] = []
        self.closed = False

    async def receive(self) -> bytes | None:
        if not self._arriving:
            await asyncio.get_running_loop().create_future()
        return self._arriving.pop(0)

    async def send(self, message: bytes | str) -> None:
        self.sent.append(message)

    async def send_parts(self, parts: Sequence[bytes], *, is_text: bool) -> None:
        self.sent.append(b"".join(parts))

    async def close(self, code: int = 1000) -> None:
        self.closed = True


def far_ahead(command: _LateReader, *rest: bytes | None) -> _FarAhead:
    """Return the socket of such a caller after the session."""
    socket = _FarAhead(*rest)
    request = ExecRequest("default", "p", "c", ("late",), stdin=True)
    run_virtual(run_session(command, request, socket))
    return socket


def test_unresponsive_client_with_full_buffer_is_disconnected() -> None:
    command = _LateReader(seconds=3600)
    socket = far_ahead(command, b"\0unread", b"\0unread", None)
    assert (socket.sent, socket.closed) == ([], False)
    assert command.read == 0


def test_a_caller_far_ahead_may_wait_for_the_command() -> None:
    command = _LateReader(seconds=3600)
    socket = far_ahead(command)
    (status,) = socket.sent
    assert json.loads(status[1:])["status"] == "Success"
    assert socket.closed
    assert command.read == 17 * len(_MEGABYTE)


class Written:
    """Log of two pieces, which never ends when followed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        return self._pieces(options)

    async def _pieces(self, options: LogOptions) -> AsyncIterator[bytes]:
        try:
            yield b"container is "
            yield b"alive\n"
            if options.follow:
                await asyncio.get_running_loop().create_future()
        finally:
            self.closed.set()


LOG = EXEC.replace("exec", "log")


@pytest.mark.parametrize("protocol", ["binary.k8s.io", None])
def test_a_log_may_come_in_a_websocket(tmp_path: Path, protocol: str | None) -> None:
    async def test(wire: Wire) -> None:
        async with session(wire, LOG, protocol) as socket:
            assert [message.data async for message in socket] == [b"container is ", b"alive\n"]
        assert socket.close_code == 1000

    with_server(ScriptedService({"p": pod()}), tmp_path, test, logs=Written())


def test_a_log_may_come_as_base64(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        async with session(wire, LOG, "base64.binary.k8s.io") as socket:
            assert b64decode(await socket.receive_str()) == b"container is "

    with_server(ScriptedService({"p": pod()}), tmp_path, test, logs=Written())


def test_a_followed_log_ends_when_its_reader_goes(tmp_path: Path) -> None:
    written = Written()

    async def test(wire: Wire) -> None:
        async with session(wire, f"{LOG}?follow=true", "binary.k8s.io") as socket:
            await socket.receive_bytes()
            await socket.receive_bytes()
        async with asyncio.timeout(30):
            await written.closed.wait()

    with_server(ScriptedService({"p": pod()}), tmp_path, test, logs=written)


class Silent(Written):
    """Log without output."""

    def __init__(self) -> None:
        super().__init__()
        self.followed = asyncio.Event()

    async def _pieces(self, options: LogOptions) -> AsyncIterator[bytes]:
        try:
            self.followed.set()
            await asyncio.get_running_loop().create_future()
            yield b""
        finally:
            self.closed.set()


def test_a_log_ends_also_if_its_reader_goes_before_it_began(tmp_path: Path) -> None:
    silent = Silent()

    async def test(wire: Wire) -> None:
        opening = asyncio.ensure_future(_opened(wire, f"{LOG}?follow=true"))
        await silent.followed.wait()
        opening.cancel()
        await asyncio.wait((opening,))
        async with asyncio.timeout(30):
            await silent.closed.wait()

    with_server(ScriptedService({"p": pod()}), tmp_path, test, logs=silent)


async def _opened(wire: Wire, target: str) -> None:
    async with session(wire, target, "binary.k8s.io"):
        """It does not come to that."""
