"""exec in a running container: streams, terminal, exit code, hanging up."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from onejob.node.exec_session import ExecSession
from onejob.wire.errors import BadRequest
from tests.node.exec_support import everything
from tests.node.support import DATA, Node, a_process_node, alive, shell, until_dead, with_spec

Open = Callable[..., Awaitable[ExecSession]]


async def beside_a_container(path: Path, play: Callable[[Open], Awaitable[None]]) -> None:
    async with a_process_node(path) as node:
        mounts = [{"name": "v", "mountPath": "/data"}]
        script = "echo inside > /data/f; sleep 60"
        pod = shell(script, volumeMounts=mounts, env=[{"name": "NAME", "value": "value"}])
        await node.create(with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}]))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await play(_opener(node))


def _opener(node: Node) -> Open:
    async def open(*command: str, stdin: bool = False, tty: bool = False) -> ExecSession:
        return await node.agent.open_session("default", "p", "", command, stdin=stdin, tty=tty)

    return open


async def test_a_command_sees_the_containers_files_and_environment(tmp_path: Path) -> None:
    async def play(open: Open) -> None:
        script = "until [ -e $0 ]; do sleep 0.02; done; cat $0; echo $NAME >&2; exit 3"
        session = await open("sh", "-c", script, f"{DATA}/f")
        assert await everything(session.stdout) == b"inside\n"
        assert await everything(session.stderr) == b"value\n"
        assert (await session.finished()).code == 3
        await session.close()

    await beside_a_container(tmp_path, play)


async def test_input_reaches_the_command_until_it_is_ended(tmp_path: Path) -> None:
    async def play(open: Open) -> None:
        session = await open("cat", stdin=True)
        assert session.stdin is not None
        await session.stdin.write(b"there and ")
        await session.stdin.write(b"back")
        session.stdin.close()
        assert await everything(session.stdout) == b"there and back"
        assert (await session.finished()).code == 0
        await session.close()

    await beside_a_container(tmp_path, play)


async def test_a_terminal_has_a_size_and_one_output(tmp_path: Path) -> None:
    async def play(open: Open) -> None:
        session = await open("sh", "-c", "read go; stty size", stdin=True, tty=True)
        assert session.stdin is not None
        session.resize(100, 40)
        await session.stdin.write(b"go\n")
        assert session.stderr is None
        assert b"40 100" in await everything(session.stdout)
        assert (await session.finished()).code == 0
        await session.close()

    await beside_a_container(tmp_path, play)


async def test_exec_of_missing_command_fails_with_message(tmp_path: Path) -> None:
    async def play(open: Open) -> None:
        session = await open("no-such-program")
        finished = await session.finished()
        assert finished.code != 0
        assert "executable file not found" in finished.message
        await session.close()

    await beside_a_container(tmp_path, play)


async def test_hanging_up_ends_the_command(tmp_path: Path) -> None:
    async def play(open: Open) -> None:
        session = await open("sh", "-c", "echo $$; exec sleep 60")
        pid = int(await session.stdout.read())
        assert alive(pid)
        await session.close()
        await until_dead(pid)

    await beside_a_container(tmp_path, play)


async def test_only_a_running_container_can_be_joined(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.run(shell("exit 0"))
        with pytest.raises(BadRequest, match="is not running"):
            await node.agent.open_session("default", "p", "", ["true"], stdin=False, tty=False)
