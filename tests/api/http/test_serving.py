"""Listening socket: limits, address errors, and shutdown within a second."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from onejob.api.access.authentication import Credentials
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.api.http.serving import ApiServer, CannotListen
from onejob.clock import SystemClock
from onejob.wire.requests import WatchEvent
from tests.api.http.http_support import JOBS, added
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import (
    Wire,
    closed,
    read_chunk,
    read_head,
    read_reply,
    request_bytes,
    with_server,
)


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        tls = wire.certificates.server_context()
        clock = SystemClock()
        other = ApiServer(
            wire.server.app, host="127.0.0.1", port=wire.server.port, tls=tls, clock=clock
        )
        with pytest.raises(CannotListen) as raised:
            await other.start()
        assert str(raised.value) == (
            f"cannot listen on 127.0.0.1:{wire.server.port}: another program uses this port"
        )
        nowhere = ApiServer(wire.server.app, host="192.0.2.1", port=0, tls=tls, clock=clock)
        with pytest.raises(CannotListen, match="no such address"):
            await nowhere.start()

    with_server(ScriptedService(), tmp_path, test)


def test_stopping_ends_open_watches_cleanly(tmp_path: Path) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        watches = []
        for _ in range(20):
            reader, writer = await wire.connect()
            writer.write(request_bytes("GET", f"{JOBS}?watch=true"))
            await read_head(reader)
            await read_chunk(reader)
            watches.append((reader, writer))
        idle_reader, idle_writer = await wire.connect()
        async with asyncio.timeout(30):
            await wire.server.stop()
        assert service.open_watches == 0
        for reader, writer in watches:
            assert await read_chunk(reader) == b"", "the body must end, not break off"
            assert await reader.read() == b""
            writer.close()
            await closed(writer)
        assert await idle_reader.read() == b""
        idle_writer.close()
        await closed(idle_writer)

    with_server(service, tmp_path, test)


class Slow(ScriptedService):
    """Service that answers one request when the test releases it, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def get(self, *_: object) -> bytes:
        self.asked.set()
        await self.answer.wait()
        return b"{}"


def test_stopping_lets_a_request_finish(tmp_path: Path) -> None:
    service = Slow()

    async def test(wire: Wire) -> None:
        call = asyncio.ensure_future(wire.call("GET", f"{JOBS}/a"))
        await service.asked.wait()
        stop = asyncio.ensure_future(wire.server.stop())
        await asyncio.sleep(0)
        service.answer.set()
        assert (await call).code == 200
        await stop

    with_server(service, tmp_path, test)


def test_stopping_does_not_wait_for_a_request_that_hangs(tmp_path: Path) -> None:
    service = Slow()

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{JOBS}/a"))
        await service.asked.wait()
        async with asyncio.timeout(30):
            await wire.server.stop()
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test)


def test_requests_after_shutdown_are_refused(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        port = wire.server.port
        await wire.server.stop()
        with (
            pytest.raises(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", port), timeout=1),
        ):
            pass

    with_server(ScriptedService(), tmp_path, test)


def test_endless_headers_are_refused(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(100):
            writer.write(b"x-%d: " % number + b"y" * 1000 + b"\r\n")
        code, _ = await read_head(reader)
        assert code == 431
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /version HTTP/1.1\r\n"
        + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 990) for n in range(100)),
        b"GET /version HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n",
        b"GET /version?" + b"y" * 100_000 + b" HTTP/1.1\r\n",
        b"GET /version HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
    ],
    ids=["many", "one long", "a long query", "many small ones"],
)
def test_large_heads_are_refused_however_they_come(tmp_path: Path, head: bytes) -> None:
    async def test(wire: Wire) -> None:
        for rest in (b"\r\n", b"content-length: 5\r\n\r\nhello", b""):
            reader, writer = await wire.connect()
            writer.write(head + rest)
            code, _ = await read_head(reader)
            assert code == 431
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            await closed(writer)
        assert (await wire.call("GET", "/version", x="y" * 30_000)).code == 200

    with_server(ScriptedService(), tmp_path, test)


def test_connections_beyond_the_limit_wait_for_one_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        watches = []
        for _ in range(2):
            reader, writer = await wire.connect()
            writer.write(request_bytes("GET", f"{JOBS}?watch=true"))
            await read_head(reader)
            watches.append(writer)
        waiting = [asyncio.ensure_future(wire.call("GET", "/version")) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.2)
        assert not any(call.done() for call in waiting)
        watches[0].close()
        assert [reply.code for reply in await asyncio.gather(*waiting)] == [200] * 3
        watches[1].close()

    with_server(service, tmp_path, test, max_connections=2)
    assert caplog.text.count("all 2 connections are in use") == 1


