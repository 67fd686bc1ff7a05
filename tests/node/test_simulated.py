"""Simulated Pods: they go through the same states as real ones, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Delete, Selection
from onejob.node.simulated import DURATION, EXIT_CODE, SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.virtual_time import virtual_clock
from tests.node.support import (
    Document,
    Node,
    a_node,
    a_pod,
    an_api,
    the_container,
)

pytestmark = pytest.mark.virtual_time


async def simulate(path: Path, play: Callable[[Node], Awaitable[None]], **settings: Any) -> None:
    clock = virtual_clock()
    async with (
        an_api(path, clock, in_this_thread=True) as client,
        a_node(client, SimulatedRuntime(clock), clock=clock, **settings) as node,
    ):
        await play(node)


def pretending(name: str = "p", policy: str = "Never", **annotations: str) -> Document:
    names = {"duration": DURATION, "code": EXIT_CODE}
    pod = a_pod("anything", name=name, policy=policy)
    pod["metadata"]["annotations"] = {names[key]: value for key, value in annotations.items()}
    return pod


@pytest.mark.parametrize(("duration", "running"), [("0", 0), ("5", 1)])
async def test_that_a_pod_runs_is_written_only_if_it_takes_time(
    tmp_path: Path, duration: str, running: int
) -> None:
    async def play(node: Node) -> None:
        states: list[tuple[str, str]] = []
        since = (await node.client.list(Selection(PODS))).revision
        await node.create(pretending(duration=duration))
        async for batch in node.client.watch(Selection(PODS), after=since):
            for event in batch:
                pod = msgspec.json.decode(event.document)
                states.append((pod["spec"].get("nodeName", ""), pod["status"]["phase"]))
            if states[-1][1] == "Succeeded":
                break
        assert states == [
            ("", "Pending"),
            ("here", "Pending"),
            *[("here", "Running")] * running,
            ("here", "Succeeded"),
        ]

    await simulate(tmp_path, play)


@pytest.mark.parametrize(
    ("code", "phase"), [("0", "Succeeded"), ("3", "Failed"), ("nonsense", "Succeeded")]
)
async def test_a_pod_runs_for_its_duration_and_ends_with_its_code(
    tmp_path: Path, code: str, phase: str
) -> None:
    async def play(node: Node) -> None:
        await node.create(pretending(duration="3600", code=code))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await asyncio.sleep(3598)
        assert (await node.pod("p"))["status"]["phase"] == "Running"
        await asyncio.sleep(3)
        assert (await node.pod("p"))["status"]["phase"] == phase

    await simulate(tmp_path, play)


async def test_exit_codes_can_differ_per_attempt(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await node.create(pretending(policy="OnFailure", code="1,2,0"))
        await asyncio.sleep(60)
        ended = await node.pod("p")
        assert ended["status"]["phase"] == "Succeeded"
        status = the_container(ended)
        assert status["restartCount"] == 2
        assert status["lastState"]["terminated"]["exitCode"] == 2

    await simulate(tmp_path, play)


async def test_a_deleted_pod_ends_and_goes(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        await node.create(pretending(duration="3600"))
        await node.until("p", lambda p: p["status"]["phase"] == "Running")
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=30))
        await node.gone("p")
        assert not node.agent.busy_pods

    await simulate(tmp_path, play)


async def test_room_is_given_back_so_many_pods_pass_through_a_small_node(tmp_path: Path) -> None:
    async def play(node: Node) -> None:
        for number in range(20):
            await node.create(pretending(f"p{number}", duration="10"))
        await asyncio.sleep(5)
        pods = [await node.pod(f"p{number}") for number in range(20)]
        assert sum(pod["status"]["phase"] == "Running" for pod in pods) == 3
        await asyncio.sleep(100)
        for number in range(20):
            assert (await node.pod(f"p{number}"))["status"]["phase"] == "Succeeded"

    await simulate(tmp_path, play, capacity={"cpu": 1000, "memory": 1000, "pods": 3})


async def test_a_node_that_leaves_takes_simulated_pods_along(tmp_path: Path) -> None:
    clock = virtual_clock()
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        async with a_node(client, SimulatedRuntime(clock), clock=clock) as node:
            await node.create(pretending(duration="3600"))
            await node.until("p", lambda p: p["status"]["phase"] == "Running")
        ended = await node.pod("p")
        assert (ended["status"]["phase"], ended["status"]["reason"]) == ("Failed", "Terminated")


async def test_a_restarted_node_runs_its_simulated_pods_again(tmp_path: Path) -> None:
    clock = virtual_clock()
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        async with a_node(client, SimulatedRuntime(clock), clock=clock, end_pods=False) as node:
            await node.create(pretending(duration="3600"))
            await node.until("p", lambda p: p["status"]["phase"] == "Running")
        async with a_node(client, SimulatedRuntime(clock), clock=clock) as node:
            await asyncio.sleep(3700)
            assert (await node.pod("p"))["status"]["phase"] == "Succeeded"
