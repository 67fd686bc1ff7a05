"""In-place resize of running Pods: allocation, effects on containers, status and Events."""

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete
from onejob.node.process.cgroups import group_name
from onejob.node.runtime import AttemptRef
from onejob.node.simulated import DURATION, SimulatedRuntime
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import Container
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Forbidden, Invalid
from tests.node.limits_support import in_progress, needs_groups, patch, running, state_of
from tests.node.support import (
    Document,
    Node,
    a_node,
    a_pod,
    a_process_node,
    an_api,
    condition,
    shell,
    the_container,
    with_spec,
)

CAPACITY = {"cpu": 4000, "memory": 4 << 30, "pods": 100}
RESTART = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


class StubbornRuntime(SimulatedRuntime):
    """Simulated runtime that can be told what goes wrong with changes of limits."""

    def __init__(self) -> None:
        super().__init__(virtual_clock())
        self.infeasible = ""
        self.errors: Sequence[str] = ()
        self.changed: list[Any] = []

    def limits_problem(self, container: Container, ref: AttemptRef) -> str:
        return self.infeasible

    async def change_limits(self, container: Container, ref: AttemptRef) -> str:
        self.changed.append((ref.container, dict(container.resources.limits)))
        if self.errors:
            problem, *self.errors = self.errors
            return problem
        return ""


@asynccontextmanager
async def a_simulated_node(path: Path) -> AsyncIterator[tuple[Node, StubbornRuntime]]:
    runtime = StubbornRuntime()
    clock = virtual_clock()
    async with (
        an_api(path, clock, in_this_thread=True) as client,
        a_node(client, runtime, clock=clock, capacity=CAPACITY) as node,
    ):
        yield node, runtime


def a_sized_pod(
    cpu: str = "1", limit: str = "2", name: str = "p", policy: str = "Never", **rest: Any
) -> Document:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}
    pod = a_pod(name=name, policy=policy, resources=resources, **rest)
    pod["metadata"]["annotations"] = {DURATION: "1000"}
    return pod


async def resize(node: Node, cpu: str, limit: str = "", name: str = "p") -> None:
    resources: Document = {"requests": {"cpu": cpu}}
    if limit:
        resources["limits"] = {"cpu": limit}
    await patch(node, name, resources)


def cpu(pod: Document) -> tuple[str, str, str]:
    """Return request and limit in force, and the allocated request."""
    status = the_container(pod)
    resources = status["resources"]
    return (
        resources["requests"]["cpu"],
        resources["limits"]["cpu"],
        status["allocatedResources"]["cpu"],
    )


@pytest.mark.virtual_time
async def test_a_running_pod_is_resized(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, runtime):
        pod = await running(node, a_sized_pod())
        assert cpu(pod) == ("1", "2", "1")
        await resize(node, "2", "3")
        pod = await node.until("p", lambda p: cpu(p) == ("2", "3", "2"))
        pod = await node.until("p", lambda p: not condition(p, "PodResizeInProgress"))
        assert runtime.changed == [("c", {"cpu": "3"})]
        assert the_container(pod)["restartCount"] == 0
        assert condition(pod, "PodResizePending") is None
        assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"] == 2
        assert node.agent.room.used["cpu"] == 2000
        await node.until_told("p", "ResizeCompleted")
        events = dict(await node.events("p"))
        summary = (
            '{"containers":[{"name":"c","resources":{"limits":{"cpu":"3"},"requests":{"cpu":"2"}}}],'
            '"generation":2}'
        )
        assert events["ResizeStarted"] == f"Pod resize started: {summary}"
        assert events["ResizeCompleted"] == f"Pod resize completed: {summary}"


@pytest.mark.virtual_time
async def test_other_requests_need_no_change_of_the_container(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, runtime):
        await running(node, a_sized_pod())
        await resize(node, "1500m")
        await node.until("p", lambda p: cpu(p) == ("1500m", "2", "1500m"))
        assert runtime.changed == []
        assert node.agent.room.used["cpu"] == 1500


@pytest.mark.virtual_time
async def test_a_container_restarts_if_its_resize_policy_says_so(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, runtime):
        await running(node, a_sized_pod(policy="OnFailure", resizePolicy=RESTART))
        await resize(node, "1", "3")
        pod = await node.until(
            "p", lambda p: the_container(p)["restartCount"] == 1 and "running" in state_of(p)
        )
        assert cpu(pod) == ("1", "3", "1")
        assert runtime.changed == []
        assert condition(pod, "PodResizeInProgress") is None
        await node.until_told("p", "ResizeCompleted")


