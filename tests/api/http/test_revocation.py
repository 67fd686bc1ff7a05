"""Open streams of users whose access is revoked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from onejob.api.access.authentication import ADMIN, AuthenticatorChain, TokenAuthenticator
from onejob.api.access.authorization import Attributes, Decision
from onejob.api.http.long_running import LongRunningRequests
from onejob.api.http.routing import PageNotFound
from onejob.wire.requests import LogOptions, User
from tests.api.http.exec_sessions_support import EXEC, Programs, pod, session
from tests.api.http.http_support import JOBS, added
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import (
    TOKEN,
    Wire,
    closed,
    read_chunk,
    read_head,
    request_bytes,
    with_server,
)

LOG = "/api/v1/namespaces/default/pods/p/log"
OTHER = "other-token"


class Rights:
    """Authorizer whose users may do everything until they are revoked."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    def authorize(self, user: User, wanted: Attributes) -> Decision:
        return Decision(user.name not in self.revoked, "revoked")

    def rules(self, user: User, namespace: str) -> tuple[()]:
        return ()


class Logs:
    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        yield b"line\n"
        await asyncio.get_running_loop().create_future()


def revoke_token(wire: Wire, tokens: dict[str, User], rights: Rights) -> None:
    del tokens[TOKEN]


def revoke_right(wire: Wire, tokens: dict[str, User], rights: Rights) -> None:
    rights.revoked.add(ADMIN.name)


Revoke = Callable[[Wire, dict[str, User], Rights], None]
REVOCATIONS = pytest.mark.parametrize("revoke", [revoke_token, revoke_right])


def run(folder: Path, test: Callable[[Wire, Callable[[], None]], Any], revoke: Revoke) -> None:
    tokens = {TOKEN: ADMIN, OTHER: User("other", groups=("system:authenticated",))}
    rights = Rights()
    service = ScriptedService({"p": pod()})
    service.events = [[added("a")]]

    async def main(wire: Wire) -> None:
        async with asyncio.timeout(60):
            await test(wire, lambda: revoke(wire, tokens, rights))

    with_server(
        service, folder, main, authorizer=rights, sessions=Programs(), logs=Logs(),
        authenticator=AuthenticatorChain([TokenAuthenticator(tokens)]),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def rechecked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.api.http.long_running.RECHECK_SECONDS", 0.02)


@REVOCATIONS
@pytest.mark.parametrize("target", [f"{JOBS}?watch=true", f"{LOG}?follow=true"])
def test_stream_ends_when_its_user_is_revoked(tmp_path: Path, target: str, revoke: Revoke) -> None:
    async def test(wire: Wire, revoke: Callable[[], None]) -> None:
        streams = []
        for token in (TOKEN, OTHER):
            reader, writer = await wire.connect()
            writer.write(request_bytes("GET", target, token=token))
            assert (await read_head(reader))[0] == 200
            assert await read_chunk(reader)
            streams.append((reader, writer))
        (mine, my_writer), (others, other_writer) = streams
        revoke()
        assert await read_chunk(mine) == b"", "the end of the answer"
        more = asyncio.ensure_future(others.read(1))
        await asyncio.wait((more,), timeout=0.2)
        assert not more.done(), "the stream of another user stays open"
        for writer in (my_writer, other_writer):
            writer.close()
            await closed(writer)
        await more

    run(tmp_path, test, revoke)


@REVOCATIONS
@pytest.mark.parametrize("command", ["command=cat&stdin=true", "command=sleep"])
def test_session_is_closed_when_its_user_is_revoked(
    tmp_path: Path, command: str, revoke: Revoke
) -> None:
    async def test(wire: Wire, revoke: Callable[[], None]) -> None:
        async with session(wire, f"{EXEC}?{command}&stdout=true") as socket:
            if "cat" in command:
                await socket.send_bytes(b"\x00hello")
                assert (await socket.receive()).data == b"\x01hello"
            revoke()
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1008

    run(tmp_path, test, revoke)


async def test_stream_ends_when_its_path_is_no_longer_served() -> None:
    """Other streams are still checked afterwards."""
    rounds = 0

    def absent() -> None:
        raise PageNotFound("/apis/example.com/v1/things")

    def served() -> None:
        nonlocal rounds
        rounds += 1

    requests = LongRunningRequests()
    revoked, other = requests.open(absent), requests.open(served)
    async with asyncio.timeout(60):
        await revoked
        while rounds < 3:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)
    assert not other.done()
    requests.close(revoked)
    requests.close(other)
