"""HTTPS client with difficult servers: refusals, retries, lost connections."""

import asyncio
import json
from random import Random

import pytest

from onejob.client.answers import Unreachable
from onejob.client.base import Create, Delete, Patch, Selection, WatchEvent, Written
from onejob.client.credentials import Credential
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, Conflict, Expired, Unauthorized
from tests.client.http_support import ANYONE, answer, status, talking_to

JOB = Key("jobs.batch", "ns", "a")


class Renewable:
    """Credential source whose first credential is stale."""

    def __init__(self) -> None:
        self.renewals = 0

    async def current(self) -> Credential:
        return Credential(f"Bearer {self.renewals}")

    async def renewed(self, refused: Credential) -> Credential | None:
        self.renewals += 1
        return await self.current()


async def test_a_refused_credential_is_renewed_and_the_request_sent_again() -> None:
    seen: list[str] = []

    async def handler(head: str, writer: asyncio.StreamWriter) -> None:
        token = next(line for line in head.split("\r\n") if line.startswith("Authorization"))
        seen.append(token)
        good = token.endswith("Bearer 1")
        writer.write(answer(200, b"{}") if good else answer(401, status(401, "Unauthorized")))

    async with talking_to(handler, Renewable()) as client:
        assert await client.get(JOB) == b"{}"
    assert seen == ["Authorization: Bearer 0", "Authorization: Bearer 1"]


async def test_a_credential_is_renewed_once_only() -> None:
    source = Renewable()

    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(401, status(401, "Unauthorized")))

    async with talking_to(handler, source) as client:
        with pytest.raises(Unauthorized):
            await client.get(JOB)
    assert source.renewals == 1


async def test_client_honours_retry_after() -> None:
    answers = [answer(429, b"slow down", "retry-after: 0"), answer(200, b"{}")]

    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))

    async with talking_to(handler) as client:
        await client.write(Patch(JOB, b"{}"))
    assert answers == []


async def test_a_busy_server_is_not_asked_for_ever() -> None:
    count = 0

    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        writer.write(answer(429, status(429, "TooManyRequests"), "retry-after: 0"))

    async with talking_to(handler) as client:
        with pytest.raises(ApiError) as raised:
            await client.write(Delete(JOB))
        assert raised.value.code == 429
    assert count == 5


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [
        (502, b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (503, b"", "the server responded with HTTP status 503"),
        (500, b"[1]", "the server responded with HTTP status 500"),
    ],
)
async def test_answers_that_are_no_status_are_still_errors(
    code: int, body: bytes, message: str
) -> None:
    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(code, body))

    async with talking_to(handler) as client:
        with pytest.raises(ApiError) as raised:
            await client.get(JOB)
        assert (raised.value.code, raised.value.message) == (code, message)


async def test_a_success_that_is_no_document_is_an_error_too() -> None:
    async def handler(head: str, writer: asyncio.StreamWriter) -> None:
        page = b"<html>please log in</html>\n"
        writer.write(chunked(page) + b"0\r\n\r\n" if "watch" in head else answer(200, page))

    async with talking_to(handler) as client:
        with pytest.raises(Unreachable, match="not from an API server"):
            await client.list(Selection("jobs.batch"))
        with pytest.raises(Unreachable):
            await client.write(Delete(JOB))
        with pytest.raises(Unreachable):
            await watch_all(client)


async def test_no_answer_is_an_api_error() -> None:
    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with talking_to(handler) as client:
        with pytest.raises(Unreachable):
            await client.write(Patch(JOB, b"{}"))
        results = await client.write_many([Patch(JOB, b"{}"), Delete(JOB)])
        assert [type(result) for result in results] == [Unreachable, Unreachable]
    nobody = HttpClient(Connection("http://127.0.0.1:1", ANYONE), rng=Random(1))
    with pytest.raises(Unreachable):
        await nobody.get(JOB)
    await nobody.close()


async def test_writes_of_one_object_wait_for_each_other_and_for_no_other() -> None:
    under_way: list[str] = []
    most = {"of one": 0, "of all": 0}

    async def handler(head: str, writer: asyncio.StreamWriter) -> None:
        path = head.split()[1]
        under_way.append(path)
        most["of one"] = max(most["of one"], under_way.count(path))
        most["of all"] = max(most["of all"], len(under_way))
        await asyncio.sleep(0.01)
        under_way.remove(path)
        body = json.dumps({"metadata": {"name": "a", "resourceVersion": "7"}}).encode()
        writer.write(answer(200, body))

    async with talking_to(handler) as client:
        names = ("a", "b", "c") * 4
        results = await client.write_many(
            [Patch(Key("jobs.batch", "ns", name), b"{}") for name in names]
        )
        assert all(isinstance(result, Written) for result in results)
    assert most == {"of one": 1, "of all": 3}


def event(type_: str, **object_: object) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


async def watch_all(client: HttpClient) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async for batch in client.watch(Selection("jobs.batch"), after=1):
        found += batch
    return found


META = {"name": "a", "namespace": "ns", "resourceVersion": "5"}


def chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