@pytest.mark.virtual_time
async def test_a_resize_without_room_is_deferred_until_there_is_some(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, _):
        await running(node, a_sized_pod("1", "4"))
        await running(node, a_sized_pod("2", "4", name="other"))
        await resize(node, "3")
        pod = await node.until("p", lambda p: condition(p, "PodResizePending"))
        pending = condition(pod, "PodResizePending")
        assert pending is not None
        assert (pending["status"], pending["reason"], pending["observedGeneration"]) == (
            "True",
            "Deferred",
            2,
        )
        assert pending["message"] == (
            "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
        )
        assert cpu(pod) == ("1", "4", "1")
        assert "ResizeDeferred" in dict(await node.until_told("p", "ResizeDeferred"))
        # A new Pod does not take the room for which the resize waits.
        await node.create(a_sized_pod("500m", "4", name="later"))
        await node.until("later", lambda p: condition(p, "PodScheduled"))
        await node.client.write(_deletion("other"))
        pod = await node.until("p", lambda p: cpu(p) == ("3", "4", "3"))
        await node.until("p", lambda p: not condition(p, "PodResizePending"))
        await node.until("later", lambda p: "running" in state_of(p))


def _deletion(name: str) -> Delete:
    return Delete(Key(PODS, "default", name), grace_seconds=0)


@pytest.mark.virtual_time
async def test_a_deferred_resize_can_be_reverted(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, _):
        await running(node, a_sized_pod("1", "4"))
        await running(node, a_sized_pod("2", "4", name="other"))
        await resize(node, "3")
        await node.until("p", lambda p: condition(p, "PodResizePending"))
        assert node.agent.room.used["cpu"] == 5000
        await resize(node, "1")
        await node.until("p", lambda p: not condition(p, "PodResizePending"))
        assert node.agent.room.used["cpu"] == 3000


@pytest.mark.virtual_time
async def test_a_resize_that_the_runtime_cannot_carry_out_is_infeasible(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, runtime):
        await running(node, a_sized_pod())
        runtime.infeasible = "it has no brakes"
        await resize(node, "1", "3")
        pod = await node.until("p", lambda p: condition(p, "PodResizePending"))
        pending = condition(pod, "PodResizePending")
        assert pending is not None
        assert (pending["reason"], pending["message"]) == (
            "Infeasible",
            'container "c": it has no brakes',
        )
        assert cpu(pod) == ("1", "2", "1")
        assert runtime.changed == []
        assert "ResizeInfeasible" in dict(await node.until_told("p", "ResizeInfeasible"))


@pytest.mark.virtual_time
async def test_a_failed_change_is_reported_and_tried_again(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, runtime):
        await running(node, a_sized_pod())
        runtime.errors = ["the kernel says no"]
        await resize(node, "1", "3")
        pod = await node.until("p", lambda p: condition(p, "PodResizeInProgress"))
        pod = await node.until("p", lambda p: in_progress(p).get("reason") == "Error")
        assert in_progress(pod)["message"] == "the kernel says no"
        assert cpu(pod) == ("1", "2", "1")
        assert "ResizeError" in dict(await node.until_told("p", "ResizeError"))
        await node.until("p", lambda p: cpu(p) == ("1", "3", "1") and not in_progress(p))
        assert len(runtime.changed) == 2


@pytest.mark.virtual_time
async def test_resources_beyond_the_node_are_refused(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, _):
        await running(node, a_sized_pod("1", "8"))
        with pytest.raises(Forbidden) as refused:
            await resize(node, "5")
        assert refused.value.message == (
            'pods "p" is forbidden: node didn\'t have enough allocatable resources: '
            "cpu, requested: 5000, allocatable: 4000"
        )
        assert refused.value.details["causes"] == [{"reason": "NodeCapacity"}]


@pytest.mark.virtual_time
async def test_quotas_and_limit_ranges_apply_to_a_resize(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, _):
        await running(node, a_sized_pod("1", "2"))
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}}
        await node.client.write(Create("resourcequotas", "default", msgspec.json.encode(quota)))
        with pytest.raises(Forbidden) as refused:
            await resize(node, "2500m", "3")
        assert refused.value.message == (
            'pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, '
            "used: requests.cpu=1, limited: requests.cpu=2"
        )
        limit = {"type": "Container", "max": {"cpu": "2"}}
        limits = {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}
        await node.client.write(Create("limitranges", "default", msgspec.json.encode(limits)))
        with pytest.raises(Forbidden, match="maximum cpu usage per Container is 2, but limit is 3"):
            await resize(node, "1", "3")
        await resize(node, "1500m", "2")


