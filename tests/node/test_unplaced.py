"""Unschedulable Pods: the reason is reported once each, and without delaying other Pods."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from onejob.client.base import Delete, Op, Patch, Result, Selection
from onejob.client.local import LocalClient
from onejob.clock import SystemClock
from onejob.node.agent.unplaced import MAX_REPORTS_PER_PERIOD
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.objects.meta import NODES, PODS, Key
from onejob.virtual_time import virtual_clock
from tests import build
from tests.node.support import NODE, Document, Node, a_node, an_api, condition

pytestmark = pytest.mark.virtual_time

ROOM = {"cpu": 2000, "memory": 2**30, "pods": 3}


class Counting:
    """Client that counts the writes to waiting Pods."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client
        #: Name of the Pod of each condition PodScheduled=False that was written, in order.
        self.told: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        self.told += [
            op.key.name for op in ops if isinstance(op, Patch) and b"Unschedulable" in op.body
        ]
        return await self._client.write_many(ops)


def a_pod(name: str, *, seconds: float = 1e6, owner: str = "", **requests: str) -> Document:
    metadata: dict[str, Any] = {"annotations": {DURATION: str(seconds)}}
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
        metadata["ownerReferences"] = [reference]
    only = build.container(resources={"requests": requests})
    return build.a_pod(name, only, metadata=metadata)


async def play(
    folder: Path,
    scene: Callable[[Node, Counting], Awaitable[None]],
    capacity: dict[str, int] = ROOM,
) -> None:
    clock = virtual_clock()
    async with an_api(folder, clock, in_this_thread=True) as client:
        counting = Counting(client)
        runtime = SimulatedRuntime(clock)
        seen = cast("LocalClient", counting)
        async with a_node(seen, runtime, clock=clock, capacity=capacity) as node:
            await scene(node, counting)


async def scheduled(node: Node, name: str) -> tuple[str, str, str]:
    found = condition(await node.pod(name), "PodScheduled") or {}
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


async def end(node: Node, name: str) -> None:
    await node.client.write(Delete(Key(PODS, "default", name), grace_seconds=0))


async def test_pending_pod_event_names_missing_resources(tmp_path: Path) -> None:
    async def scene(node: Node, counting: Counting) -> None:
        await node.create(a_pod("big", cpu="1500m"))
        await node.create(a_pod("late", cpu="1"))
        await asyncio.sleep(0.5)
        assert await scheduled(node, "late") == ("", "", ""), "it may get room at any moment"
        await asyncio.sleep(1)
        message = "0/1 nodes are available: 1 Insufficient cpu."
        assert await scheduled(node, "late") == ("False", "Unschedulable", message)
        assert await node.events("late") == [("FailedScheduling", message)]
        await end(node, "big")
        await asyncio.sleep(1)
        late = await node.pod("late")
        assert late["status"]["phase"] == "Running"
        kinds = [found["type"] for found in late["status"]["conditions"]]
        assert kinds.count("PodScheduled") == 1
        assert await scheduled(node, "late") == ("True", "", "")

    await play(tmp_path, scene)


async def test_all_that_is_short_is_named(tmp_path: Path) -> None:
    async def scene(node: Node, counting: Counting) -> None:
        for name in ("a", "b", "c"):
            await node.create(a_pod(name, cpu="600m", memory="300Mi"))
        await node.create(a_pod("late", cpu="600m", memory="300Mi"))
        await asyncio.sleep(2)
        assert (await scheduled(node, "late"))[2] == (
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods."
        )

    await play(tmp_path, scene)


async def test_pending_reason_is_reported_on_change_only(tmp_path: Path) -> None:
    async def scene(node: Node, counting: Counting) -> None:
        await node.create(a_pod("first", cpu="1500m"))
        await node.create(a_pod("late", cpu="1", memory="600Mi"))
        await asyncio.sleep(310)
        assert counting.told == ["late"]
        await node.create(a_pod("second", cpu="100m", memory="800Mi"))
        await end(node, "first")
        await asyncio.sleep(310)
        assert counting.told == ["late", "late"]
        assert "1 Insufficient memory." in (await scheduled(node, "late"))[2]

    await play(tmp_path, scene)