async def test_events_may_be_cut_anywhere() -> None:
    lines = event("ADDED", metadata=META) + event("MODIFIED", metadata={**META, "name": "b"})

    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        for position in range(0, len(lines), 7):
            piece = chunked(lines[position : position + 7])
            writer.write(piece if position == 0 else piece.partition(b"\r\n\r\n")[2])
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    async with talking_to(handler) as client:
        found = await watch_all(client)
    assert [(e.type, e.key.name, e.revision) for e in found] == [
        ("ADDED", "a", 5),
        ("MODIFIED", "b", 5),
    ]


async def test_a_lost_connection_ends_a_watch_normally() -> None:
    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(event("ADDED", metadata=META) + b'{"type":"MOD'))
        await writer.drain()
        writer.close()

    async with talking_to(handler) as client:
        assert [e.type for e in await watch_all(client)] == ["ADDED"]


@pytest.mark.parametrize("reason", ["Expired", "Gone"])
@pytest.mark.parametrize("in_stream", [True, False])
async def test_compacted_history_is_expired_for_all_error_forms(
    reason: str, in_stream: bool
) -> None:
    gone = status(410, reason)

    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        line = b'{"type":"ERROR","object":%s}\n' % gone
        bookmark = event("BOOKMARK", metadata={"resourceVersion": "9"})
        stream = chunked(bookmark + line) + b"0\r\n\r\n"
        writer.write(stream if in_stream else answer(410, gone))

    async with talking_to(handler) as client:
        with pytest.raises(Expired):
            await watch_all(client)


async def test_bookmarks_carry_only_their_revision() -> None:
    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(event("BOOKMARK", metadata={"resourceVersion": "9"})) + b"0\r\n\r\n")

    async with talking_to(handler) as client:
        assert await watch_all(client) == [WatchEvent("BOOKMARK", Key("", "", ""), 9, b"")]


class Fence:
    """Fence that lets a number of writes through."""

    def __init__(self, writes: int, seconds: float = 5.0) -> None:
        self.left = writes
        self._seconds = seconds

    def seconds(self) -> float:
        if not self.left:
            raise Conflict("no longer ours")
        self.left -= 1
        return self._seconds


async def test_every_write_needs_a_permit_and_no_reading_does() -> None:
    seen: list[str] = []

    async def handler(head: str, writer: asyncio.StreamWriter) -> None:
        seen.append(head.split()[0])
        writer.write(answer(200, b"{}"))

    async with talking_to(handler, permit=Fence(2)) as client:
        results = await client.write_many([Patch(JOB, b"{}")] * 3)
        assert [type(result) for result in results] == [Written, Written, Conflict]
        with pytest.raises(Conflict, match="no longer ours"):
            await client.write(Create("pods", "ns", b'{"metadata":{"generateName":"a-"}}'))
        await client.get(JOB)
    assert seen == ["PATCH", "PATCH", "GET"]


async def test_a_busy_server_does_not_make_a_write_outlive_its_permit() -> None:
    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(429, status(429, "TooManyRequests"), "retry-after: 0"))

    async with talking_to(handler, permit=Fence(3)) as client:
        with pytest.raises(Conflict, match="no longer ours"):
            await client.write(Patch(JOB, b"{}"))


async def test_a_write_takes_no_longer_than_its_permit() -> None:
    given_up, closed = asyncio.Event(), asyncio.Event()

    async def handler(_: str, writer: asyncio.StreamWriter) -> None:
        await given_up.wait()
        writer.close()
        closed.set()

    async with talking_to(handler, permit=Fence(1, seconds=0.05)) as client:
        with pytest.raises(Unreachable):
            await client.write(Patch(JOB, b"{}"))
        await client.no_writes()
        given_up.set()
        await closed.wait()


async def test_requests_wait_for_their_turn() -> None:
    turns: list[int] = []

    class Pace:
        async def turn(self, batch: int) -> None:
            turns.append(batch)

    async def handler(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked() + b"0\r\n\r\n" if "watch" in head else answer(200, b"{}"))

    async with talking_to(handler, pace=Pace()) as client:
        await client.get(JOB)
        await client.write_many([Patch(JOB, b"{}")] * 3)
        assert await watch_all(client) == []
    assert turns == [1, 3, 3, 3, 1]


class SlowSource:
    """Credential source that takes so long that the permit has expired by then."""

    def __init__(self, fence: Fence, *, stale: bool) -> None:
        self._fence = fence
        self._stale = stale

    async def current(self) -> Credential:
        if not self._stale:
            self._fence.left = 0
        return Credential("Bearer stale")

    async def renewed(self, refused: Credential) -> Credential | None:
        self._fence.left = 0
        return Credential("Bearer new")


@pytest.mark.parametrize("stale", [False, True])
async def test_a_permit_counts_when_a_write_is_sent_not_when_a_credential_is_asked_for(
    stale: bool,
) -> None:
    fence = Fence(5)
    seen: list[str] = []

    async def handler(head: str, writer: asyncio.StreamWriter) -> None:
        seen.append(head.split()[0])
        writer.write(answer(401, status(401, "Unauthorized")))

    async with talking_to(handler, SlowSource(fence, stale=stale), permit=fence) as client:
        with pytest.raises(Conflict, match="no longer ours"):
            await client.write(Patch(JOB, b"{}"))
    assert len(seen) == int(stale)
