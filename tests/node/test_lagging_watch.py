"""Node whose watch lags behind its own writes: it still runs every Pod exactly once."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from onejob.client.base import Delete, Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import Container, NodePod
from onejob.virtual_time import virtual_clock
from tests.node.support import Document, Node, a_node, a_pod, an_api, with_spec

pytestmark = pytest.mark.virtual_time

LAG_SECONDS = 5.0


class LateNews:
    """Client whose watches deliver every change after a delay."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async for batch in self._client.watch(what, after=after):
            await asyncio.sleep(LAG_SECONDS)
            yield batch


class CountingRuntime(SimulatedRuntime):
    launches = 0

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        self.launches += 1
        super().launch(pod, container, attempt)


def a_plain_pod(seconds: float) -> Document:
    pod = a_pod("anything")
    pod["metadata"]["annotations"] = {DURATION: str(seconds)}
    return pod


def a_pod_with_a_deadline(seconds: float) -> Document:
    return with_spec(a_plain_pod(seconds), activeDeadlineSeconds=10_000)


Way: TypeAlias = Callable[[float], Document]


async def play(path: Path, scene: Callable[[Node], Awaitable[None]]) -> int:
    """Return the number of containers launched in the scene."""
    clock = virtual_clock()
    runtime = CountingRuntime(clock)
    async with an_api(path, clock, in_this_thread=True) as client:
        late = cast("LocalClient", LateNews(client))
        async with a_node(late, runtime, clock=clock) as node:
            await scene(node)
    return runtime.launches


@pytest.mark.parametrize("way", [a_plain_pod, a_pod_with_a_deadline])
@pytest.mark.parametrize("seconds", [0, 1, 6, 12])
async def test_a_pod_runs_once_however_late_the_news_of_it_come(
    tmp_path: Path, way: Way, seconds: float
) -> None:
    async def scene(node: Node) -> None:
        await node.create(way(seconds))
        await asyncio.sleep(20 * LAG_SECONDS)
        assert (await node.pod("p"))["status"]["phase"] == "Succeeded"

    assert await play(tmp_path, scene) == 1


@pytest.mark.parametrize("way", [a_plain_pod, a_pod_with_a_deadline])
async def test_a_pod_that_was_removed_while_it_ended_is_not_run_again(
    tmp_path: Path, way: Way
) -> None:
    async def scene(node: Node) -> None:
        await node.create(way(1))
        await asyncio.sleep(LAG_SECONDS + 0.5)
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
        await asyncio.sleep(20 * LAG_SECONDS)

    assert await play(tmp_path, scene) == 1