def test_idle_connections_make_room_for_others(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        idle = []
        for _ in range(2):
            reader, writer = await wire.connect()
            writer.write(request_bytes("GET", "/version"))
            await read_reply(reader)
            idle.append((reader, writer))
        assert (await wire.call("GET", "/version")).code == 200
        for reader, writer in idle:
            assert await reader.read() == b""
            writer.close()
            await closed(writer)

    with_server(ScriptedService(), tmp_path, test, max_connections=2)


def test_connections_that_are_idle_a_moment_later_make_room_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.accepting._PAUSE_SECONDS", 0.05)
    service = Slow()

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{JOBS}/a"))
        await service.asked.wait()
        waiting = asyncio.ensure_future(wire.call("GET", "/version"))
        await asyncio.wait((waiting,), timeout=0.2)
        assert not waiting.done()
        service.answer.set()
        assert (await read_reply(reader)).code == 200
        async with asyncio.timeout(30):
            assert (await waiting).code == 200
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test, max_connections=1)


def test_a_client_that_does_not_shake_hands_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.accepting._HANDSHAKE_SECONDS", 0.05)

    async def test(wire: Wire) -> None:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", wire.server.port)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            await closed(writer)
        assert (await wire.call("GET", "/version")).code == 200

    with_server(ScriptedService(), tmp_path, test, max_connections=1)


class _SigningIn:
    """Dashboard that reads a body before authentication."""

    def session(self, headers: Mapping[bytes, bytes]) -> None:
        return None

    async def answer(
        self, request: UserRequest, path: tuple[str, ...], credentials: Credentials
    ) -> Response:
        return Response(200, await request.body())


HALF_REQUESTS = {
    "half a head": (b"GET /version HTTP/1.1\r\nhost:", False),
    "half a sign-in": (request_bytes("POST", "/ui/api/session", b"{}", token="")[:-1], False),
    "half a body after the answer": (request_bytes("POST", "/version", b"{}", token="")[:-1], True),
    "half a body after a refusal": (request_bytes("POST", JOBS, b"{}", token="wrong")[:-1], True),
}


@pytest.mark.parametrize("name", HALF_REQUESTS)
def test_requests_without_credentials_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("onejob.api.http.connection._UNKNOWN_SECONDS", 0.05)
    monkeypatch.setattr("onejob.api.http.accepting._PAUSE_SECONDS", 0.05)
    half, answered = HALF_REQUESTS[name]

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(half)
        if answered:
            assert (await read_reply(reader)).code in (401, 405)
        async with asyncio.timeout(60):
            assert (await wire.call("GET", "/version")).code == 200
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test, max_connections=1, dashboard=_SigningIn())


def test_slow_request_of_a_known_user_keeps_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.connection._UNKNOWN_SECONDS", 0.05)
    monkeypatch.setattr("onejob.api.http.accepting._PAUSE_SECONDS", 0.05)
    slow = request_bytes("POST", "/ui/api/session", b"{}")

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(slow[:-1])
        waiting = asyncio.ensure_future(wire.call("GET", "/version"))
        await asyncio.wait((waiting,), timeout=0.5)
        assert not waiting.done()
        writer.write(slow[-1:])
        assert (await read_reply(reader)).body == b"{}"
        assert (await waiting).code == 200
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test, max_connections=1, dashboard=_SigningIn())


def test_handshake_that_does_not_end_makes_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.accepting._HANDSHAKE_SECONDS", 3600.0)
    monkeypatch.setattr("onejob.api.http.accepting._HURRIED_HANDSHAKE_SECONDS", 0.05)
    monkeypatch.setattr("onejob.api.http.accepting._PAUSE_SECONDS", 0.05)

    async def test(wire: Wire) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", wire.server.port)
        async with asyncio.timeout(60):
            assert (await wire.call("GET", "/version")).code == 200
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test, max_connections=1)


