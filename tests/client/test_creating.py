"""Creates with a lost response: resolved by reading, and never carried out twice."""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from onejob.client.answers import Unreachable
from onejob.client.base import Create
from onejob.client.http import HttpClient
from onejob.client.naming import matches_sent, with_chosen_name
from onejob.wire.errors import AlreadyExists, Forbidden
from tests.client.http_support import ANYONE, answer, status, talking_to

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "generateName": "job-3-",
        "annotations": {"index": "3"},
        "ownerReferences": [{"uid": "u1", "controller": True}],
    },
    "spec": {"containers": []},
}
CREATE = Create("pods", "ns", json.dumps(POD).encode())


def test_a_name_is_made_as_the_server_makes_it() -> None:
    document, name = with_chosen_name(CREATE.document, Random(1))
    assert name.startswith("job-3-")
    assert len(name) == len("job-3-") + 5
    assert json.loads(document) == {**POD, "metadata": {**POD["metadata"], "name": name}}  # type: ignore[dict-item]
    long = json.dumps({"metadata": {"generateName": "x" * 100}}).encode()
    assert len(with_chosen_name(long, Random(1))[1]) == 63


@pytest.mark.parametrize("metadata", [{"name": "a"}, {"name": "a", "generateName": "b-"}, {}])
def test_a_name_that_is_there_is_kept(metadata: dict[str, str]) -> None:
    document = json.dumps({"metadata": metadata}).encode()
    assert with_chosen_name(document, Random(1)) == (document, metadata.get("name", ""))


def test_another_object_of_the_same_name_is_not_ours() -> None:
    sent, _ = with_chosen_name(CREATE.document, Random(1))
    stored = json.loads(sent)
    stored["metadata"] |= {"uid": "x", "annotations": {"index": "3", "added": "later"}}
    assert matches_sent(json.dumps(stored).encode(), sent)
    changes: list[dict[str, Any]] = [
        {"annotations": {"index": "4"}},
        {"ownerReferences": []},
        {"generateName": ""},
    ]
    for change in changes:
        other = {**stored, "metadata": {**stored["metadata"], **change}}
        assert not matches_sent(json.dumps(other).encode(), sent)


class Server:
    """Server that stores posted objects, and responds as the test says."""

    def __init__(self, behave: Callable[["Server", str], str], failing_gets: int = 0) -> None:
        self._behave = behave
        self._failing_gets = failing_gets
        self.stored: dict[str, dict[str, Any]] = {}
        self.posts: list[str] = []
        self.gets = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                body = b""
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        body = await reader.readexactly(int(line.partition(":")[2]))
                reply = self._reply(head.split()[0], head.split()[1], body)
                if reply is None:
                    writer.close()
                    return
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _reply(self, method: str, target: str, body: bytes) -> bytes | None:
        if method == "GET":
            self.gets += 1
            if self.gets <= self._failing_gets:
                return answer(500, status(500, "InternalError"))
            found = self.stored.get(target.rpartition("/")[2])
            if found is None:
                return answer(404, status(404, "NotFound"))
            return answer(200, json.dumps(found).encode())
        document = json.loads(body)
        name = document["metadata"]["name"]
        self.posts.append(name)
        match self._behave(self, name):
            case "refuse":
                return answer(403, status(403, "Forbidden"))
            case "lose request":
                return None
            case "lose answer":
                self._store(name, document)
                return None
            case "time out":
                self._store(name, document)
                return answer(504, status(504, "Timeout"))
            case "500" | "502" | "503" as code:
                self._store(name, document)
                return answer(int(code), status(int(code), "InternalError"))
            case "taken":
                return answer(409, status(409, "AlreadyExists"))
            case _ if name in self.stored:
                return answer(409, status(409, "AlreadyExists"))
            case _:
                self._store(name, document)
                return answer(201, json.dumps(self.stored[name]).encode())

    def _store(self, name: str, document: dict[str, Any]) -> None:
        document["metadata"]["resourceVersion"] = "7"
        self.stored[name] = document


async def with_server(server: Server, test: Callable[[HttpClient], Any]) -> None:
    async with talking_to(None, ANYONE, serve=server.serve) as client:
        await test(client)


