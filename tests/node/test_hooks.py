"""Lifecycle hooks: postStart and preStop of a container, with their deadlines."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Delete, Patch
from onejob.objects.meta import PODS, Key
from tests.node.probes_support import a_free_port
from tests.node.support import (
    Document,
    Node,
    a_node,
    a_process_node,
    an_api,
    process_runtime,
    shell,
    the_container,
    until_true,
    with_spec,
)

#: Records its events in order.
STEADY = "trap 'echo stopped >> said; exit 0' TERM; echo up >> said; while :; do sleep 0.02; done"
KEEP = Patch(
    Key(PODS, "default", "p"), b'{"metadata":{"finalizers":["example.com/keep"]}}', "merge"
)


def command(script: str) -> Document:
    return {"exec": {"command": ["sh", "-c", script]}}


def hooked(script: str = STEADY, policy: str = "Never", **lifecycle: Document) -> Document:
    return shell(script, policy=policy, lifecycle=lifecycle)


async def delete(node: Node, grace: int) -> None:
    await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=grace))


async def play(path: Path, pod: Document, what: Callable[[Node], Any]) -> None:
    async with a_process_node(path, working_dir=path) as node:
        await node.create(pod)
        await node.client.write(KEEP)
        await what(node)


def is_running(pod: Document) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _state(pod: Document) -> Document:
    statuses = pod["status"].get("containerStatuses")
    return dict(statuses[0]["state"]) if statuses else {}


async def test_container_is_running_after_post_start_hook(tmp_path: Path) -> None:
    hook = command("until [ -e said ]; do sleep 0.02; done; until [ -e go ]; do sleep 0.02; done")

    async def what(node: Node) -> None:
        await until_true((tmp_path / "said").exists)
        waiting = await node.until("p", lambda p: "containerStatuses" in p["status"])
        assert the_container(waiting)["state"]["waiting"]["reason"] == "ContainerCreating"
        assert waiting["status"]["phase"] == "Pending"
        (tmp_path / "go").touch()
        running = await node.until("p", is_running)
        assert the_container(running)["ready"]

    await play(tmp_path, hooked(postStart=hook), what)


async def test_a_failing_post_start_hook_stops_the_container_with_an_event(tmp_path: Path) -> None:
    async def what(node: Node) -> None:
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 143
        assert ended["status"]["phase"] == "Failed"
        events = await node.until_told("p")
        assert events == [("FailedPostStartHook", "PostStartHook failed: oh no")]

    await play(tmp_path, hooked("exec sleep 60", postStart=command("echo oh no; exit 3")), what)


async def test_after_a_failed_post_start_hook_the_restart_policy_decides(tmp_path: Path) -> None:
    hook = command("if [ -e before ]; then exit 0; fi; touch before; exit 1")

    async def what(node: Node) -> None:
        running = await node.until("p", lambda p: "running" in _state(p))
        assert the_container(running)["restartCount"] == 1

    await play(tmp_path, hooked("exec sleep 60", policy="Always", postStart=hook), what)


async def test_a_container_that_ends_during_its_post_start_hook_has_just_ended(
    tmp_path: Path,
) -> None:
    async def what(node: Node) -> None:
        ended = await node.finished("p")
        assert the_container(ended)["state"]["terminated"]["exitCode"] == 0
        assert await node.events("p") == []

    await play(tmp_path, hooked("exit 0", postStart=command("sleep 60")), what)


async def test_a_pre_stop_hook_comes_before_the_signal(tmp_path: Path) -> None:
    async def what(node: Node) -> None:
        await until_true((tmp_path / "said").exists)
        await node.until("p", is_running)
        await delete(node, 30)
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert (tmp_path / "said").read_text().split() == ["up", "hook", "stopped"]

    await play(tmp_path, hooked(preStop=command("sleep 0.1; echo hook >> said")), what)


async def test_a_pre_stop_hook_counts_against_the_grace_and_is_cut_off_at_its_end(
    tmp_path: Path,
) -> None:
    async def what(node: Node) -> None:
        await until_true((tmp_path / "said").exists)
        await node.until("p", is_running)
        await delete(node, 1)
        ended = await node.finished("p")
        # It still gets a moment to stop.
        assert ended["status"]["phase"] == "Succeeded"
        assert (tmp_path / "said").read_text().split() == ["up", "stopped"]
        reason, message = (await node.until_told("p"))[0]
        assert (reason, message) == (
            "FailedPreStopHook",
            "PreStopHook failed: command timed out",
        )

    await play(tmp_path, hooked(preStop=command("sleep 60; echo hook >> said")), what)


@pytest.mark.parametrize("hook", [{"sleep": {"seconds": 3600}}, command("sleep 3600")])
async def test_a_less_patient_deletion_does_not_wait_for_the_hook(
    tmp_path: Path, hook: Document
) -> None:
    async def what(node: Node) -> None:
        await until_true((tmp_path / "said").exists)
        await node.until("p", is_running)
        await delete(node, 3600)
        await delete(node, 5)
        ended = await node.finished("p")
        assert ended["status"]["phase"] == "Succeeded"

    await play(tmp_path, hooked(preStop=hook), what)


async def test_a_pod_that_ends_by_itself_has_no_pre_stop_hook(tmp_path: Path) -> None:
    async def what(node: Node) -> None:
        assert (await node.finished("p"))["status"]["phase"] == "Succeeded"
        assert not (tmp_path / "said").exists()

    await play(tmp_path, hooked("exit 0", preStop=command("echo hook >> said")), what)


async def test_hooks_may_sleep_and_ask_over_http(tmp_path: Path) -> None:
    port = a_free_port()
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        # An error is a response all the same.
        writer.write(b"HTTP/1.1 500 no\r\n\r\n")
        writer.close()

    async def what(node: Node) -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", port):
            await node.until("p", is_running)
            await delete(node, 30)
            assert (await node.finished("p"))["status"]["phase"] == "Succeeded"
            assert asked == [b"GET /bye HTTP/1.1\r\n"]
            assert await node.events("p") == []

    get = {"httpGet": {"path": "/bye", "port": port}}
    await play(tmp_path, hooked(postStart={"sleep": {"seconds": 1}}, preStop=get), what)


async def test_a_container_that_was_greeted_is_not_greeted_again_by_the_next_server(
    tmp_path: Path,
) -> None:
    async with an_api(tmp_path) as client:
        runtime = process_runtime(tmp_path, working_dir=tmp_path)
        async with a_node(client, runtime, end_pods=False) as node:
            await node.create(hooked(postStart=command("echo hook >> said")))
            await node.until("p", is_running)
        async with a_node(client, process_runtime(tmp_path, working_dir=tmp_path)) as node:
            await delete(node, 30)
            await node.gone("p")
        assert (tmp_path / "said").read_text().split().count("hook") == 1


async def test_a_sidecar_holds_the_containers_up_until_it_was_greeted(tmp_path: Path) -> None:
    sidecar = {
        "name": "s",
        "image": "x",
        "restartPolicy": "Always",
        "command": ["sleep", "60"],
        "lifecycle": {"postStart": command("sleep 0.2; echo hook >> said")},
    }

    async def what(node: Node) -> None:
        await node.finished("p")
        assert (tmp_path / "said").read_text().split() == ["hook", "main"]

    pod = with_spec(shell("echo main >> said"), initContainers=[sidecar])
    await play(tmp_path, with_spec(pod, terminationGracePeriodSeconds=1), what)
