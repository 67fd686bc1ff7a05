"""PodDisruptionBudgets: their status, and the evictions that they allow, in virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Bind, Evict
from onejob.objects.disruption_budget import BUDGETS
from onejob.objects.meta import PODS, Key
from onejob.wire.errors import InternalError, TooManyRequests
from tests.controllers.housekeeping import TEMPLATE, House, a_house

pytestmark = pytest.mark.virtual_time

LABELS = {"app": "web"}


async def a_budget(house: House, name: str = "web", **spec: Any) -> Key:
    spec = {"selector": {"matchLabels": LABELS}, **spec}
    return await house.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})


async def a_running_pod(house: House, name: str, *, ready: bool = True, **metadata: Any) -> Key:
    key = await house.a_pod(name, metadata={"labels": LABELS, **metadata})
    await house.client.write(Bind(key, "node"))
    await make_ready(house, key, ready=ready)
    return key


async def make_ready(house: House, key: Key, *, ready: bool = True) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    await house.patch(key, {"status": {"phase": "Running", "conditions": [condition]}}, "status")


async def figures(house: House, key: Key) -> tuple[int, int, int, int]:
    """Return allowed, healthy, needed and expected counts, once they are up to date."""
    await asyncio.sleep(2)
    status = (await house.get(key))["status"]
    return (
        status["disruptionsAllowed"],
        status["currentHealthy"],
        status["desiredHealthy"],
        status["expectedPods"],
    )


async def evict(house: House, key: Key) -> None:
    await house.client.write(Evict(key))


async def refusal(house: House, key: Key) -> tuple[str, str]:
    with pytest.raises(TooManyRequests) as caught:
        await evict(house, key)
    return caught.value.message, caught.value.details["causes"][0]["message"]


async def test_evictions_go_on_until_as_many_are_left_as_must_be(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        pods = [await a_running_pod(house, f"p-{number}") for number in range(3)]
        budget = await a_budget(house, minAvailable=2)
        assert await figures(house, budget) == (1, 3, 2, 3)
        await evict(house, pods[0])
        # At once, before the controller has seen the Pod's deletion.
        text, cause = await refusal(house, pods[1])
        assert text == "Cannot evict pod as it would violate the pod's disruption budget."
        assert cause == "The disruption budget web does not allow evicting pods currently"
        assert await figures(house, budget) == (0, 2, 2, 3)
        _, cause = await refusal(house, pods[1])
        assert cause == "The disruption budget web needs 2 healthy pods and has 2 currently"
        assert "DisruptionTarget" not in str((await house.get(pods[1]))["status"])
        await a_running_pod(house, "another")
        assert await figures(house, budget) == (1, 3, 2, 4)
        await evict(house, pods[1])


async def test_a_new_budget_allows_nothing_before_it_is_calculated(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        pod = await a_running_pod(house, "p")
        await a_budget(house, minAvailable=0)
        _, cause = await refusal(house, pod)
        assert cause == "The disruption budget web is still being processed by the server."


async def test_pods_that_disrupt_nothing_are_always_evicted(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        budget = await a_budget(house, minAvailable=1)
        waiting = await house.a_pod("waiting", metadata={"labels": LABELS})
        other = await house.a_pod("other", metadata={"labels": {"app": "db"}})
        unready = await a_running_pod(house, "unready", ready=False)
        assert await figures(house, budget) == (0, 0, 1, 2)
        for pod in (waiting, other):
            await evict(house, pod)
        _, cause = await refusal(house, unready)
        assert cause == "The disruption budget web needs 1 healthy pods and has 0 currently"
        # Unhealthy Pods may be evicted once enough others are healthy.
        await a_running_pod(house, "ready")
        assert await figures(house, budget) == (0, 1, 1, 2)
        await evict(house, unready)


async def test_unhealthy_pods_may_be_given_up(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        unready = await a_running_pod(house, "unready", ready=False)
        await a_budget(house, minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
        await asyncio.sleep(2)
        await evict(house, unready)


async def test_a_pod_with_two_budgets_cannot_be_evicted(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        pod = await a_running_pod(house, "p")
        await a_budget(house, "one", minAvailable=0)
        await a_budget(house, "two", minAvailable=0)
        with pytest.raises(InternalError, match="more than one PodDisruptionBudget"):
            await evict(house, pod)


async def test_an_eviction_that_does_not_happen_is_given_back_after_two_minutes(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "disruption") as house:
        for number in range(2):
            await a_running_pod(house, f"p-{number}")
        budget = await a_budget(house, minAvailable=1)
        await asyncio.sleep(2)
        status = (await house.get(budget))["status"]
        status = {**status, "disruptionsAllowed": 0, "disruptedPods": {"p-0": house.stamp()}}
        await house.patch(budget, {"status": status}, "status")
        assert await figures(house, budget) == (0, 1, 1, 2)
        await asyncio.sleep(125)
        assert await figures(house, budget) == (1, 2, 1, 2)
        assert "disruptedPods" not in (await house.get(budget))["status"]


async def test_percentages_refer_to_controller_scale(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        template = {
            "metadata": {"labels": LABELS},
            "spec": TEMPLATE["spec"] | {"restartPolicy": "Always"},
        }
        spec = {"replicas": 10, "selector": {"matchLabels": LABELS}, "template": template}
        owner = await house.create("replicasets.apps", {"metadata": {"name": "web"}, "spec": spec})
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": (await house.get(owner))["metadata"]["uid"],
            "controller": True,
        }
        for number in range(8):
            await a_running_pod(house, f"p-{number}", ownerReferences=[reference])
        budget = await a_budget(house, maxUnavailable="25%")
        # A quarter of ten, rounded up, may be missing.
        assert await figures(house, budget) == (1, 8, 7, 10)
        await house.patch(budget, {"spec": {"maxUnavailable": 5}})
        assert await figures(house, budget) == (3, 8, 5, 10)


async def test_a_share_of_a_jobs_pods_cannot_be_calculated(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        job = await house.a_job("j", suspend=True)
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": (await house.get(job))["metadata"]["uid"],
            "controller": True,
        }
        pod = await a_running_pod(house, "p", ownerReferences=[reference])
        budget = await a_budget(house, maxUnavailable=1)
        await asyncio.sleep(2)
        (condition,) = (await house.get(budget))["status"]["conditions"]
        text = "jobs.batch does not implement the scale subresource"
        assert (condition["reason"], condition["message"]) == ("SyncFailed", text)
        assert "CalculateExpectedPodCountFailed" in await house.reasons()
        # As upstream: its generation was never calculated.
        _, cause = await refusal(house, pod)
        assert cause == "The disruption budget web is still being processed by the server."
        await house.patch(budget, {"spec": {"maxUnavailable": None, "minAvailable": 0}})
        assert await figures(house, budget) == (1, 1, 0, 1)
        await evict(house, pod)
        await asyncio.sleep(2)
        assert await house.names(PODS) == ["p"]


async def test_a_deleted_budget_holds_nothing(tmp_path: Path) -> None:
    async with a_house(tmp_path, "disruption") as house:
        pod = await a_running_pod(house, "p")
        budget = await a_budget(house, minAvailable=1)
        assert await figures(house, budget) == (0, 1, 1, 1)
        await refusal(house, pod)
        await house.delete(budget)
        await evict(house, pod)
