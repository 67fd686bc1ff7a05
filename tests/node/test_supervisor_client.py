"""The server's end of the supervisor protocol, with a fake supervisor."""

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onejob.node.process.supervisor_client import (
    OUTDATED_SUPERVISOR_MESSAGE,
    Conversation,
    SupervisorClient,
    SupervisorGone,
    reach_by_socket,
)
from onejob.node.runtime import Started, Starting
from onejob.objects.meta import Key
from tests.node.support import process_runtime

GREETING = {"known": [], "rebooted": False, "isolates": True}


class Impostor:
    """Fake supervisor that sends a text to each client, and ignores requests to end."""

    def __init__(self, path: Path, said: bytes) -> None:
        self._path = path
        self._said = said
        self.heard: list[Any] = []
        self.asked: list[str] = []
        self.news = asyncio.Event()
        self._left = asyncio.Event()

    async def meet(self, scene: Callable[[SupervisorClient], Awaitable[None]]) -> None:
        client = SupervisorClient(
            self._path, owner=True, on_events=self._hear, on_lost=lambda: None
        )
        async with self.there():
            handshake = await client.connect()
            assert (handshake.isolates, handshake.folders) == (True, {})
            assert self.heard == []
            await scene(client)

    @asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        """Serve until the client has disconnected."""
        # The holder of this lock is the supervisor.
        lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with await asyncio.start_unix_server(self._answer, self._path / "socket"):
            yield
            await self._left.wait()
        os.close(lock)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # In small pieces: lines need not arrive whole.
        for start in range(0, len(self._said), 7):
            writer.write(self._said[start : start + 7])
            await writer.drain()
            await asyncio.sleep(0)
        while line := await reader.readline():
            self.asked.append(json.loads(line)["do"])
        writer.close()
        self._left.set()

    def _hear(self, events: Sequence[list[Any]]) -> None:
        self.heard.extend(events)
        self.news.set()


def lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


async def test_events_are_heard_in_order_and_only_after_the_greeting(tmp_path: Path) -> None:
    said = lines(GREETING, {"events": [["a"], ["b"]]}, {"events": [["c"]]})
    impostor = Impostor(tmp_path, said)

    async def scene(client: SupervisorClient) -> None:
        while len(impostor.heard) < 3:
            impostor.news.clear()
            await impostor.news.wait()
        await client.close(end=False)

    await impostor.meet(scene)
    assert impostor.heard == [["a"], ["b"], ["c"]]
    assert impostor.asked == ["hello"]


async def test_a_supervisor_that_does_not_end_is_left_in_the_end(tmp_path: Path) -> None:
    impostor = Impostor(tmp_path, lines(GREETING))

    async def scene(client: SupervisorClient) -> None:
        await client.close(end=True, patience_seconds=0.05)

    await impostor.meet(scene)
    assert impostor.asked == ["hello", "end"]


async def test_older_supervisor_gets_no_unknown_requests(
    tmp_path: Path,
) -> None:
    impostor = Impostor(tmp_path, lines(GREETING))

    async def scene(client: SupervisorClient) -> None:
        assert client.pid_namespace_problem == OUTDATED_SUPERVISOR_MESSAGE
        assert not client.limits_rights
        await client.close(end=False)

    await impostor.meet(scene)


async def test_an_attempt_that_is_being_made_is_reported_to_the_next_server(tmp_path: Path) -> None:
    """A server without this information would use the next number, and run two attempts at once."""
    folder = tmp_path / "supervisor"
    folder.mkdir()
    known = [["started", "u", "c", 0, 5.0], ["started", "u", "c", 1, 0.0]]
    impostor = Impostor(folder, lines(GREETING | {"known": known}))
    runtime = process_runtime(tmp_path, pods_end_with_server=False)
    async with impostor.there():
        inherited = await runtime.start(lambda _: None, no_settings)
        assert [type(event) for event in inherited.attempts] == [Started, Starting]
        assert inherited.attempts[1].ref == ("u", "c", 1)
        assert runtime.running(inherited.attempts[1].ref)
        await runtime.close(end_pods=False)


async def no_settings(key: Key) -> bytes:
    raise AssertionError(f"nobody asks for {key}")


class Telephone:
    """Connects to supervisors and records the conversations; fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        self._failures = failures
        self.tries = 0
        self.conversations: list[Conversation] = []
        self.reached = asyncio.Event()

    async def reach(self, directory: Path) -> tuple[Conversation, Any]:
        self.tries += 1
        if self.tries <= self._failures:
            raise SupervisorGone("nobody there")
        conversation, process = await reach_by_socket(directory)
        self.conversations.append(conversation)
        self.reached.set()
        return conversation, process


def client_of(folder: Path, telephone: Telephone) -> SupervisorClient:
    return SupervisorClient(
        folder, owner=True, on_events=lambda _: None, on_lost=lambda: None, reach=telephone.reach
    )


async def test_a_supervisor_that_was_reached_early_is_the_one_that_is_greeted(
    tmp_path: Path,
) -> None:
    telephone = Telephone()
    client = client_of(tmp_path / "supervisor", telephone)
    client.reach_early()
    await telephone.reached.wait()
    assert (await client.connect()).known == []
    await client.close(end=True)
    assert telephone.tries == 1


async def test_one_that_could_not_be_reached_early_is_tried_again(tmp_path: Path) -> None:
    telephone = Telephone(failures=1)
    client = client_of(tmp_path / "supervisor", telephone)
    client.reach_early()
    assert (await client.connect()).known == []
    await client.close(end=True)
    assert telephone.tries == 2


async def test_one_that_was_reached_early_and_never_greeted_is_hung_up_on(tmp_path: Path) -> None:
    """Otherwise it would stay connected forever."""
    telephone = Telephone()
    client = client_of(tmp_path / "supervisor", telephone)
    client.reach_early()
    # At this very moment, so that there is no conversation yet.
    await client.close(end=True)
    await telephone.reached.wait()
    await telephone.conversations[0].ended
