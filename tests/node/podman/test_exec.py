"""Commands in a running container: streams, terminal, exit code."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from onejob.node.exec_session import ExecSession
from tests.node.exec_support import everything
from tests.node.podman.support import NEEDS_PODMAN, a_podman_node, script
from tests.node.support import with_spec

pytestmark = NEEDS_PODMAN

Open = Callable[..., Awaitable[ExecSession]]


async def in_a_container(place: Path, play: Callable[[Open], Awaitable[None]]) -> None:
    async with a_podman_node(place) as node:

        async def open(*command: str, stdin: bool = False, tty: bool = False) -> ExecSession:
            return await node.agent.open_session("default", "p", "", command, stdin=stdin, tty=tty)

        pod = script("sleep 60", env=[{"name": "NAME", "value": "value"}])
        await node.create(with_spec(pod, terminationGracePeriodSeconds=0))
        await node.until("p", lambda p: p["status"].get("phase") == "Running")
        await play(open)


async def test_exec_returns_streams_and_exit_code(place: Path) -> None:
    async def play(open: Open) -> None:
        session = await open("sh", "-c", "cat; echo $NAME >&2; exit 3", stdin=True)
        assert session.stdin is not None
        await session.stdin.write(b"there and back")
        session.stdin.close()
        assert await everything(session.stdout) == b"there and back"
        assert await everything(session.stderr) == b"value\n"
        assert (await session.finished()).code == 3
        await session.close()

    await in_a_container(place, play)


async def test_a_terminal_is_one_inside_too_and_knows_its_size(place: Path) -> None:
    async def play(open: Open) -> None:
        wait = 'test -t 0 && until test "$(stty size)" = "33 101"; do sleep 0.05; done; exit 4'
        session = await open("sh", "-c", wait, stdin=True, tty=True)
        session.resize(101, 33)
        output = asyncio.create_task(everything(session.stdout))
        async with asyncio.timeout(60):
            assert (await session.finished()).code == 4
        await output
        await session.close()

    await in_a_container(place, play)
