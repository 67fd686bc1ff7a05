"""Targets with huge, malformed or endless responses: they cost a bounded amount of work."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from functools import cache
from random import Random

import msgspec
import pytest

from onejob.client.answers import UNTRUSTED, Unreachable
from onejob.client.base import Selection
from onejob.client.credentials import Credential, FixedCredential
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection
from onejob.clock import SystemClock
from onejob.controllers.mirror.intake import CountedClient, Intake
from onejob.controllers.mirror.remote import Remote
from onejob.objects.meta import JOBS, PODS
from onejob.wire.errors import Expired
from tests.client.http_support import answer

MEBIBYTE = 2**20
#: Gets the request's target, returns the bytes of the response.
Script = Callable[[str], bytes]
EMPTY = b'{"kind":"List","metadata":{"resourceVersion":"5"},"items":[]}'


@cache
def bomb(mebibytes: int) -> bytes:
    packing = zlib.compressobj(level=1, wbits=31)
    pieces = [packing.compress(b" " * MEBIBYTE) for _ in range(mebibytes)]
    return b"".join([*pieces, packing.flush()])


class Target:
    """A Remote, connected to a server with scripted responses."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[str] = []
        self.remote: Remote

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head.split()[1])
                writer.write(self._script(self.requests[-1]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def run(self, test: "Callable[[Target], Awaitable[None]]") -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            credentials = FixedCredential(Credential("Bearer t"))
            self.remote = Remote(
                "target",
                "default",
                Connection(f"http://127.0.0.1:{port}", credentials),
                clock=SystemClock(),
                connect=lambda at: HttpClient(at, rng=Random(1), limits=UNTRUSTED),
                wake=lambda origin: None,
                intake=Intake(),
            )
            try:
                async with asyncio.timeout(120):
                    await test(self)
            finally:
                await self.remote.close()
                server.close()

        asyncio.run(serve())


GARBAGE = {
    "bomb": answer(200, bomb(100), "content-encoding: gzip"),
    "not gzip": answer(200, b"x" * 100, "content-encoding: gzip"),
    "too long": answer(200, b" " * (5 * MEBIBYTE)),
    "too many values": answer(200, b'{"metadata":{"uid":"u"},"x":[' + b"[]," * 150_000 + b"0]}"),
    "no JSON": answer(200, b"<html>"),
    "no object": answer(200, b"[1]"),
    "no UID": answer(200, b'{"metadata":{"name":"a"}}'),
    "metadata of wrong types": answer(200, b'{"metadata":{"uid":5,"labels":[1]}}'),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_remote_backs_off_after_garbage(kind: str) -> None:
    target = Target(lambda path: GARBAGE[kind])

    async def ask_twice(target: Target) -> None:
        for attempt in (1, 2):
            with pytest.raises(Unreachable):
                await target.remote.job("a")
            assert target.remote.health.attempts == 1
            assert target.remote.health.reason == "Unreachable"
            assert len(target.requests) == attempt
        # The controller sends no request before that.
        assert target.remote.health.next_try > SystemClock().monotonic()

    target.run(ask_twice)


@pytest.mark.parametrize("part", ["5", '"x"', '{"metadata":5}', "[]"])
def test_list_of_garbage_is_unreachable(part: str) -> None:
    body = EMPTY.replace(b"[]", b"[%s]" % part.encode())

    async def ask(target: Target) -> None:
        with pytest.raises(Unreachable):
            await target.remote.pods_of("o")

    Target(lambda path: answer(200, body)).run(ask)


def test_list_of_too_many_items_is_refused_before_it_is_decoded() -> None:
    body = EMPTY.replace(b"[]", b"[" + b"0," * 300_000 + b"0]")

    async def ask(target: Target) -> None:
        with pytest.raises(Unreachable, match="more than 200000 values"):
            await target.remote.pods_of("o")

    Target(lambda path: answer(200, body)).run(ask)


def test_inflating_yields_to_event_loop() -> None:
    packing = zlib.compressobj(level=1, wbits=31)
    packed = packing.compress(EMPTY[:-1] + b" " * 15 * MEBIBYTE + b"}") + packing.flush()
    turns = 0

    async def ask(target: Target) -> None:
        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        assert await target.remote.pods_of("o") == []
        counting.cancel()

    Target(lambda path: answer(200, packed, "content-encoding: gzip")).run(ask)
    assert turns >= 30


WATCHES = {
    "closed at once": answer(200, b""),
    "no JSON": answer(200, b"garbage\n" * 10),
    "not gzip": answer(200, b"x" * 100, "content-encoding: gzip"),
    "bomb": answer(200, bomb(100), "content-encoding: gzip"),
    "a line without end": answer(200, b"x" * (5 * MEBIBYTE)),
    "status of wrong types": answer(
        200, b'{"type":"ERROR","object":{"code":"x","details":[],"message":{}}}\n'
    ),
    "no status": answer(200, b'{"type":"ERROR","object":[]}\n'),
    "an object of wrong types": answer(200, b'{"type":"ADDED","object":{"metadata":{"uid":5}}}\n'),
}


@pytest.mark.parametrize("kind", WATCHES)
def test_informers_of_remote_back_off_after_garbage(kind: str) -> None:
    target = Target(lambda path: WATCHES[kind] if "watch=" in path else answer(200, EMPTY))

    async def watch_for_a_while(target: Target) -> None:
        target.remote.start()
        await asyncio.sleep(2)
        # Three informers; attempts after 50, 100, 200, ... ms, or twice as many with a new list.
        assert 3 <= len(target.requests) <= 60
        # None of them has ended by an exception.
        assert not any(task.done() for task in target.remote._tasks)

    target.run(watch_for_a_while)


# --- the budget of all targets ------------------------------------------------------------------


class Flood:
    """Client with lists of `pages` pages of one MiB, and an endless watch of such events."""

    def __init__(self, pages: int) -> None:
        self.pages = pages

    def target(self) -> Target:
        document = msgspec.json.encode({"metadata": {"uid": "u"}, "x": "x" * MEBIBYTE})
        event = b'{"type":"ADDED","object":' + document + b"}\n"
        head = b'{"metadata":{"resourceVersion":"5","continue":"%s"},"items":['

        def script(path: str) -> bytes:
            if "watch=" in path:
                return answer(200, event * 10)
            page = int(path.partition("continue=")[2].partition("&")[0] or 0) + 1
            token = b"%d" % page if page < self.pages else b""
            return answer(200, head % token + document + b"]}")

        return Target(script)


async def all_pages(client: CountedClient) -> None:
    page = await client.list(Selection(PODS))
    while page.continue_token:
        page = await client.list(Selection(PODS), token=page.continue_token)


def test_intake_refuses_list_beyond_budget() -> None:
    async def list_all(target: Target) -> None:
        client = Intake(10 * MEBIBYTE).counted(target.remote._client)
        with pytest.raises(Unreachable, match="too much memory"):
            await all_pages(client)
        assert len(target.requests) == 10
        # A new list starts from zero.
        await client.list(Selection(PODS))
        assert client.held_bytes < 2 * MEBIBYTE

    Flood(pages=1000).target().run(list_all)


def test_intake_ends_watch_beyond_budget() -> None:
    async def watch(target: Target) -> None:
        client = Intake(5 * MEBIBYTE).counted(target.remote._client)
        batches = client.watch(Selection(JOBS), after=5)
        with pytest.raises(Expired, match="too much memory"):
            [batch async for batch in batches]
        assert client.held_bytes < 8 * MEBIBYTE

    Flood(pages=1).target().run(watch)


def test_intake_leaves_share_to_each_target() -> None:
    async def list_some(target: Target) -> None:
        intake = Intake(10 * MEBIBYTE)
        greedy = intake.counted(target.remote._client)
        modest = intake.counted(target.remote._client)
        with pytest.raises(Unreachable):
            await all_pages(greedy)
        page = await modest.list(Selection(PODS))
        for _ in range(3):
            page = await modest.list(Selection(PODS), token=page.continue_token)
        greedy.stop()
        for _ in range(5):
            page = await modest.list(Selection(PODS), token=page.continue_token)

    Flood(pages=1000).target().run(list_some)
