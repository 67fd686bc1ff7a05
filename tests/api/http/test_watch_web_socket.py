"""Watches over a real WebSocket, as fabric8's Java client opens them."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from onejob.api.access.authorization import AllowAuthenticated, Attributes, Decision
from onejob.api.schema.protobuf_encoding import encode_event
from onejob.objects.meta import Key
from onejob.wire.errors import Expired
from onejob.wire.requests import User, WatchEvent
from tests.api.http.exec_sessions_support import session
from tests.api.http.http_support import JOBS, added, job
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import TOKEN, Wire, with_server

WATCH = f"{JOBS}?watch=true"


@asynccontextmanager
async def watching(
    wire: Wire, target: str = WATCH, *, protocols: Sequence[str] = (), **headers: str
) -> AsyncIterator[ClientConnection]:
    address = wire.server.url.replace("https", "wss") + target
    async with connect(
        address,
        ssl=ssl.create_default_context(cafile=str(wire.certificates.authority)),
        subprotocols=[Subprotocol(name) for name in protocols] or None,
        additional_headers={"authorization": f"Bearer {TOKEN}", **headers},
        max_size=None,
        # Ignore proxies of the environment.
        proxy=None,
    ) as socket:
        yield socket


async def refusal(wire: Wire, target: str = WATCH, **extra: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with watching(wire, target, **extra):
            pass
    return caught.value.response.status_code


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_watch_web_socket_sends_one_text_frame_per_event(tmp_path: Path, loop: Any) -> None:
    service = ScriptedService()
    service.events = [[added("a"), added("b")], [added("c")]]

    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            for name in "abc":
                text = await socket.recv()
                assert isinstance(text, str)
                assert text == f'{{"type":"ADDED","object":{job(name).decode()}}}\n'

    with_server(service, tmp_path, test, loop=loop)


@pytest.mark.parametrize(
    "path", ["/apis/batch/v1/watch/namespaces/default/jobs", f"{JOBS}?watch=1", f"{JOBS}?watch"]
)
def test_watch_web_socket_is_served_on_every_path_of_a_watch(tmp_path: Path, path: str) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        async with session(wire, path, None) as socket:
            assert (await socket.receive_json())["object"]["metadata"]["name"] == "a"

    with_server(service, tmp_path, test)


def test_watch_web_socket_sends_a_large_object_as_one_message(tmp_path: Path) -> None:
    large = WatchEvent("MODIFIED", Key("jobs.batch", "default", "l"), 5, job("l", 3_000_000))
    service = ScriptedService()
    service.events = [[added("a"), large, added("b")]]

    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            received = [json.loads(await socket.recv()) for _ in range(3)]
        assert [event["object"]["metadata"]["name"] for event in received] == ["a", "l", "b"]
        assert len(received[1]["object"]["spec"]["filler"]) == 3_000_000

    with_server(service, tmp_path, test)


def test_watch_web_socket_sends_protobuf_in_binary_frames_without_lengths(tmp_path: Path) -> None:
    service = ScriptedService()
    event = added("a")
    service.events = [[event]]

    async def test(wire: Wire) -> None:
        accept = "application/vnd.kubernetes.protobuf;stream=watch"
        async with watching(wire, accept=accept) as socket:
            assert await socket.recv() == encode_event("ADDED", event.document)

    with_server(service, tmp_path, test)


def test_watch_web_socket_sends_metadata_only_when_it_is_asked_for(tmp_path: Path) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        async with watching(wire, accept=accept) as socket:
            received = json.loads(await socket.recv())
        assert received["object"]["kind"] == "PartialObjectMetadata"
        assert "spec" not in received["object"]

    with_server(service, tmp_path, test)


def test_watch_web_socket_has_the_only_subprotocol_that_is_offered(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        async with watching(wire, protocols=["anything.example"]) as socket:
            assert socket.subprotocol == "anything.example"
        async with watching(wire) as socket:
            assert socket.subprotocol is None
        assert await refusal(wire, protocols=["one.example", "two.example"]) == 400

    with_server(ScriptedService(), tmp_path, test)


def test_watch_web_socket_ignores_messages_and_answers_pings(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            await socket.send("hello")
            await socket.send(b"x" * 100_000)
            async with asyncio.timeout(30):
                await (await socket.ping())

    with_server(ScriptedService(), tmp_path, test)


def test_watch_web_socket_does_not_compress(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            assert socket.response is not None
            assert "Sec-WebSocket-Extensions" not in socket.response.headers

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize("abruptly", [False, True])
def test_watch_web_socket_ends_the_watch_when_its_client_leaves(
    tmp_path: Path, *, abruptly: bool
) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            await socket.recv()
            assert service.open_watches == 1
            if abruptly:
                socket.transport.abort()
        async with asyncio.timeout(30):
            await service.no_watches.wait()

    with_server(service, tmp_path, test)


class Finite(ScriptedService):
    """Service whose watches end by timeout or by an error."""

    error: Exception | None = None

    async def watch(self, *_: object) -> AsyncGenerator[Sequence[WatchEvent], None]:
        yield [added("a")]
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, Expired("too old resource version: 1 (2)")])
def test_watch_web_socket_closes_normally_when_the_watch_ends(
    tmp_path: Path, error: Exception | None
) -> None:
    service = Finite()
    service.error = error

    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            events = [json.loads(text) async for text in socket]
            assert [event["type"] for event in events] == ["ADDED", "ERROR"][: len(events)]
            assert len(events) == (2 if error else 1)
            if error:
                assert (events[1]["object"]["kind"], events[1]["object"]["code"]) == ("Status", 410)
            assert socket.close_code == 1000

    with_server(service, tmp_path, test)


def test_watch_web_socket_closes_with_1012_when_the_server_stops(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            stopping = asyncio.ensure_future(wire.server.stop())
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1012
            await stopping

    with_server(ScriptedService(), tmp_path, test)


def test_watch_web_socket_that_is_refused_has_the_answer_of_a_watch(tmp_path: Path) -> None:
    service = ScriptedService()
    service.failure = Expired("too old resource version: 1 (2)")

    async def test(wire: Wire) -> None:
        assert await refusal(wire) == 410
        assert await refusal(wire, authorization="Bearer wrong") == 401
        assert await refusal(wire, accept="image/png") == 406
        # Neither a list nor a single object is a stream.
        assert await refusal(wire, JOBS) == 400
        assert await refusal(wire, f"{JOBS}/a?watch=true") == 400

    with_server(service, tmp_path, test)


class NoWatches(AllowAuthenticated):
    def authorize(self, user: User, attributes: Attributes) -> Decision:
        return Decision(attributes.verb != "watch")


def test_watch_web_socket_requires_the_verb_watch(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        assert await refusal(wire) == 403

    with_server(ScriptedService(), tmp_path, test, authorizer=NoWatches())


def test_watch_web_socket_opens_with_a_token_and_a_foreign_origin(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        async with watching(wire, origin=Origin("http://localhost")):
            pass

    with_server(ScriptedService(), tmp_path, test)


def test_watch_web_socket_counts_as_a_long_running_watch(tmp_path: Path) -> None:
    sample = 'apiserver_longrunning_requests{verb="WATCH",resource="jobs"}'
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        async with watching(wire) as socket:
            await socket.recv()
            assert f"{sample} 1" in wire.metrics.exposition()
        for _ in range(3000):
            if f"{sample} 0" in wire.metrics.exposition():
                return
            await asyncio.sleep(0.01)
        pytest.fail("it still counts")

    with_server(service, tmp_path, test)


def test_watch_is_not_upgraded_to_spdy(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", WATCH, connection="Upgrade", upgrade="SPDY/3.1")
        assert reply.code == 400

    with_server(ScriptedService(), tmp_path, test)


def test_watch_web_socket_of_a_client_that_does_not_read_holds_up_its_watch(
    tmp_path: Path,
) -> None:
    sent = 0

    class Torrent(ScriptedService):
        async def watch(self, *_: object) -> AsyncGenerator[Sequence[WatchEvent], None]:
            nonlocal sent
            while True:
                yield [added("a" * 10_000)]
                sent += 1
                await asyncio.sleep(0)

    async def test(wire: Wire) -> None:
        tls = ssl.create_default_context(cafile=str(wire.certificates.authority))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as http:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with http.ws_connect(wire.server.url + WATCH, headers=headers) as socket:
                assert socket._response.connection is not None
                transport = socket._response.connection.transport
                assert transport is not None
                transport.pause_reading()
                before = -1
                while before != sent:
                    before = sent
                    await asyncio.sleep(0.5)
                assert 0 < sent < 10_000
                transport.abort()

    with_server(Torrent(), tmp_path, test)