def test_connections_inherit_a_kernel_keepalive_of_two_minutes(tmp_path: Path) -> None:
    """Nothing else notices that a client has vanished, as WebSockets are not pinged."""

    async def test(wire: Wire) -> None:
        _, writer = await wire.connect()
        writer.write(request_bytes("GET", "/version"))
        await wire.call("GET", "/version")
        accepted = [
            connection.transport.get_extra_info("socket")
            for connection in wire.server._open.connections
        ]
        assert accepted
        for sock in accepted:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, interval, count = (
                sock.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + interval * count <= 120
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


def _session(target: str = "", **headers: str) -> bytes:
    handshake = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec_websocket_protocol": "v5.channel.k8s.io",
    }
    path = "/api/v1/namespaces/default/pods/p/exec?command=x&stdout=1"
    return request_bytes("GET", path + target, **{**handshake, **headers})


def test_sessions_that_end_give_their_places_back(tmp_path: Path) -> None:
    """The end of a WebSocket is delivered to another protocol than its beginning."""

    async def test(wire: Wire) -> None:
        for _ in range(3):
            reader, writer = await wire.connect()
            writer.write(_session())
            await read_head(reader)
            writer.close()
            await closed(writer)
        assert (await wire.call("GET", "/version")).code == 200

    with_server(ScriptedService(), tmp_path, test, max_connections=1)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (_session("&command=" + "x" * 30_000), 404),
        (_session(x="y" * 30_000), 404),
        (_session(**{f"x-{number}": "y" for number in range(500)}), 404),
        (_session(sec_websocket_protocol="y" * 30_000), 404),
        (_session(sec_websocket_key="y" * 30_000), 431),
        (_session(sec_websocket_key="y"), 400),
    ],
    ids=[
        "a long command",
        "a long header",
        "many headers",
        "a long protocol",
        "a long key",
        "no key",
    ],
)
def test_requests_for_sessions_may_be_as_long_as_others(
    tmp_path: Path, asked: bytes, code: int
) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(asked)
        assert (await read_head(reader))[0] == code
        writer.close()
        await closed(writer)
        assert (await wire.call("GET", "/version")).code == 200

    with_server(ScriptedService(), tmp_path, test, max_connections=1)


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1"])
def test_a_watch_ends_with_its_connection_also_if_an_upgrade_was_asked_for_behind_it(
    tmp_path: Path, protocol: str
) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        session = request_bytes("GET", "/version", connection="Upgrade", upgrade=protocol)
        writer.write(request_bytes("GET", f"{JOBS}?watch=true") + session)
        await read_head(reader)
        await read_chunk(reader)
        assert service.open_watches == 1
        writer.transport.abort()
        async with asyncio.timeout(30):
            await service.no_watches.wait()

    with_server(service, tmp_path, test)


class Torrent(ScriptedService):
    """Service with a watch that never ends."""

    async def watch(self, *_: object) -> AsyncGenerator[Sequence[WatchEvent], None]:
        while True:
            yield [added("a" * 10_000)]
            await asyncio.sleep(0)


def test_of_very_many_clients_that_do_not_read_the_first_are_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.connection._MAX_STALLED", 1)
    monkeypatch.setattr("onejob.api.http.connection._STALLED_SECONDS", 0.05)

    async def test(wire: Wire) -> None:
        watches = []
        for _ in range(3):
            reader, writer = await wire.connect()
            writer.write(request_bytes("GET", f"{JOBS}?watch=true"))
            await read_head(reader)
            watches.append((reader, writer))
        while len(wire.server._open.connections) > 1:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.02)
        # The connection that stopped reading last depends on the machine.
        (last,) = wire.server._open.connections
        peer = last.transport.get_extra_info("peername")
        (reader,) = [r for r, w in watches if w.get_extra_info("sockname") == peer]
        assert await reader.readexactly(1_000_000), "the last goes on as soon as it reads"
        for _, writer in watches:
            writer.transport.abort()

    with_server(Torrent(), tmp_path, test)


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nhost: "])
def test_headers_that_never_come_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr("onejob.api.http.connection._HEADER_SECONDS", 0.05)

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(start)
        code, _ = await read_head(reader)
        assert code == 408
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize("start", [b"", b"{"])
def test_a_body_that_never_comes_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr("onejob.api.http.requests._BODY_SECONDS", 0.05)

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("POST", JOBS, b"{}")[:-2] + start)
        reply = await read_reply(reader)
        assert (reply.code, reply.header("connection")) == (408, "close")
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\xff" * 100 + b"\r\n\r\n",
    ],
)
def test_garbage_is_a_bad_request(tmp_path: Path, garbage: bytes) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(garbage)
        code, _ = await read_head(reader)
        assert code == 400
        writer.close()
        await closed(writer)
        assert (await wire.call("GET", "/healthz")).code == 200

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize(
    "request_line", [b"GET /version HTTP/0.9", b"GET /version", b"GET /version HTTP/2.0"]
)
def test_other_versions_of_http_are_refused(tmp_path: Path, request_line: bytes) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_line + b"\r\n\r\n")
        assert (await read_reply(reader)).code == 505
        assert await reader.read() == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


