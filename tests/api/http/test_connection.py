"""HTTP/1.1 connection without TLS and with small applications: tests choose every byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from onejob.api.http.connection import Connection, OpenConnections
from onejob.api.http.exchange import App
from onejob.api.http.requests import BodyStream, Request
from onejob.api.http.responses import Response
from onejob.api.sessions.socket import Session, Socket
from onejob.clock import SystemClock
from tests.api.http.wire import Reply, read_head, read_reply

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

#: Timeout that only a hang reaches, on however busy a machine.
_TIMEOUT_SECONDS = 300

Talk = Callable[["Line"], Coroutine[Any, Any, None]]
Connected = Callable[[App, Talk], None]


class Line:
    """The client's end of one connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        shared: OpenConnections,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.shared = shared

    async def ask(self, *lines: str, body: bytes = b"", head: bool = False) -> Reply:
        self.write(*lines, body=body)
        return await read_reply(self.reader, head=head)

    def write(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join((*lines, "", "")).encode() + body)

    async def ended(self) -> bool:
        return await self.reader.read() == b""


@pytest.fixture(params=LOOPS)
def connected(request: pytest.FixtureRequest) -> Connected:
    """Run an application behind a listening socket, and a test that talks to it."""

    def run(app: App, talk: Talk) -> None:
        async def serve() -> None:
            loop = asyncio.get_running_loop()
            shared = OpenConnections(app, SystemClock())
            server = await loop.create_server(lambda: Connection(shared, loop), "127.0.0.1", 0)
            address = server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(*address)
            try:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    await talk(Line(reader, writer, shared))
            finally:
                writer.close()
                server.close()
            await asyncio.gather(*shared.tasks)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(serve())

    return run


async def _body(stream: BodyStream) -> bytes:
    body, more = b"", True
    while more:
        piece, more = await stream.receive()
        body += piece
    return body


async def echo(request: Request) -> Response:
    """Respond with the request line and the body."""
    body = await _body(request.stream)
    where = f"{request.method} {request.path}?{request.query_string.decode()} ".encode()
    return Response(200, where + body)


async def hasty(request: Request) -> Response:
    """Respond without reading the body."""
    return Response(200, request.raw_path.encode())


THREE_REQUESTS = (
    b"POST /a%2Fb?x=1 HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello"
    b"POST /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    b"GET /last HTTP/1.1\r\nhost: h\r\n\r\n"
)


def test_requests_are_answered_in_order_however_they_are_cut(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        for cut in range(0, len(THREE_REQUESTS), 7):
            line.writer.write(THREE_REQUESTS[:cut])
            await asyncio.sleep(0)
            line.writer.write(THREE_REQUESTS[cut:])
            replies = [await read_reply(line.reader) for _ in range(3)]
            bodies = [reply.body for reply in replies]
            assert bodies == [b"POST /a/b?x=1 hello", b"POST /c? abcde", b"GET /last? "], cut

    connected(echo, talk)


def test_many_requests_at_once_wait_for_each_other(connected: Connected) -> None:
    active = 0

    async def app(request: Request) -> Response:
        nonlocal active
        active += 1
        assert active == 1, "two requests of one connection were answered at once"
        await asyncio.sleep(0)
        active -= 1
        return Response(200, request.raw_path.encode())

    async def talk(line: Line) -> None:
        asked = b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(2000))
        line.writer.write(asked)
        for number in range(2000):
            assert (await read_reply(line.reader)).body == b"/%d" % number

    connected(app, talk)


def test_of_very_many_requests_at_once_few_are_read_ahead(connected: Connected) -> None:
    """An unauthenticated client can send them and read no response."""
    go_on = asyncio.Event()
    count = 30_000

    async def app(request: Request) -> Response:
        await go_on.wait()
        return Response(200, b"")

    async def talk(line: Line) -> None:
        (connection,) = line.shared.connections
        line.writer.write(b"GET / HTTP/1.1\r\n\r\n" * count)
        while not connection._reading_paused:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)
        assert len(connection._waiting) < 300
        go_on.set()
        for _ in range(count):
            assert (await read_reply(line.reader)).code == 200

    connected(app, talk)


def test_disconnect_after_pipelined_request_is_detected(connected: Connected) -> None:
    learned = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            await asyncio.get_running_loop().create_future()
            yield b""
        finally:
            learned.set()

    async def app(request: Request) -> Response:
        return Response(200, endless())

    async def talk(line: Line) -> None:
        line.write("GET /stream HTTP/1.1", "", "GET /next HTTP/1.1")
        await read_head(line.reader)
        line.writer.close()
        await learned.wait()

    connected(app, talk)


