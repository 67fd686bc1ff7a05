"""Pod GC on the real store and API, in virtual time."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onejob.api.service import Service
from onejob.client.base import Bind, Op, Patch, Result
from onejob.client.local import LocalClient
from onejob.metrics import RemovalReason
from onejob.objects.meta import NODES, PODS, Key
from onejob.wire.errors import TooManyRequests
from tests.controllers.housekeeping import ForgetfulWatch, House, a_house

pytestmark = pytest.mark.virtual_time


async def a_node(house: House, name: str, **fields: Any) -> Key:
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **fields}
    return await house.create(NODES, document, "")


async def a_bound_pod(house: House, name: str, node: str, phase: str = "Running") -> Key:
    key = await house.a_pod(name)
    await house.client.write(Bind(key, node))
    await house.patch(key, {"status": {"phase": phase}}, "status")
    return key


def removed(house: House, reason: RemovalReason) -> float:
    return house.metrics.pods_removed.value(namespace="default", reason=reason)


async def test_finished_pods_beyond_the_limit_go_oldest_first(tmp_path: Path) -> None:
    async with a_house(tmp_path, "pod_gc", terminated_limit=3) as house:
        for number in range(6):
            key = await house.a_pod(f"pod-{number}")
            await house.patch(key, {"status": {"phase": "Succeeded"}}, "status")
            await asyncio.sleep(1.5)
        await house.a_pod("running")
        await asyncio.sleep(30)
        assert await house.names(PODS) == ["pod-3", "pod-4", "pod-5", "running"]
        assert removed(house, "terminated") == 3
        assert house.pod_gc is not None
        assert len(house.pod_gc) == 3


async def test_a_finished_pod_that_went_unseen_is_forgotten(tmp_path: Path) -> None:
    def forgetful(service: Service) -> ForgetfulWatch:
        return ForgetfulWatch(service, PODS)

    async with a_house(tmp_path, "pod_gc", client_of=forgetful) as house:
        assert house.pod_gc is not None
        # Only Pods with an owner leave the cache when they have ended.
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
        reference = {"ownerReferences": [{**owner, "controller": True}]}
        pod = await house.a_pod("pod", metadata=reference)
        await house.patch(pod, {"status": {"phase": "Succeeded"}}, "status")
        await asyncio.sleep(1)
        assert len(house.pod_gc) == 1
        await house.delete(pod)
        await asyncio.sleep(1)
        assert len(house.pod_gc) == 0


async def test_pods_of_a_node_that_is_gone_fail_and_go_after_a_quarantine(tmp_path: Path) -> None:
    async with a_house(tmp_path, "pod_gc") as house:
        node = await a_node(house, "node")
        await a_bound_pod(house, "running", "node")
        await a_bound_pod(house, "done", "node", "Succeeded")
        held = await house.a_pod("held", metadata={"finalizers": ["example.org/keep"]})
        await house.client.write(Bind(held, "node"))
        await asyncio.sleep(100)
        assert len(await house.names(PODS)) == 3
        await house.delete(node)
        await asyncio.sleep(30)
        assert len(await house.names(PODS)) == 3
        await asyncio.sleep(40)
        assert await house.names(PODS) == ["held"]
        status = (await house.get(held))["status"]
        assert status["phase"] == "Failed"
        (condition,) = [c for c in status["conditions"] if c["type"] == "DisruptionTarget"]
        assert condition["reason"] == "DeletionByPodGC"
        assert removed(house, "orphaned") == 3


@pytest.mark.parametrize("jump", [timedelta(days=1), timedelta(hours=-1)])
async def test_the_quarantine_is_as_long_when_the_clock_is_set(
    tmp_path: Path, jump: timedelta
) -> None:
    async with a_house(tmp_path, "pod_gc") as house:
        node = await a_node(house, "node")
        await a_bound_pod(house, "running", "node")
        await asyncio.sleep(100)
        await house.delete(node)
        await asyncio.sleep(5)
        house.clock.set_by(jump)
        await asyncio.sleep(25)
        assert await house.names(PODS) == ["running"]
        await asyncio.sleep(40)
        assert await house.names(PODS) == []


async def test_a_node_that_returns_in_time_keeps_its_pods(tmp_path: Path) -> None:
    async with a_house(tmp_path, "pod_gc") as house:
        node = await a_node(house, "node")
        await a_bound_pod(house, "pod", "node")
        await asyncio.sleep(30)
        await house.delete(node)
        await asyncio.sleep(25)
        await a_node(house, "node")
        await asyncio.sleep(300)
        assert await house.names(PODS) == ["pod"]


async def test_a_deleted_pod_that_was_never_bound_goes(tmp_path: Path) -> None:
    async with a_house(tmp_path, "pod_gc") as house:
        key = await house.a_pod("pod", metadata={"finalizers": ["example.org/keep"]})
        await house.delete(key)
        await asyncio.sleep(300)
        assert (await house.get(key))["status"]["phase"] == "Failed"
        assert removed(house, "unscheduled") == 1, "once is enough"


async def test_deleted_pods_on_a_node_out_of_service_go_by_force(tmp_path: Path) -> None:
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    async with a_house(tmp_path, "pod_gc") as house:
        await a_node(house, "dead", spec={"taints": taints})
        await a_node(house, "fine")
        for name in ("dead", "fine"):
            await house.delete(await a_bound_pod(house, f"on-{name}", name))
        await a_bound_pod(house, "not-deleted", "dead")
        await asyncio.sleep(30)
        assert await house.names(PODS) == ["not-deleted", "on-fine"]
        assert removed(house, "out-of-service") == 1


class RefusesStatus(LocalClient):
    """Client that refuses to mark a Pod as failed, as an overloaded server would."""

    refusing = True

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self.refusing and any(isinstance(op, Patch) for op in ops):
            return [TooManyRequests("later") for _ in ops]
        return await super().write_many(ops)


async def test_pod_is_not_deleted_before_its_end_is_recorded(tmp_path: Path) -> None:
    clients: list[RefusesStatus] = []

    def refusing(service: Service) -> RefusesStatus:
        clients.append(RefusesStatus(service))
        return clients[0]

    async with a_house(tmp_path, "pod_gc", client_of=refusing) as house:
        node = await a_node(house, "node")
        await a_bound_pod(house, "pod", "node")
        await house.delete(node)
        await asyncio.sleep(200)
        assert await house.names(PODS) == ["pod"]
        errors = house.metrics.pod_removal_errors
        assert errors.value(namespace="default", reason="orphaned") > 0
        clients[0].refusing = False
        await asyncio.sleep(30)
        assert await house.names(PODS) == []
