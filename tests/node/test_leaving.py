"""Shutdown of a node: it waits for its Pods, but not forever."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from onejob.client.base import Delete, Op, Result
from onejob.client.local import LocalClient
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.runtime import AttemptRef
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import read_node_pod
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import InternalError
from tests.node.support import (
    NODE,
    Document,
    a_node,
    a_pod,
    an_api,
    process_runtime,
    shell,
    with_spec,
)


def a_long_pod() -> Document:
    pod = with_spec(a_pod("anything"), terminationGracePeriodSeconds=60)
    pod["metadata"]["annotations"] = {DURATION: "1000000"}
    return pod


class Deaf(SimulatedRuntime):
    def stop(self, ref: AttemptRef, grace_seconds: float) -> None: ...


class Broken:
    """Client that stops responding at some time."""

    works = True

    def __init__(self, client: LocalClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if not self.works:
            raise InternalError("the store is gone")
        return await self._client.write_many(ops)


async def seconds_to_leave(path: Path, *, deaf: bool, broken: bool) -> float:
    clock = virtual_clock()
    runtime = Deaf(clock) if deaf else SimulatedRuntime(clock)
    async with an_api(path, clock, in_this_thread=True) as client:
        api = Broken(client)
        async with a_node(cast("LocalClient", api), runtime, clock=clock) as node:
            await node.create(a_long_pod())
            await node.until("p", lambda pod: pod["status"]["phase"] == "Running")
            api.works = not broken
            leaving = clock.monotonic()
        return clock.monotonic() - leaving


@pytest.mark.virtual_time
async def test_node_stops_when_pods_end_on_term(tmp_path: Path) -> None:
    assert await seconds_to_leave(tmp_path, deaf=False, broken=False) < 1


@pytest.mark.virtual_time
async def test_node_stops_after_grace_period_without_end_events(tmp_path: Path) -> None:
    assert 60 < await seconds_to_leave(tmp_path, deaf=True, broken=False) < 100


@pytest.mark.virtual_time
async def test_an_api_that_takes_no_last_word_is_left(tmp_path: Path) -> None:
    assert await seconds_to_leave(tmp_path, deaf=False, broken=True) < 100


@pytest.mark.parametrize("deadline", [None, 1_000_000])
@pytest.mark.virtual_time
async def test_a_pod_that_is_being_bound_as_the_node_leaves_has_ended_by_then(
    tmp_path: Path, deadline: int | None
) -> None:
    clock = virtual_clock()
    pod = a_long_pod()
    if deadline is not None:
        pod = with_spec(pod, activeDeadlineSeconds=deadline)
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        async with a_node(client, SimulatedRuntime(clock), clock=clock) as node:
            await node.create(pod)
            # A commit takes longer.
            await asyncio.sleep(0.0005)
            assert "nodeName" not in (await node.pod("p"))["spec"]
        pod = await node.pod("p")
    assert pod["spec"]["nodeName"] == NODE
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")


@pytest.mark.parametrize("over", [ProcessRuntime.discard, ProcessRuntime.release])
async def test_pods_ended_after_node_stop_are_cleaned_up_at_next_start(
    tmp_path: Path, over: Callable[[ProcessRuntime, str], None]
) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))
    async with an_api(tmp_path) as client:
        runtime = process_runtime(tmp_path)
        async with a_node(client, runtime, end_pods=False) as node:
            pod = await node.create(shell("touch here; sleep 60"))
            await node.until("p", lambda _: list(tmp_path.glob("pods/scratch/*/here")))
        over(runtime, pod["metadata"]["uid"])
        # Several times the delay of the cleanup.
        await asyncio.sleep(0.2)
        assert failures == []
        await client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
        async with a_node(client, process_runtime(tmp_path)):
            pass
    assert not list(tmp_path.glob("pods/scratch/*"))


@pytest.mark.virtual_time
async def test_last_pod_status_is_written_before_node_stops(
    tmp_path: Path,
) -> None:
    clock = virtual_clock()

    class Complaining(SimulatedRuntime):
        async def close(self, *, end_pods: bool) -> None:
            pod = read_node_pod(await node.client.get(Key(PODS, "default", "p")))
            node.agent.warn(pod, "Failed", "Error: too late")
            await super().close(end_pods=end_pods)

    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        async with a_node(client, Complaining(clock), clock=clock) as node:
            await node.create(a_long_pod())
            await node.until("p", lambda pod: pod["status"]["phase"] == "Running")
        assert ("Failed", "Error: too late") in await node.events("p")
