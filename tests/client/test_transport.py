"""The client's connection, byte by byte, on both event loops that run it."""

import asyncio
import base64
import gzip
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from onejob.client.answers import Unreachable
from onejob.client.base import Patch
from onejob.client.credentials import Credential, FixedCredential
from onejob.client.http import HttpClient
from onejob.client.transport.answer import BrokenResponse
from onejob.client.transport.dialing import Route
from onejob.client.transport.pool import Transport
from onejob.objects.meta import Key
from onejob.wire.errors import Unauthorized
from tests.client.http_support import answer, talking_to

JOB = Key("jobs.batch", "default", "a")

Runs = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runs(request: pytest.FixtureRequest) -> Runs:
    def run(test: Coroutine[Any, Any, None]) -> None:
        async def within_a_minute() -> None:
            async with asyncio.timeout(60):
                await test
                # The server's side of each connection ends with the client's.
                if handlers := asyncio.all_tasks() - {asyncio.current_task()}:
                    await asyncio.wait(handlers)
                await asyncio.sleep(0.01)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(within_a_minute())

    return run


class Server:
    """Server with one function per connection; counts connections and requests."""

    def __init__(self, exchange: "Callable[[Server, asyncio.StreamWriter], Awaitable[None]]"):
        self._exchange = exchange
        self.connections = 0
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                length = self.heads[-1].lower().partition("content-length: ")[2].partition("\r")[0]
                await reader.readexactly(int(length or 0))
                await self._exchange(self, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def says(data: bytes, *, close: bool = False) -> Server:
    async def exchange(_: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if close:
            writer.close()

    return Server(exchange)


def test_a_connection_is_used_again(runs: Runs) -> None:
    server = says(answer(200, b"{}"))

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            for _ in range(5):
                assert await client.get(JOB) == b"{}"
        assert (server.connections, len(server.heads)) == (1, 5)

    runs(test())


@pytest.mark.parametrize(
    "data",
    [
        answer(200, b"{}", "connection: close"),
        answer(200, b"{}") + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        answer(200, b"{}") + b"rubbish",
    ],
    ids=["asked to close", "two answers", "rubbish behind it"],
)
def test_connection_with_surplus_data_is_not_reused(runs: Runs, data: bytes) -> None:
    server = says(data)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            for _ in range(3):
                assert await client.get(JOB) == b"{}"
        assert server.connections == 3

    runs(test())


def test_a_kept_connection_that_is_gone_costs_a_read_nothing_and_a_write_is_sent_once(
    runs: Runs,
) -> None:
    async def answers_once(server: Server, writer: asyncio.StreamWriter) -> None:
        # Closed only when the next request has arrived, as if both had crossed.
        if len(server.heads) % 2:
            writer.write(answer(200, b'{"metadata":{"resourceVersion":"5"}}'))
        else:
            writer.close()

    server = Server(answers_once)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            await client.get(JOB)
            await client.get(JOB)
            assert (server.connections, len(server.heads)) == (2, 3)
            with pytest.raises(Unreachable):
                await client.write(Patch(JOB, b"{}"))
            assert [head.split()[0] for head in server.heads] == ["GET", "GET", "GET", "PATCH"]

    runs(test())


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + answer(200, b"{}"),
        answer(200, gzip.compress(b"{}"), "content-encoding: gzip"),
        answer(200, gzip.compress(b"{") + gzip.compress(b"}"), "content-encoding: gzip"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    ],
    ids=["until the end", "early hints", "gzip", "gzip members", "chunks"],
)
def test_every_form_of_an_answer_is_understood(runs: Runs, data: bytes) -> None:
    server = says(data, close=True)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            assert await client.get(JOB) == b"{}"

    runs(test())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "invalid HTTP response"),
        (
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "invalid HTTP response",
        ),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, "response headers are too long"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
            "closed before the end of the response",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
            "closed before the end of the response",
        ),
        (answer(200, b"no gzip", "content-encoding: gzip"), "cannot decompress the response"),
    ],
    ids=["another protocol", "upgrade", "endless head", "short", "cut", "not gzip"],
)
def test_invalid_response_is_an_error(runs: Runs, data: bytes, message: str) -> None:
    server = says(data, close=True)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            with pytest.raises(Unreachable, match=message):
                await client.get(JOB)

    runs(test())


