"""Pods that end at once, and the reuse of their working folders."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from onejob.node.supervisor.journal import Identity, Journal
from tests.node.support import Document, Node, a_pod, a_process_node, shell, the_container


async def play(path: Path, scene: Callable[[Node], Awaitable[None]]) -> None:
    async with a_process_node(path) as node:
        await scene(node)


async def place_of(node: Node, pod: Document) -> str:
    """Run a Pod that prints its folder first, and wait until another Pod could reuse that."""
    await node.run(pod)
    # Several times the delay of the cleanup.
    await asyncio.sleep(0.2)
    return (await node.output(pod["metadata"]["name"])).splitlines()[0]


async def test_the_status_of_a_container_that_ended_at_once_is_whole(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        pod = await node.run(a_pod("true"))
        ended = the_container(pod)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        assert pod["status"]["startTime"] <= ended["startedAt"] <= ended["finishedAt"]
        assert ended["startedAt"] > "2020"

    await play(tmp_path, scene)


def test_pods_run_on_the_loop_of_the_server(tmp_path: Path) -> None:
    async def said() -> str:
        async with a_process_node(tmp_path) as node:
            await node.run(a_pod("echo", "hello"))
            return await node.output("p")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(said()) == "hello\n"


async def test_a_folder_that_a_pod_left_untouched_serves_the_next(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        first = await place_of(node, a_pod("pwd", name="a"))
        assert await place_of(node, a_pod("pwd", name="b")) == first

    await play(tmp_path, scene)


async def test_node_stopping_at_once_removes_files_of_pods(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.run(a_pod("true"))

    await play(tmp_path, scene)
    assert not list((tmp_path / "pods" / "scratch").iterdir())
    assert not list(Journal(str(tmp_path / "supervisor" / "claims"), Identity("")).each())


async def test_scratch_folder_is_empty_for_each_pod(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        first = await place_of(node, shell("pwd; touch secret", name="a"))
        assert await place_of(node, shell("pwd; ls", name="b")) != first
        assert "secret" not in await node.output("b")

    await play(tmp_path, scene)


async def test_a_folder_that_a_daemon_still_holds_is_left_to_it(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        # While another Pod runs, a daemon that left its session cannot be recognized as one.
        await node.create(a_pod("sleep", "60", name="other"))
        await node.until("other", lambda pod: pod["status"]["phase"] == "Running")
        first = await place_of(node, shell("pwd; setsid sleep 60 >/dev/null 2>&1 &", name="a"))
        assert await place_of(node, a_pod("pwd", name="b")) != first

    await play(tmp_path, scene)