async def test_unschedulable_pod_is_reported_at_once_and_on_node_change(
    tmp_path: Path,
) -> None:
    async def cordon(node: Node, value: bytes) -> None:
        body = b'{"spec":{"unschedulable":%b}}' % value
        await node.client.write(Patch(Key(NODES, "", NODE), body, "merge"))

    async def scene(node: Node, counting: Counting) -> None:
        await node.create(a_pod("huge", cpu="100"))
        await asyncio.sleep(0.5)
        assert "Insufficient cpu" in (await scheduled(node, "huge"))[2]
        await cordon(node, b"true")
        await asyncio.sleep(2)
        assert "unschedulable" in (await scheduled(node, "huge"))[2]
        await cordon(node, b"false")
        await asyncio.sleep(2)
        assert "Insufficient cpu" in (await scheduled(node, "huge"))[2]
        assert counting.told == ["huge"] * 3

    await play(tmp_path, scene)


async def test_pods_that_soon_find_room_are_not_written_to(tmp_path: Path) -> None:
    async def scene(node: Node, counting: Counting) -> None:
        for number in range(200):
            await node.create(a_pod(f"p{number}", seconds=0.01))
        await asyncio.sleep(5)
        assert counting.told == []

    await play(tmp_path, scene)


async def test_many_pending_pods_are_reported_in_batches(tmp_path: Path) -> None:
    async def scene(node: Node, counting: Counting) -> None:
        for number in range(3):
            await node.create(a_pod(f"running{number}"))
        for number in range(200):
            await node.create(a_pod(f"p{number}", owner="crowd"))
        await asyncio.sleep(1.2)
        await node.create(a_pod("other", owner="small"))
        assert len(counting.told) <= MAX_REPORTS_PER_PERIOD
        await asyncio.sleep(2.5)
        assert "other" in counting.told, "a large Job does not hold up a small one"
        assert len(counting.told) <= 4 * MAX_REPORTS_PER_PERIOD
        await asyncio.sleep(310)
        assert sorted(counting.told) == sorted([*(f"p{n}" for n in range(200)), "other"])

    await play(tmp_path, scene)


async def test_restarted_node_does_not_repeat_pending_reasons(tmp_path: Path) -> None:
    clock = virtual_clock()
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        for expected in (["late"], []):
            counting = Counting(client)
            runtime = SimulatedRuntime(clock)
            seen = cast("LocalClient", counting)
            async with a_node(seen, runtime, clock=clock, capacity=ROOM, end_pods=False) as node:
                if expected:
                    await node.create(a_pod("big", cpu="1500m"))
                    await node.create(a_pod("late", cpu="1"))
                await asyncio.sleep(310)
                assert counting.told == expected
        assert len((await client.list(Selection(PODS))).documents) == 2


async def test_a_pod_that_vanishes_while_it_waits_is_forgotten(tmp_path: Path) -> None:
    async def scene(node: Node, counting: Counting) -> None:
        await node.create(a_pod("big", cpu="1500m"))
        await node.create(a_pod("late", cpu="1"))
        await asyncio.sleep(0.5)
        await end(node, "late")
        await asyncio.sleep(310)
        assert counting.told == []

    await play(tmp_path, scene)


def test_two_pods_that_can_never_fit_are_told_on_the_servers_own_loop(tmp_path: Path) -> None:
    """uvloop has no timers for immediate callbacks: the handle that it returns has no `when`."""

    async def scene() -> None:
        async with (
            an_api(tmp_path) as client,
            a_node(client, SimulatedRuntime(SystemClock()), capacity=ROOM) as node,
        ):
            names = ["a", "b", "c"]
            await asyncio.gather(*(node.create(a_pod(name, cpu="64")) for name in names))
            for name in names:
                await node.until(name, lambda pod: condition(pod, "PodScheduled"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())