@pytest.mark.parametrize("loss", ["lose answer", "time out", "500", "502", "503"])
async def test_a_create_that_was_carried_out_is_found_and_not_sent_again(loss: str) -> None:
    server = Server(lambda server, name: loss)

    async def test(client: HttpClient) -> None:
        written = await client.write(CREATE)
        assert written.revision == 7
        assert json.loads(written.document)["metadata"]["name"] in server.stored

    await with_server(server, test)
    assert len(server.posts) == len(server.stored) == 1
    assert server.gets == 1


async def test_a_create_that_was_lost_is_sent_again_under_the_same_name() -> None:
    server = Server(lambda server, name: "lose request" if len(server.posts) < 3 else "")

    async def test(client: HttpClient) -> None:
        await client.write(CREATE)

    await with_server(server, test)
    assert len(server.posts) == 3
    assert list(server.stored) == [server.posts[0]] == list(set(server.posts))


async def test_a_create_that_lands_late_is_found_too() -> None:
    def behave(server: Server, name: str) -> str:
        if len(server.posts) == 1:
            return "lose request"
        # The first one arrives only now, before the second is processed.
        server._store(name, json.loads(with_name(name)))
        return ""

    server = Server(behave)

    async def test(client: HttpClient) -> None:
        assert (await client.write(CREATE)).revision == 7

    await with_server(server, test)
    assert len(set(server.posts)) == len(server.stored) == 1


def with_name(name: str) -> bytes:
    return json.dumps({**POD, "metadata": {**POD["metadata"], "name": name}}).encode()  # type: ignore[dict-item]


async def test_a_name_that_is_taken_is_replaced_by_another() -> None:
    server = Server(lambda server, name: "taken" if len(server.posts) < 3 else "")

    async def test(client: HttpClient) -> None:
        await client.write(CREATE)

    await with_server(server, test)
    assert len(set(server.posts)) == 3


async def test_a_given_name_that_is_taken_is_an_error() -> None:
    server = Server(lambda server, name: "taken")

    async def test(client: HttpClient) -> None:
        with pytest.raises(AlreadyExists):
            await client.write(Create("pods", "ns", with_name("a")))

    await with_server(server, test)
    assert server.posts == ["a"]


async def test_unanswered_creation_of_fixed_name_fails() -> None:
    server = Server(lambda server, name: "lose answer")

    async def test(client: HttpClient) -> None:
        with pytest.raises(Unreachable):
            await client.write(Create("pods", "ns", with_name("a")))

    await with_server(server, test)
    assert (server.posts, server.gets) == (["a"], 0)


async def test_a_refusal_is_final() -> None:
    server = Server(lambda server, name: "refuse")

    async def test(client: HttpClient) -> None:
        with pytest.raises(Forbidden):
            await client.write(CREATE)

    await with_server(server, test)
    assert len(server.posts) == 1


async def test_create_looks_again_when_the_lookup_fails_with_500() -> None:
    server = Server(lambda server, name: "500", failing_gets=2)

    async def test(client: HttpClient) -> None:
        assert (await client.write(CREATE)).revision == 7

    await with_server(server, test)
    assert (len(server.posts), server.gets) == (1, 3)


async def test_create_takes_another_name_when_a_lost_request_finds_a_foreign_object() -> None:
    """The object under the chosen name has another owner: another client chose the same name."""

    def behave(server: Server, name: str) -> str:
        if len(server.posts) == 1:
            foreign = json.loads(with_name(name))
            foreign["metadata"]["ownerReferences"] = [{"uid": "u2", "controller": True}]
            server._store(name, foreign)
            return "lose request"
        return ""

    server = Server(behave)

    async def test(client: HttpClient) -> None:
        metadata = json.loads((await client.write(CREATE)).document)["metadata"]
        assert metadata["name"] == server.posts[-1] != server.posts[0]
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == ["u1"]

    await with_server(server, test)
    assert len(server.stored) == 2


async def test_creation_with_unknown_outcome_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.client.http._CREATE_TRIES", 2)
    server = Server(lambda server, name: "lose request")

    async def test(client: HttpClient) -> None:
        with pytest.raises(Unreachable):
            await client.write(CREATE)

    await with_server(server, test)
    assert len(server.posts) == 2
