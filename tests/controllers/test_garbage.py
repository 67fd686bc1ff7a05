"""Garbage collector on the real store and API, in virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Delete, Op, Patch, Propagation, Written
from onejob.client.local import LocalClient
from onejob.objects.meta import CRONJOBS, JOBS, PODS, Key
from onejob.wire.errors import TooManyRequests
from tests.build import a_cronjob
from tests.controllers.housekeeping import TEMPLATE, ForgetfulWatch, House, LateWatch, a_house

pytestmark = pytest.mark.virtual_time

CONFIG_MAPS = "configmaps"


async def owned_by(house: House, *owners: Key, block: bool = True) -> list[dict[str, Any]]:
    references = []
    for owner in owners:
        document = await house.get(owner)
        references.append(
            {
                "apiVersion": document["apiVersion"],
                "kind": document["kind"],
                "name": owner.name,
                "uid": document["metadata"]["uid"],
                "blockOwnerDeletion": block,
            }
        )
    return references


async def a_config_map(house: House, name: str, *owners: Key, **metadata: Any) -> Key:
    namespace = metadata.pop("namespace", "default")
    references = metadata.pop("ownerReferences", None) or await owned_by(house, *owners)
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": references, **metadata},
    }
    return await house.create(CONFIG_MAPS, document, namespace)


def absent(kind: str = "Job", api_version: str = "batch/v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": "nobody", "uid": "no-such-uid"}


async def test_when_the_owner_is_gone_its_dependents_and_theirs_follow(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        job = await house.a_job("job")
        child = await a_config_map(house, "child", job)
        await a_config_map(house, "grandchild", child)
        await a_config_map(house, "stranger")
        await asyncio.sleep(1)
        await house.delete(job, "Background")
        await asyncio.sleep(1)
        assert await house.names(CONFIG_MAPS) == ["stranger"]
        assert house.garbage is not None
        assert house.garbage.idle


@pytest.mark.parametrize("kind", ["cronjobs.batch", "pods", "secrets", "namespaces", "nodes"])
async def test_every_kind_can_own(tmp_path: Path, kind: str) -> None:
    documents: dict[str, dict[str, Any]] = {
        "cronjobs.batch": {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": TEMPLATE}}},
        },
        "pods": {"apiVersion": "v1", "kind": "Pod", "spec": TEMPLATE["spec"]},
        "secrets": {"apiVersion": "v1", "kind": "Secret"},
        "namespaces": {"apiVersion": "v1", "kind": "Namespace"},
        "nodes": {"apiVersion": "v1", "kind": "Node"},
    }
    async with a_house(tmp_path, "garbage", "namespaces") as house:
        namespace = "" if kind in ("namespaces", "nodes") else "default"
        document = {**documents[kind], "metadata": {"name": "owner"}}
        owner = await house.create(kind, document, namespace)
        child = await a_config_map(house, "child", owner)
        await asyncio.sleep(1)
        assert await house.exists(child)
        await house.delete(owner, "Background")
        await asyncio.sleep(2)
        assert not await house.exists(child)


async def test_one_solid_owner_keeps_the_object_which_forgets_the_others(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        kept, lost = await house.a_job("kept"), await house.a_job("lost")
        child = await a_config_map(house, "child", kept, lost)
        await house.delete(lost, "Background")
        await asyncio.sleep(1)
        references = (await house.get(child))["metadata"]["ownerReferences"]
        assert [reference["name"] for reference in references] == ["kept"]


async def test_an_object_created_for_an_owner_that_is_already_gone_is_deleted(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "garbage") as house:
        child = await a_config_map(house, "child", ownerReferences=[absent()])
        await asyncio.sleep(1)
        assert not await house.exists(child)


async def test_a_namesake_of_the_owner_does_not_count(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        job = await house.a_job("job")
        child = await a_config_map(house, "child", job)
        await house.delete(job, "Background")
        await house.a_job("job")
        await asyncio.sleep(1)
        assert not await house.exists(child)


async def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        foreign = absent("Workflow", "example.org/v1")
        child = await a_config_map(house, "child", ownerReferences=[foreign])
        await asyncio.sleep(600)
        assert await house.exists(child)


async def test_owner_in_other_namespace_is_reported_and_counts_as_absent(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "garbage") as house:
        job = await house.a_job("job")
        await asyncio.sleep(1)
        references = await owned_by(house, job)
        child = await a_config_map(
            house, "child", namespace="kube-public", ownerReferences=references
        )
        await asyncio.sleep(1)
        assert not await house.exists(child)
        assert "OwnerRefInvalidNamespace" in await house.reasons()


async def test_in_the_foreground_the_owner_waits_for_dependents_that_block(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        job = await house.a_job("job")
        held = await a_config_map(house, "held", job, finalizers=["example.org/keep"])
        await a_config_map(house, "free", job)
        await house.delete(job, "Foreground")
        await asyncio.sleep(60)
        assert await house.names(CONFIG_MAPS) == ["held"]
        assert (await house.get(job))["metadata"]["finalizers"] == ["foregroundDeletion"]
        await house.patch(held, {"metadata": {"finalizers": None}})
        await asyncio.sleep(1)
        assert await house.names(CONFIG_MAPS) == []
        assert not await house.exists(job)


async def test_in_the_foreground_a_dependent_that_does_not_block_is_not_waited_for(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "garbage") as house:
        job = await house.a_job("job")
        references = await owned_by(house, job, block=False)
        held = await a_config_map(
            house, "held", ownerReferences=references, finalizers=["example.org/keep"]
        )
        await house.delete(job, "Foreground")
        await asyncio.sleep(1)
        assert not await house.exists(job)
        assert (await house.get(held))["metadata"]["deletionTimestamp"]


async def test_a_chain_is_deleted_in_the_foreground_from_its_end(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        first = await a_config_map(house, "first")
        second = await a_config_map(house, "second", first)
        third = await a_config_map(house, "third", second, finalizers=["example.org/keep"])
        await asyncio.sleep(1)
        await house.delete(first, "Foreground")
        await asyncio.sleep(1)
        assert await house.exists(first)
        assert "foregroundDeletion" in (await house.get(second))["metadata"]["finalizers"]
        await house.patch(third, {"metadata": {"finalizers": None}})
        await asyncio.sleep(1)
        assert await house.names(CONFIG_MAPS) == []


async def test_owners_in_a_circle_do_not_wait_for_each_other_for_ever(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        first = await a_config_map(house, "first")
        second = await a_config_map(house, "second", first)
        references = await owned_by(house, second)
        await house.patch(first, {"metadata": {"ownerReferences": references}})
        await asyncio.sleep(1)
        await house.delete(first, "Foreground")
        await asyncio.sleep(60)
        assert await house.names(CONFIG_MAPS) == []


async def test_orphans_stay_without_their_reference(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        job = await house.a_job("job")
        child = await a_config_map(house, "child", job)
        # Created just before the deletion, it may not be in the cache yet.
        late = await a_config_map(house, "late", job)
        await house.delete(job, "Orphan")
        await asyncio.sleep(60)
        assert not await house.exists(job)
        for key in (child, late):
            assert "ownerReferences" not in (await house.get(key))["metadata"]


async def test_a_dependent_that_is_noticed_late_is_orphaned_all_the_same(tmp_path: Path) -> None:
    def late(service: Service) -> LateWatch:
        return LateWatch(service, CONFIG_MAPS, 0.05)

    async with a_house(tmp_path, "garbage", client_of=late) as house:
        job = await house.a_job("job")
        child = await a_config_map(house, "child", job)
        await house.delete(job, "Orphan")
        await asyncio.sleep(60)
        assert not await house.exists(job)
        assert "ownerReferences" not in (await house.get(child))["metadata"]


async def test_an_owner_does_not_wait_for_a_pod_that_went_unseen(tmp_path: Path) -> None:
    """The Pod cache does not keep finished Pods, so a relist cannot detect a deleted one by it."""

    def forgetful(service: Service) -> ForgetfulWatch:
        return ForgetfulWatch(service, PODS)

    async with a_house(
        tmp_path, "garbage", "jobs", script=lambda pod: 0, client_of=forgetful
    ) as house:
        job = await house.a_job("job")
        await asyncio.sleep(10)
        assert len(await house.names(PODS)) == 1
        await house.delete(job, "Foreground")
        await asyncio.sleep(60)
        assert await house.names(PODS) == []
        assert not await house.exists(job)


@pytest.mark.parametrize(
    ("propagation", "pods_left"), [("", 2), ("Background", 0), ("Foreground", 0), ("Orphan", 2)]
)
async def test_deleting_a_running_job(
    tmp_path: Path, propagation: Propagation, pods_left: int
) -> None:
    async with a_house(tmp_path, "garbage", "jobs", script=lambda pod: None) as house:
        job = await house.a_job("job", parallelism=2, completions=2)
        await asyncio.sleep(10)
        assert len(await house.names(PODS)) == 2
        await house.delete(job, propagation)
        await asyncio.sleep(60)
        assert not await house.exists(job)
        pods = await house.all_of(PODS)
        assert len(pods) == pods_left
        assert all("finalizers" not in pod["metadata"] for pod in pods)
        assert all("ownerReferences" not in pod["metadata"] for pod in pods)


async def test_a_deleted_cronjob_takes_its_jobs_and_their_pods_along(tmp_path: Path) -> None:
    everything = ("garbage", "jobs", "cronjobs")
    async with a_house(tmp_path, *everything, script=lambda pod: None) as house:
        key = await house.create(CRONJOBS, a_cronjob("tick"))
        await asyncio.sleep(130)
        assert len(await house.names(PODS)) == 2
        await house.delete(key)
        await asyncio.sleep(60)
        assert await house.names(JOBS) == []
        assert await house.names(PODS) == []


async def test_garbage_created_during_downtime_is_collected(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path) as house:
        job, other = await house.a_job("job"), await house.a_job("other")
        await a_config_map(house, "child", job)
        await a_config_map(house, "child-of-other", other)
        await house.delete(job, "Background")
        await house.delete(other, "Foreground")
    async with a_house(tmp_path, "garbage") as house:
        await asyncio.sleep(1)
        assert await house.names(CONFIG_MAPS) == []
        assert await house.names(JOBS) == []


async def test_state_of_deleted_objects_is_dropped(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage") as house:
        assert house.garbage is not None
        await asyncio.sleep(1)
        before = len(house.garbage)
        job = await house.a_job("job")
        for number in range(20):
            await a_config_map(house, f"child-{number}", job)
        await asyncio.sleep(1)
        assert len(house.garbage) == before + 21
        await house.delete(job, "Background")
        await asyncio.sleep(1)
        assert len(house.garbage) == before


class Meddling(LocalClient):
    """Client that changes the object right before each of the first deletions."""

    def __init__(self, service: Service, *changes: dict[str, Any]) -> None:
        super().__init__(service)
        self._changes = list(changes)
        self.deletions: list[Delete] = []

    async def write(self, op: Op) -> Written:
        if isinstance(op, Delete):
            self.deletions.append(op)
            if self._changes:
                body = msgspec.json.encode(self._changes.pop(0))
                await super().write(Patch(op.key, body, "merge"))
        return await super().write(op)


LABELLED = {"metadata": {"labels": {"a": "b"}}}
LABELLED_AGAIN = {"metadata": {"labels": {"a": "c"}}}
FREED: dict[str, Any] = {"metadata": {"ownerReferences": None}}


@pytest.mark.parametrize(
    ("changes", "survives", "tries"),
    [
        ([LABELLED], False, 2),
        ([FREED], True, 1),
        ([LABELLED, LABELLED_AGAIN], False, 3),
        ([LABELLED, FREED], True, 2),
    ],
)
async def test_a_change_just_before_the_deletion_matters_only_if_it_is_about_owners(
    tmp_path: Path, changes: list[dict[str, Any]], survives: bool, tries: int
) -> None:
    clients: list[Meddling] = []

    def meddling(service: Service) -> Meddling:
        clients.append(Meddling(service, *changes))
        return clients[0]

    async with a_house(tmp_path, "garbage", client_of=meddling) as house:
        child = await a_config_map(house, "child", ownerReferences=[absent()])
        await asyncio.sleep(10)
        assert await house.exists(child) is survives
        assert len(clients[0].deletions) == tries
        assert all(deletion.uid for deletion in clients[0].deletions)


async def test_garbage_deletes_an_object_that_keeps_changing(tmp_path: Path) -> None:
    changes = [{"metadata": {"labels": {"turn": str(turn)}}} for turn in range(12)]

    def meddling(service: Service) -> Meddling:
        return Meddling(service, *changes)

    async with a_house(tmp_path, "garbage", client_of=meddling) as house:
        child = await a_config_map(house, "child", ownerReferences=[absent()])
        await asyncio.sleep(60)
        assert not await house.exists(child)


@pytest.mark.parametrize("moment", ["before the patch", "after the patch"])
async def test_garbage_spares_an_object_adopted_while_its_owners_are_unblocked(
    tmp_path: Path, moment: str
) -> None:
    """The dependent waits for one of its own, so its owner is unblocked before it is deleted."""

    class Adopting(LocalClient):
        adopt: dict[str, Any] | None = None

        async def write(self, op: Op) -> Written:
            now = isinstance(op, Patch if moment == "before the patch" else Delete)
            if now and op_key(op) == middle and self.adopt is not None:
                body, self.adopt = msgspec.json.encode(self.adopt), None
                await super().write(Patch(middle, body, "merge"))
            return await super().write(op)

    def op_key(op: Op) -> Key | None:
        return getattr(op, "key", None)

    middle = Key(CONFIG_MAPS, "default", "middle")
    clients: list[Adopting] = []

    def adopting(service: Service) -> Adopting:
        clients.append(Adopting(service))
        return clients[0]

    async with a_house(tmp_path, "garbage", client_of=adopting) as house:
        first = await a_config_map(house, "first")
        await a_config_map(house, "middle", first)
        references = await owned_by(house, middle)
        # In a circle: the middle one is owned by the first and owns it.
        await house.patch(first, {"metadata": {"ownerReferences": references}})
        solid = await house.a_job("solid")
        await asyncio.sleep(1)
        owners = [*(await house.get(middle))["metadata"]["ownerReferences"]]
        adopted = [*owners, *await owned_by(house, solid)]
        clients[0].adopt = {"metadata": {"ownerReferences": adopted}}
        await house.delete(first, "Foreground")
        await asyncio.sleep(60)
        assert clients[0].adopt is None
        references = (await house.get(middle))["metadata"]["ownerReferences"]
        assert [reference["name"] for reference in references] == ["solid"]


class Busy(LocalClient):
    """Client that refuses the first deletions."""

    refusals = 3

    async def write(self, op: Op) -> Written:
        if isinstance(op, Delete) and self.refusals:
            self.refusals -= 1
            raise TooManyRequests("not now")
        return await super().write(op)


async def test_refused_deletion_is_counted_and_retried(tmp_path: Path) -> None:
    async with a_house(tmp_path, "garbage", client_of=Busy) as house:
        child = await a_config_map(house, "child", ownerReferences=[absent()])
        await asyncio.sleep(10)
        assert not await house.exists(child)
        assert house.metrics.garbage_sync_errors.value() == 3


async def test_thousands_of_owners_are_looked_up_and_dropped_without_holding_others_up(
    tmp_path: Path,
) -> None:
    longest = gets = 0

    class Counting(LocalClient):
        async def get(self, key: Key) -> bytes:
            nonlocal longest, gets
            if gets == 0:
                asyncio.get_running_loop().call_soon(next_turn)
            gets += 1
            longest = max(longest, gets)
            return await super().get(key)

    def next_turn() -> None:
        nonlocal gets
        gets = 0

    async with a_house(tmp_path, "garbage", client_of=Counting) as house:
        job = await house.a_job("job")
        (solid,) = await owned_by(house, job)
        lost = [{**absent(), "uid": f"no-such-uid-{number}"} for number in range(1000)]
        owned = await a_config_map(house, "owned", ownerReferences=[*lost, solid])
        await asyncio.sleep(1)
        assert (await house.get(owned))["metadata"]["ownerReferences"] == [solid]
        assert house.cluster.service.worker.runs == 1
    assert 100 <= longest <= 110