def test_a_body_that_waits_for_its_turn_comes_whole(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        body = bytes(range(256)) * 2000
        for _ in range(3):
            line.write("POST / HTTP/1.1", f"content-length: {len(body)}", body=body)
        for _ in range(3):
            assert (await read_reply(line.reader)).body == b"POST /? " + body

    connected(echo, talk)


def test_a_head_is_answered_without_a_body(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        reply = await line.ask("HEAD /a HTTP/1.1", head=True)
        assert (reply.code, reply.header("content-length")) == (200, "9")
        assert (await line.ask("GET /b HTTP/1.1")).body == b"GET /b? "

    connected(echo, talk)


def test_expect_continue_is_answered_when_body_is_read(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        line.write("POST /a HTTP/1.1", "content-length: 2", "expect: 100-continue")
        assert await read_head(line.reader) == (100, [])
        line.writer.write(b"hi")
        assert (await read_reply(line.reader)).body == b"POST /a? hi"

    connected(echo, talk)


def test_expect_continue_is_ignored_for_http_1_0(connected: Connected) -> None:
    """An HTTP/1.0 client would take the interim response for the final one."""

    async def talk(line: Line) -> None:
        line.write("POST /a HTTP/1.0", "content-length: 2", "expect: 100-continue")
        line.writer.write(b"hi")
        assert (await read_reply(line.reader)).body == b"POST /a? hi"

    connected(echo, talk)


def test_expect_continue_gets_final_response_if_body_is_not_read(connected: Connected) -> None:
    async def refuse(request: Request) -> Response:
        return Response(413, b"no")

    async def talk(line: Line) -> None:
        line.write("POST /a HTTP/1.1", "content-length: 2", "expect: 100-continue")
        assert (await read_reply(line.reader)).code == 413
        assert await line.ended()

    connected(refuse, talk)


def test_request_after_refused_expect_continue_is_not_taken_for_its_body(
    connected: Connected,
) -> None:
    """A refused client may send its next request instead of the body.

    Through a proxy, one of another user.
    """

    async def refuse(request: Request) -> Response:
        return Response(403, b"no")

    async def talk(line: Line) -> None:
        line.write("POST /a HTTP/1.1", "content-length: 2", "expect: 100-continue")
        reply = await read_reply(line.reader)
        assert (reply.code, reply.header("connection")) == (403, "close")
        assert await line.ended()

    connected(refuse, talk)


def test_trailers_are_no_headers(connected: Connected) -> None:
    async def app(request: Request) -> Response:
        await _body(request.stream)
        return Response(200, b" ".join(name for name, _ in request.headers))

    async def talk(line: Line) -> None:
        body = b"1\r\nx\r\n0\r\nauthorization: Bearer stolen\r\n\r\n"
        reply = await line.ask(
            "POST / HTTP/1.1", "Host: h", "transfer-encoding: chunked", body=body
        )
        assert reply.body == b"host transfer-encoding"

    connected(app, talk)


#: Beginning of a body, and bytes that may follow endlessly.
ENDLESS = {
    "trailer": (b"0\r\nx: ", b"y"),
    "name of a trailer": (b"0\r\n", b"y"),
    "trailers": (b"0\r\n", b"x: y\r\n"),
    "extension of a chunk": (b"1;", b"y"),
    "size of a chunk": (b"", b"0"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_unterminated_body_framing_is_rejected(connected: Connected, what: str) -> None:
    start, more = ENDLESS[what]

    async def talk(line: Line) -> None:
        line.write("POST / HTTP/1.1", "transfer-encoding: chunked", body=start)
        line.writer.write(more * (70_000 // len(more)))
        assert (await read_head(line.reader))[0] == 431

    connected(echo, talk)


@pytest.mark.parametrize("what", ENDLESS)
def test_connection_is_closed_if_body_continues_after_response(
    connected: Connected, what: str
) -> None:
    """Without a second response, which would be taken for that to the next request."""
    start, more = ENDLESS[what]

    async def talk(line: Line) -> None:
        line.write("POST / HTTP/1.1", "transfer-encoding: chunked", body=start)
        assert (await read_reply(line.reader)).code == 200
        line.writer.write(more * (70_000 // len(more)))
        with suppress(ConnectionError):
            assert await line.ended()

    connected(hasty, talk)


def test_a_header_cannot_end_early(connected: Connected, caplog: pytest.LogCaptureFixture) -> None:
    async def app(request: Request) -> Response:
        return Response(200, b"", headers=((b"warning", b"a\r\nset-cookie: b"),))

    async def talk(line: Line) -> None:
        reply = await line.ask("GET / HTTP/1.1")
        assert (reply.code, reply.header("set-cookie")) == (500, "")
        assert await line.ended()

    connected(app, talk)
    assert "a request could not be answered" in caplog.text


@pytest.mark.parametrize(
    ("lines", "stays"),
    [
        (("GET / HTTP/1.1",), True),
        (("GET / HTTP/1.1", "connection: close"), False),
        (("GET / HTTP/1.0",), False),
        (("GET / HTTP/1.1", "connection: upgrade", "upgrade: h2c"), False),
    ],
)
def test_connection_is_kept_alive_if_requested(
    connected: Connected, lines: tuple[str, ...], stays: bool
) -> None:
    async def talk(line: Line) -> None:
        reply = await line.ask(*lines)
        assert (reply.code, reply.header("connection")) == (200, "" if stays else "close")
        if stays:
            assert (await line.ask("GET /again HTTP/1.1")).code == 200
        else:
            assert await line.ended()

    connected(echo, talk)


def test_a_large_body_waits_until_it_is_wanted(connected: Connected) -> None:
    size = 3_000_000

    async def app(request: Request) -> Response:
        await asyncio.sleep(0.05)
        largest = total = 0
        more = True
        while more:
            piece, more = await request.stream.receive()
            total += len(piece)
            largest = max(largest, len(piece))
            await asyncio.sleep(0)
        return Response(200, b"%d %d" % (total, largest))

    async def talk(line: Line) -> None:
        reply = await line.ask("POST / HTTP/1.1", f"content-length: {size}", body=b"x" * size)
        total, largest = map(int, reply.body.split())
        assert total == size
        assert largest < 1_000_000, "all of it was held in memory"

    connected(app, talk)


def test_body_received_after_response_is_discarded(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        line.write("POST /a HTTP/1.1", "content-length: 300000")
        assert (await read_reply(line.reader)).body == b"/a"
        line.writer.write(b"x" * 300_000)
        assert (await line.ask("GET /b HTTP/1.1")).body == b"/b"

    connected(hasty, talk)


def test_an_answer_that_breaks_off_is_seen_to(
    connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"begun"
        raise RuntimeError("a mistake of ours")

    async def app(request: Request) -> Response:
        return Response(200, broken())

    async def talk(line: Line) -> None:
        line.write("GET / HTTP/1.1")
        assert (await read_head(line.reader))[0] == 200
        assert await line.reader.read() == b"5\r\nbegun\r\n", "the last chunk is missing"

    connected(app, talk)
    assert "a mistake of ours" in caplog.text


def test_response_ends_once_however_it_ends(
    connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    """When sent, when the client disconnects, and when it cannot be sent."""
    ended: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.get_running_loop().create_future()

    async def app(request: Request) -> Response:
        path = request.raw_path
        body = endless() if path == "/endless" else b"whole"
        headers = ((b"warning", b"\n"),) if path == "/invalid" else ()
        return Response(200, body, headers=headers, on_end=lambda: ended.append(path))

    async def talk(line: Line) -> None:
        assert (await line.ask("GET /whole HTTP/1.1")).code == 200
        line.write("GET /endless HTTP/1.1")
        await read_head(line.reader)
        line.writer.close()
        await asyncio.wait(line.shared.tasks)

    async def talk_of_error(line: Line) -> None:
        assert (await line.ask("GET /invalid HTTP/1.1")).code == 500

    connected(app, talk)
    connected(app, talk_of_error)
    assert ended == ["/whole", "/endless", "/invalid"]
    assert "a header must not contain this" in caplog.text


def test_stream_ends_early(connected: Connected) -> None:
    closed: list[bool] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"begun"
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    async def app(request: Request) -> Response:
        end = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, end.set_result, None)
        return Response(200, endless(), ends=(end,))

    async def talk(line: Line) -> None:
        assert (await line.ask("GET / HTTP/1.1")).body == b"begun"
        assert closed == [True]
        assert (await line.ask("GET / HTTP/1.1")).code == 200

    connected(app, talk)


def test_the_application_learns_that_the_client_is_gone(connected: Connected) -> None:
    learned = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            await asyncio.get_running_loop().create_future()
            yield b""
        finally:
            learned.set()

    async def app(request: Request) -> Response:
        return Response(200, endless())

    async def talk(line: Line) -> None:
        line.write("GET / HTTP/1.1")
        await read_head(line.reader)
        line.writer.close()
        await learned.wait()

    connected(app, talk)


def test_the_head_of_a_stream_does_not_wait_for_its_first_piece(connected: Connected) -> None:
    go_on = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await go_on.wait()
        yield b"end"

    async def app(request: Request) -> Response:
        return Response(200, late())

    async def talk(line: Line) -> None:
        line.write("GET / HTTP/1.1")
        assert (await read_head(line.reader))[0] == 200
        go_on.set()
        assert await line.reader.readexactly(13) == b"3\r\nend\r\n0\r\n\r\n"

    connected(app, talk)


def test_a_client_that_does_not_read_is_waited_for(connected: Connected) -> None:
    """The buffer is bounded, and the client gets all of it when it reads."""
    sent = 0

    async def large() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(400):
            yield b"x" * 100_000
            sent += 1

    async def app(request: Request) -> Response:
        return Response(200, large())

    async def talk(line: Line) -> None:
        line.write("GET / HTTP/1.1")
        seen: list[int] = []
        while sent < 400 and not (sent > 0 and seen[-5:] == [sent] * 5):
            # Until nothing more is taken from the application.
            seen.append(sent)
            await asyncio.sleep(0.05)
        assert sent < 400, "forty megabytes wait for a client that reads nothing"
        assert len((await read_reply(line.reader)).body) == 40_000_000

    connected(app, talk)


def test_an_idle_connection_is_closed_in_time(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.connection._KEEP_ALIVE_SECONDS", 0.3)

    async def talk(line: Line) -> None:
        (connection,) = line.shared.connections
        for _ in range(4):
            # Longer than the idle timeout in total.
            assert (await line.ask("GET / HTTP/1.1")).code == 200
            assert connection.is_idle
            await asyncio.sleep(0.1)
        assert await line.ended()

    connected(echo, talk)


def test_an_old_client_gets_a_stream_without_chunks(connected: Connected) -> None:
    async def two() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def app(request: Request) -> Response:
        return Response(200, two())

    async def talk(line: Line) -> None:
        line.write("GET / HTTP/1.0")
        _, headers = await read_head(line.reader)
        assert "transfer-encoding" not in dict(headers)
        assert await line.reader.read() == b"ab"

    connected(app, talk)


def test_garbage_behind_a_request_does_not_break_into_its_answer(connected: Connected) -> None:
    """The request before it is the last one answered."""
    go_on = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await go_on.wait()
        yield b"whole"

    async def app(request: Request) -> Response:
        return Response(200, late())

    async def talk(line: Line) -> None:
        line.write("GET / HTTP/1.1")
        line.writer.write(b"\x00\x01garbage\r\n\r\n")
        await read_head(line.reader)
        go_on.set()
        assert await line.reader.read() == b"5\r\nwhole\r\n0\r\n\r\n"

    connected(app, talk)


def test_a_body_that_cannot_be_read_is_a_bad_request(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        line.write("POST / HTTP/1.1", "transfer-encoding: chunked", body=b"3\r\nabc\r\nzz\r\n")
        assert (await read_reply(line.reader)).code == 400
        assert await line.ended()

    connected(echo, talk)


def test_client_stalled_in_unread_body_counts_as_idle(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.http.connection._KEEP_ALIVE_SECONDS", 0.1)

    async def talk(line: Line) -> None:
        line.write("POST / HTTP/1.1", "content-length: 3")
        assert (await read_reply(line.reader)).code == 200
        line.writer.write(b"x")
        assert await line.ended()

    connected(hasty, talk)


@pytest.mark.parametrize("target", ["http://", "/\xff"])
def test_no_path_is_a_bad_request(connected: Connected, target: str) -> None:
    async def talk(line: Line) -> None:
        line.writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode("latin-1"))
        assert (await read_head(line.reader))[0] == 400

    connected(echo, talk)


UPGRADES = {
    "WebSocket": (
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ),
    "SPDY": ("connection: upgrade", "upgrade: SPDY/3.1"),
}


@pytest.mark.parametrize("upgrade", UPGRADES)
def test_an_upgrade_behind_another_request_is_none(connected: Connected, upgrade: str) -> None:
    """The connection is occupied by a response that may go on for hours."""
    go_on = asyncio.Event()

    async def late(request: Request) -> AsyncIterator[bytes]:
        await go_on.wait()
        yield request.raw_path.encode()

    async def app(request: Request) -> Response:
        assert not request.upgrade
        return Response(200, late(request))

    async def talk(line: Line) -> None:
        line.write("GET /stream HTTP/1.1", "", "GET /session HTTP/1.1", *UPGRADES[upgrade])
        await read_head(line.reader)
        go_on.set()
        assert await line.reader.readexactly(len(b"7\r\n/stream\r\n0\r\n\r\n"))
        reply = await read_reply(line.reader)
        assert (reply.body, reply.header("connection")) == (b"/session", "close")
        assert await line.ended()

    connected(app, talk)


@pytest.mark.parametrize("upgrade", [*UPGRADES, "what nobody speaks"])
@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("content-length: 2", b"hi"),
        ("content-length: 2", b""),
        ("transfer-encoding: chunked", b"2\r\nhi\r\n0\r\n\r\n"),
    ],
)
def test_an_upgrade_has_no_body(
    connected: Connected, upgrade: str, header: str, body: bytes
) -> None:
    """Such a request is refused rather than executed without its body."""

    async def talk(line: Line) -> None:
        lines = UPGRADES.get(upgrade, ("connection: upgrade", "upgrade: h2c"))
        reply = await line.ask("DELETE /a HTTP/1.1", header, *lines, body=body)
        assert (reply.code, reply.header("connection")) == (400, "close")
        assert await line.ended()

    connected(echo, talk)


# --- WebSockets -------------------------------------------------------------------------------


def frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """Return a client's frame with a zero mask."""
    assert len(data) < 126
    return bytes((opcode | 0x80 * last, 0x80 | len(data), 0, 0, 0, 0)) + data


TEXT, BYTES, CLOSE, PING, MORE = 1, 2, 8, 9, 0


def upgraded(run: Callable[[Socket], Awaitable[None]]) -> App:
    """Return an application that accepts upgrades and runs this session."""

    async def app(request: Request) -> Response:
        return Response(101, b"", session=Session("", run))

    return app


async def echo_messages(socket: Socket) -> None:
    while (message := await socket.receive()) is not None:
        await socket.send(message.encode() if isinstance(message, str) else message)


async def open_web_socket(line: Line) -> None:
    line.write("GET /a HTTP/1.1", *UPGRADES["WebSocket"])
    assert (await read_head(line.reader))[0] == 101


def test_a_text_that_is_none_ends_a_session_quietly(
    connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(line: Line) -> None:
        await open_web_socket(line)
        line.writer.write(frame(TEXT, b"good"))
        assert await line.reader.readexactly(6) == b"\x82\x04good"
        line.writer.write(frame(TEXT, b"\xff", last=False) + frame(MORE, b"\xfe"))
        assert await line.reader.read() == b"\x88\x02" + (1007).to_bytes(2, "big")

    connected(upgraded(echo_messages), talk)
    assert not caplog.records


@pytest.mark.parametrize(
    "early",
    [frame(PING, b"x"), frame(TEXT, b"\xff"), b"\xff" * 100],
    ids=["a ping", "no text", "garbage"],
)
def test_data_before_upgrade_response_closes_connection(
    connected: Connected, early: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def abandon() -> None:
        ended.append("abandoned")

    async def app(request: Request) -> Response:
        asked.set()
        await gone.wait()
        session = Session("", echo_messages, abandon)
        return Response(101, b"", session=session, on_end=lambda: ended.append("ended"))

    async def talk(line: Line) -> None:
        line.shared.on_closed = gone.set
        line.write("GET /a HTTP/1.1", *UPGRADES["WebSocket"])
        await asked.wait()
        line.writer.write(early)
        await gone.wait()
        with suppress(ConnectionError):
            assert await line.ended()

    connected(app, talk)
    assert ended == ["abandoned", "ended"]
    assert not caplog.records


def test_revoked_web_socket_is_closed(connected: Connected) -> None:
    async def app(request: Request) -> Response:
        end = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, end.set_result, None)
        return Response(101, b"", session=Session("", echo_messages), ends=(end,))

    async def talk(line: Line) -> None:
        await open_web_socket(line)
        assert await line.reader.readexactly(4) == b"\x88\x02" + (1008).to_bytes(2, "big")
        line.writer.write(frame(CLOSE, (1008).to_bytes(2, "big")))
        assert await line.ended()

    connected(app, talk)


def test_web_socket_answers_a_flood_of_pings_with_few_pongs(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        await open_web_socket(line)
        line.writer.write(frame(PING, b"x" * 125) * 20_000 + frame(BYTES, b"end"))
        received = 0
        while not (data := await line.reader.read(1 << 20)).endswith(b"\x82\x03end"):
            received += len(data)
        assert received < 1000 * 127

    connected(upgraded(echo_messages), talk)


def test_web_socket_sends_a_large_message_as_one_frame_with_pongs_behind(
    connected: Connected,
) -> None:
    """The client pings in the middle of the frame, before it reads."""
    parts = (b'{"a":', b"x" * 30_000_000, b"}")
    stalled = asyncio.Event()

    async def run(socket: Socket) -> None:
        sending = asyncio.ensure_future(socket.send_parts(parts, is_text=True))
        await asyncio.sleep(0.1)
        assert not sending.done()
        stalled.set()
        assert await socket.receive() == b"end"
        await sending
        await socket.close()

    async def talk(line: Line) -> None:
        await open_web_socket(line)
        await stalled.wait()
        line.writer.write(frame(PING, b"1") + frame(PING, b"2") + frame(BYTES, b"end"))
        whole = b"".join(parts)
        assert await line.reader.readexactly(10) == b"\x81\x7f" + len(whole).to_bytes(8, "big")
        assert await line.reader.readexactly(len(whole)) == whole
        assert await line.reader.readexactly(3) == b"\x8a\x012"
        assert await line.reader.readexactly(4) == b"\x88\x02" + (1000).to_bytes(2, "big")
        line.writer.write(frame(CLOSE, (1000).to_bytes(2, "big")))
        assert await line.ended()

    connected(upgraded(run), talk)


def test_web_socket_holds_other_messages_back_until_a_large_one_is_sent(
    connected: Connected,
) -> None:
    async def run(socket: Socket) -> None:
        await asyncio.gather(*(socket.send(byte * 1_000_000) for byte in (b"a", b"b")))
        await socket.receive()

    async def talk(line: Line) -> None:
        await open_web_socket(line)
        for byte in (b"a", b"b"):
            assert (await line.reader.readexactly(10))[:2] == b"\x82\x7f"
            assert await line.reader.readexactly(1_000_000) == byte * 1_000_000
        line.writer.write(frame(CLOSE, b""))

    connected(upgraded(run), talk)


@pytest.mark.parametrize("size", [125, 126, 16_384, 16_385, 65_535, 65_536])
def test_web_socket_frame_has_the_shortest_length(connected: Connected, size: int) -> None:
    async def run(socket: Socket) -> None:
        await socket.send(b"x" * size)
        await socket.receive()

    async def talk(line: Line) -> None:
        await open_web_socket(line)
        opcode, length = await line.reader.readexactly(2)
        assert opcode == 0x82
        if length >= 126:
            assert length == (126 if size < 65_536 else 127)
            length = int.from_bytes(await line.reader.readexactly(2 if length == 126 else 8), "big")
        assert length == size
        assert await line.reader.readexactly(size) == b"x" * size
        line.writer.write(frame(CLOSE, b""))

    connected(upgraded(run), talk)


def test_pings_of_a_client_that_does_not_read_do_not_pile_up(connected: Connected) -> None:
    arrived = asyncio.Event()

    async def run(socket: Socket) -> None:
        assert await socket.receive() == b"end"
        arrived.set()
        await socket.receive()

    async def talk(line: Line) -> None:
        await open_web_socket(line)
        (socket,) = line.shared.connections
        line.writer.write(frame(PING, b"x" * 125) * 200_000 + frame(BYTES, b"end"))
        await arrived.wait()
        assert socket.transport.get_write_buffer_size() < 1_000_000
        line.writer.transport.abort()

    connected(upgraded(run), talk)


def test_web_socket_joins_fragments_of_a_message(connected: Connected) -> None:
    async def talk(line: Line) -> None:
        await open_web_socket(line)
        empty = frame(MORE, b"", last=False)
        line.writer.write(frame(BYTES, b"a", last=False) + empty * 1000 + frame(PING, b"?"))
        assert await line.reader.readexactly(3) == b"\x8a\x01?"
        line.writer.write(frame(MORE, b"b"))
        assert await line.reader.readexactly(4) == b"\x82\x02ab"

    connected(upgraded(echo_messages), talk)