def test_plain_http_gets_no_answer(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.server.port)
        writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = b""
        with suppress(ConnectionError):
            answer = await reader.read()
        assert not answer.startswith(b"HTTP/")
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


class SlowReader:
    """Client that reads only on command and sends no further request."""

    def __init__(self, wire: Wire) -> None:
        context = ssl.create_default_context(cafile=str(wire.certificates.authority))
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        raw.connect(("127.0.0.1", wire.server.port))
        self.socket = context.wrap_socket(raw, server_hostname="127.0.0.1")
        self.socket.settimeout(30)
        self.socket.sendall(request_bytes("GET", f"{JOBS}/a", connection="close"))
        self.received = 0

    def read(self, upto: int) -> int:
        """Read up to `upto` bytes in total or to the end.

        Return the number of bytes received so far.
        """
        while self.received < upto and (piece := self.socket.recv(16 * 1024)):
            self.received += len(piece)
        return self.received


LARGE = b'{"metadata":{"name":"a"},"text":"%b"}' % (b"x" * 3_000_000)


def _in_short_time(monkeypatch: pytest.MonkeyPatch, *, unread: float) -> None:
    for name, seconds in {"LOOK": 0.05, "GOODBYE": 0.2, "UNREAD": unread}.items():
        monkeypatch.setattr(f"onejob.api.http.accepting._{name}_SECONDS", seconds)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_slow_reader_gets_the_end_of_the_last_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Also if that takes longer than a client's time to close."""
    _in_short_time(monkeypatch, unread=20)

    async def test(wire: Wire) -> None:
        client = await asyncio.to_thread(SlowReader, wire)
        for left in range(900_000, 0, -100_000):
            await asyncio.to_thread(client.read, len(LARGE) - left)
            await asyncio.sleep(0.5)
        assert await asyncio.to_thread(client.read, 2 * len(LARGE)) > len(LARGE)
        client.socket.close()

    with_server(ScriptedService({"a": LARGE}), tmp_path, test, loop=loop)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("reads", [len(LARGE) - 700_000, len(LARGE) + 1])
def test_idle_connection_is_closed_at_connection_limit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reads: int,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """It may or may not have read everything: there is one place, and others wait for it."""
    _in_short_time(monkeypatch, unread=600)

    async def test(wire: Wire) -> None:
        client = await asyncio.to_thread(SlowReader, wire)
        await asyncio.to_thread(client.read, reads)
        async with asyncio.timeout(60):
            assert (await wire.call("GET", "/version")).code == 200
        client.socket.close()

    with_server(ScriptedService({"a": LARGE}), tmp_path, test, loop=loop, max_connections=1)


def test_stalled_reader_of_last_response_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_short_time(monkeypatch, unread=0.5)

    async def test(wire: Wire) -> None:
        client = await asyncio.to_thread(SlowReader, wire)
        await asyncio.to_thread(client.read, len(LARGE) - 700_000)
        await asyncio.sleep(2)
        with suppress(OSError):
            await asyncio.to_thread(client.read, 2 * len(LARGE))
        assert client.received < len(LARGE)
        client.socket.close()

    with_server(ScriptedService({"a": LARGE}), tmp_path, test, loop=uvloop.new_event_loop)


def test_connection_that_was_closed_twice_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a WebSocket that both sides close at once: a TLS transport of asyncio then has no
    socket."""
    _in_short_time(monkeypatch, unread=20)

    async def test(wire: Wire) -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: failures.append(context)
        )
        acceptor = wire.server._acceptor
        assert acceptor is not None
        _, writer = await wire.connect()
        async with asyncio.timeout(60):
            while not (made := [*acceptor._made]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for transport in made * 2:
                transport.close()
            while acceptor._made and not failures:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert failures == []
        writer.close()

    with_server(ScriptedService(), tmp_path, test)