@pytest.mark.virtual_time
async def test_invalid_resources_are_refused_with_causes(tmp_path: Path) -> None:
    async with a_simulated_node(tmp_path) as (node, _):
        await running(node, a_sized_pod("1", "2"))
        with pytest.raises(Invalid) as refused:
            await resize(node, "3", "2")
        causes = refused.value.details["causes"]
        assert [cause["field"] for cause in causes] == ["spec.containers[0].resources.requests"]


@pytest.mark.virtual_time
async def test_allocated_resources_survive_the_agent(tmp_path: Path) -> None:
    clock = virtual_clock()
    async with an_api(tmp_path, clock, in_this_thread=True) as client:
        async with a_node(
            client, StubbornRuntime(), clock=clock, capacity=CAPACITY, end_pods=False
        ) as node:
            await running(node, a_sized_pod("1", "4"))
            await running(node, a_sized_pod("2", "4", name="other"))
            await resize(node, "3")
            await node.until("p", lambda p: condition(p, "PodResizePending"))
        async with a_node(client, StubbornRuntime(), clock=clock, capacity=CAPACITY) as node:
            pod = await node.until("p", lambda p: "running" in state_of(p))
            assert cpu(pod) == ("1", "4", "1")
            assert condition(pod, "PodResizePending") is not None
            await node.client.write(_deletion("other"))
            await node.until("p", lambda p: cpu(p) == ("3", "4", "3"))
            await node.until("p", lambda p: not condition(p, "PodResizePending"))


@needs_groups
async def test_limits_of_a_running_process_change(tmp_path: Path) -> None:
    limits = {"cpu": "500m", "memory": "64Mi"}
    async with a_process_node(tmp_path) as node:
        pod = shell("sleep 1000", resources={"requests": {"cpu": "100m"}, "limits": limits})
        started = await running(node, with_spec(pod, terminationGracePeriodSeconds=0))
        uid = started["metadata"]["uid"]
        wanted = {"cpu": "250m", "memory": "128Mi"}
        await patch(node, "p", {"limits": wanted})
        await node.until("p", lambda p: the_container(p)["resources"]["limits"] == wanted)
        assert _in_force(tmp_path, AttemptRef(uid, "c", 0)) == (128 << 20, 25_000)
        # Less than it uses.
        await patch(node, "p", {"limits": {"memory": "64Ki"}, "requests": {"memory": "64Ki"}})
        pod = await node.until("p", lambda p: in_progress(p).get("reason") == "Error")
        assert "below current usage" in in_progress(pod)["message"]
        assert _in_force(tmp_path, AttemptRef(uid, "c", 0)) == (128 << 20, 25_000)


def _in_force(data_dir: Path, ref: AttemptRef) -> tuple[int, int]:
    """Return memory limit and CPU quota of a container, from its control groups."""
    # UIDs repeat in other tests, which may run at the same time.
    server = f"onejob-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]}"
    found = {}
    for top, _, files in os.walk("/sys/fs/cgroup"):
        if top.endswith(f"/{server}/{group_name(ref)}"):
            for name in files:
                found[name] = os.path.join(top, name)
    if "memory.max" in found:
        quota = Path(found["cpu.max"]).read_text().split()[0]
        return int(Path(found["memory.max"]).read_text()), int(quota)
    return (
        int(Path(found["memory.limit_in_bytes"]).read_text()),
        int(Path(found["cpu.cfs_quota_us"]).read_text()),
    )


@pytest.mark.parametrize("mode", ["off", "rlimit"])
async def test_limits_that_do_not_act_cannot_be_changed(tmp_path: Path, mode: str) -> None:
    async with a_process_node(tmp_path, enforce_limits=mode) as node:
        resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}}
        pod = shell("sleep 1000", resources=resources)
        await running(node, with_spec(pod, terminationGracePeriodSeconds=0))
        await patch(node, "p", {"limits": {"memory": "2Gi"}})
        pod = await node.until("p", lambda p: condition(p, "PodResizePending"))
        pending = condition(pod, "PodResizePending")
        assert pending is not None
        assert pending["reason"] == "Infeasible"
        assert f"--enforce-limits {mode}" in pending["message"]
