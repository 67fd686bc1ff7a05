"""Changes to a Pod between the request to bind it and the response."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from onejob.client.base import Bind, Create, Delete, Op, Result
from onejob.client.local import LocalClient
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import Container, NodePod
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import InternalError, NotFound
from tests.node.support import NODE, Document, Node, a_node, a_pod, an_api, with_spec

pytestmark = pytest.mark.virtual_time

THE_POD = Key(PODS, "default", "p")
#: Long enough for the watch to deliver everything.
A_WHILE = 1.0

Meddling = Callable[[LocalClient, Sequence[Op]], Awaitable[Sequence[Result]]]


class Meddler:
    """Client whose first binding is scripted by the test."""

    def __init__(self, client: LocalClient, meddling: Meddling) -> None:
        self._client = client
        self._meddling: Meddling | None = meddling

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self._meddling is not None and any(isinstance(op, Bind) for op in ops):
            meddling, self._meddling = self._meddling, None
            return await meddling(self._client, ops)
        return await self._client.write_many(ops)


class CountingRuntime(SimulatedRuntime):
    launches = 0

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        self.launches += 1
        super().launch(pod, container, attempt)


async def refuse(client: LocalClient, ops: Sequence[Op]) -> Sequence[Result]:
    return [InternalError("not now") for _ in ops]


async def bind_first(client: LocalClient, ops: Sequence[Op]) -> Sequence[Result]:
    (bind,) = ops
    assert isinstance(bind, Bind)
    await client.write(Bind(bind.key, NODE, bind.uid))
    await asyncio.sleep(A_WHILE)
    return await client.write_many(ops)


async def delete_gracefully(client: LocalClient, ops: Sequence[Op]) -> Sequence[Result]:
    results = await client.write_many(ops)
    await client.write(Delete(THE_POD, grace_seconds=30))
    await asyncio.sleep(A_WHILE)
    return results


async def remove(client: LocalClient, ops: Sequence[Op]) -> Sequence[Result]:
    results = await client.write_many(ops)
    await client.write(Delete(THE_POD, grace_seconds=0))
    await asyncio.sleep(A_WHILE)
    return results


async def play(path: Path, meddling: Meddling, pod: Document) -> tuple[int, str]:
    """Return the number of launched containers and the Pod's final phase, "" if it is gone."""
    clock = virtual_clock()
    runtime = CountingRuntime(clock)
    async with an_api(path, clock, in_this_thread=True) as client:
        meddler = cast("LocalClient", Meddler(client, meddling))
        async with a_node(meddler, runtime, clock=clock) as node:
            await node.create(pod)
            await asyncio.sleep(10 * A_WHILE)
            return runtime.launches, await phase(node)


async def phase(node: Node) -> str:
    try:
        return str((await node.pod("p"))["status"]["phase"])
    except NotFound:
        return ""


SHORT = a_pod("anything")
LONG = with_spec(SHORT, activeDeadlineSeconds=10_000)


@pytest.mark.parametrize("pod", [SHORT, LONG], ids=["plain", "with a deadline"])
@pytest.mark.parametrize(
    ("meddling", "launches", "last_phase"),
    [
        pytest.param(refuse, 1, "Succeeded", id="a Pod that could not be bound is tried again"),
        pytest.param(bind_first, 1, "Succeeded", id="a Pod that somebody else bound to us is run"),
        pytest.param(delete_gracefully, 0, "", id="a Pod that was deleted meanwhile is not begun"),
        pytest.param(remove, 0, "", id="a Pod that was removed meanwhile is not begun"),
    ],
)
async def test_between_the_wish_and_the_answer(
    tmp_path: Path, pod: Document, meddling: Meddling, launches: int, last_phase: str
) -> None:
    assert await play(tmp_path, meddling, pod) == (launches, last_phase)


async def test_pods_of_higher_priority_are_bound_first(tmp_path: Path) -> None:
    order = ("none", "low", "high")

    def waiting(name: str) -> Document:
        pod = a_pod(name=name, resources={"requests": {"cpu": "1"}})
        pod["metadata"]["annotations"] = {DURATION: "2"}
        return pod if name == "none" else with_spec(pod, priorityClassName=name)

    clock = virtual_clock()
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        for name, value in (("low", 1), ("high", 2)):
            document = msgspec.json.encode({"metadata": {"name": name}, "value": value})
            await client.write(Create("priorityclasses.scheduling.k8s.io", "", document))
        # Before there is a node, so all of them wait.
        for name in order:
            await client.write(Create(PODS, "default", msgspec.json.encode(waiting(name))))
        room = {"cpu": 1000, "pods": 10}
        runtime = SimulatedRuntime(clock)
        async with a_node(client, runtime, clock=clock, capacity=room) as node:
            await asyncio.sleep(10 * A_WHILE)
            begun = {name: (await node.pod(name))["status"]["startTime"] for name in order}
    assert len(set(begun.values())) == 3
    assert sorted(order, key=begun.__getitem__) == ["high", "low", "none"]