@pytest.mark.parametrize("head_first", [False, True])
def test_the_time_limit_is_for_the_whole_answer(runs: Runs, head_first: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" if head_first else b""
    server = says(head)

    async def test() -> None:
        async with talking_to(None, serve=server.serve, request_seconds=0.2) as client:
            with pytest.raises(Unreachable, match="timed out"):
                await client.get(JOB)

    runs(test())


def test_a_cancelled_request_leaves_no_answer_for_the_next(runs: Runs) -> None:
    async def slowly(server: Server, writer: asyncio.StreamWriter) -> None:
        number = len(server.heads)
        await asyncio.sleep(0.2 if number == 1 else 0)
        writer.write(answer(200, b'{"number":%d}' % number))

    server = Server(slowly)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            first = asyncio.create_task(client.get(JOB))
            while not server.heads:  # noqa: ASYNC110 - the server has no event
                await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert await client.get(JOB) == b'{"number":2}'
        assert server.connections == 2

    runs(test())


def test_closing_client_fails_pending_requests(runs: Runs) -> None:
    server = says(b"")

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            asked = asyncio.create_task(client.get(JOB))
            while not server.heads:  # noqa: ASYNC110 - the server has no event
                await asyncio.sleep(0.01)
            await client.close()
            with pytest.raises(Unreachable, match="connection was closed"):
                await asked

    runs(test())


def test_unread_stream_applies_backpressure(runs: Runs) -> None:
    sent = 0
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

    async def endlessly(_: Server, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(piece)
            await writer.drain()
            sent += 1

    server = Server(endlessly)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            stream = client.stream("/log")
            assert (await anext(stream))[:1] == b"x"
            before = -1
            while sent > before:
                before = sent
                await asyncio.sleep(0.3)
            # The rest waits in the sockets' own buffers.
            assert sent < 1000
            for _ in range(2000):
                await anext(stream)
            assert sent > before
            await stream.aclose()

    runs(test())


def test_read_refuses_answer_that_inflates_beyond_bound(runs: Runs) -> None:
    bomb = zlib.compressobj(wbits=31)
    packed = b"".join([*(bomb.compress(b"\0" * 2**20) for _ in range(80)), bomb.flush()])
    server = says(answer(200, packed, "content-encoding: gzip"))

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            with pytest.raises(Unreachable, match="the response has more than 16777216 bytes"):
                await client.get(JOB)

    runs(test())


def test_a_token_with_a_line_break_is_not_sent(runs: Runs) -> None:
    server = says(answer(200, b"{}"))
    smuggled = FixedCredential(Credential("Bearer t\r\nImpersonate-User: root"))

    async def test() -> None:
        async with talking_to(None, smuggled, serve=server.serve) as client:
            with pytest.raises(Unauthorized, match="Authorization must not contain a line break"):
                await client.get(JOB)
        assert not server.heads

    runs(test())


def test_an_answer_before_the_request_was_read_is_taken(runs: Runs) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(413, b"too large"))
        await writer.drain()
        # Enough for the client to read it; then the rest is refused.
        await asyncio.sleep(0.2)
        writer.transport.abort()

    async def test() -> None:
        async with talking_to(None, serve=serve) as client:
            with pytest.raises(Exception, match="too large"):
                await client.write(Patch(JOB, b"x" * 2**24))

    runs(test())


def test_requests_without_tls_name_the_whole_address_to_a_proxy(runs: Runs) -> None:
    proxy = says(answer(200, b"{}"))

    async def test() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = Transport(
            Route("http://api.test:8080", None, proxy=f"http://a%40b:c@127.0.0.1:{port}"), ()
        )
        async with server, await transport.request("GET", "/x?y=z", (), b"", 10) as response:
            assert await response.read() == b"{}"
            await transport.close()
        lines = proxy.heads[0].split("\r\n")
        assert lines[0] == "GET http://api.test:8080/x?y=z HTTP/1.1"
        assert "Host: api.test:8080" in lines
        user = base64.b64encode(b"a@b:c").decode()
        assert f"Proxy-Authorization: Basic {user}" in lines

    runs(test())


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        ("socks5://127.0.0.1:1", "unsupported proxy scheme socks5://"),
        ("http://:80", "contains no host"),
    ],
)
def test_proxies_that_cannot_be_used_are_named(runs: Runs, proxy: str, message: str) -> None:
    async def test() -> None:
        transport = Transport(Route("http://api.test", None, proxy=proxy), ())
        with pytest.raises(OSError, match=message):
            await transport.request("GET", "/", (), b"", 10)

    runs(test())


def test_a_proxy_that_refuses_is_named(runs: Runs) -> None:
    proxy = says(answer(407, b"who are you?"))

    async def test() -> None:
        import ssl

        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        route = Route(
            "https://api.test", ssl.create_default_context(), proxy=f"http://127.0.0.1:{port}"
        )
        async with server:
            with pytest.raises(BrokenResponse, match="the proxy responded with 407"):
                await Transport(route, ()).request("GET", "/", (), b"", 10)
        assert proxy.heads[0].startswith("CONNECT api.test:443 HTTP/1.1\r\n")

    runs(test())


def test_connections_do_not_pile_up(runs: Runs) -> None:
    server = says(answer(200, b"{}"), close=True)

    async def test() -> None:
        async with talking_to(None, serve=server.serve) as client:
            for _ in range(20):
                await client.get(JOB)
            await asyncio.sleep(0.1)
            assert open_connections(client) == 0

    runs(test())


def open_connections(client: HttpClient) -> int:
    return sum(len(transport._connections) for transport in client._transports.values())
