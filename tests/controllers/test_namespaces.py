"""Namespace controller on the real store and API, in virtual time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from onejob.client.base import Delete, Op, Result
from onejob.client.local import LocalClient
from onejob.objects.meta import JOBS, NAMESPACES, PODS, Key
from onejob.wire.errors import Forbidden
from tests.build import a_job
from tests.controllers.housekeeping import ROOT_CA, TEMPLATE, House, a_house

pytestmark = pytest.mark.virtual_time

ACCOUNT = Key("serviceaccounts", "team", "default")
AUTHORITY = Key("configmaps", "team", "kube-root-ca.crt")


async def a_namespace(house: House, name: str = "team") -> Key:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return await house.create(NAMESPACES, document, "")


async def test_each_namespace_has_a_service_account_and_the_root_certificate(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "namespaces") as house:
        await a_namespace(house)
        await asyncio.sleep(1)
        assert await house.exists(ACCOUNT)
        assert (await house.get(AUTHORITY))["data"] == {"ca.crt": ROOT_CA}
        for name in ("default", "kube-system"):
            assert await house.exists(Key("serviceaccounts", name, "default"))


async def test_deleted_or_damaged_default_objects_are_restored(tmp_path: Path) -> None:
    async with a_house(tmp_path, "namespaces") as house:
        await a_namespace(house)
        await asyncio.sleep(1)
        await house.delete(ACCOUNT)
        await house.patch(AUTHORITY, {"data": {"ca.crt": "wrong", "more": "too much"}})
        await asyncio.sleep(1)
        assert await house.exists(ACCOUNT)
        assert (await house.get(AUTHORITY))["data"] == {"ca.crt": ROOT_CA}
        await house.delete(AUTHORITY)
        await asyncio.sleep(1)
        assert await house.exists(AUTHORITY)


async def test_a_deleted_namespace_is_emptied_and_vanishes(tmp_path: Path) -> None:
    everything = ("namespaces", "garbage", "jobs", "cronjobs")
    async with a_house(tmp_path, *everything, script=lambda pod: None) as house:
        namespace = await a_namespace(house)
        await house.create(JOBS, a_job("job", completions=3, parallelism=3), "team")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}}
        await house.create("secrets", secret, "team")
        await asyncio.sleep(10)
        assert len(await house.names(PODS, "team")) == 3
        await house.delete(namespace, "")
        assert (await house.get(namespace))["status"]["phase"] == "Terminating"
        with pytest.raises(Forbidden, match="being terminated"):
            await house.create("secrets", secret, "team")
        await asyncio.sleep(60)
        assert not await house.exists(namespace)
        for resource in (JOBS, PODS, "secrets", "serviceaccounts", "configmaps", "events"):
            assert await house.names(resource, "team") == []


async def test_namespace_deletion_waits_for_finalizers(tmp_path: Path) -> None:
    async with a_house(tmp_path, "namespaces") as house:
        namespace = await a_namespace(house)
        metadata = {"name": "held", "finalizers": ["example.org/keep"]}
        held = await house.create(
            "configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata},
            "team",
        )
        await house.delete(namespace, "")
        await asyncio.sleep(600)
        assert await house.exists(namespace)
        assert await house.names("configmaps", "team") == ["held"]
        assert await told(house, namespace) == {
            "NamespaceDeletionDiscoveryFailure": "ResourcesDiscovered",
            "NamespaceDeletionGroupVersionParsingFailure": "ParsedGroupVersions",
            "NamespaceDeletionContentFailure": "ContentDeleted",
            "NamespaceContentRemaining": "SomeResourcesRemain",
            "NamespaceFinalizersRemaining": "SomeFinalizersRemain",
        }
        revision = (await house.get(namespace))["metadata"]["resourceVersion"]
        await asyncio.sleep(600)
        assert (await house.get(namespace))["metadata"]["resourceVersion"] == revision
        await house.patch(held, {"metadata": {"finalizers": None}})
        await asyncio.sleep(10)
        assert not await house.exists(namespace)
        await a_namespace(house)
        await asyncio.sleep(1)
        assert await house.exists(ACCOUNT)


async def test_config_objects_are_deleted_after_last_pod(tmp_path: Path) -> None:
    async with a_house(tmp_path, "namespaces") as house:
        namespace = await a_namespace(house)
        for name in ("free", "held"):
            metadata = {"name": name, "finalizers": ["example.org/keep"] * (name == "held")}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **TEMPLATE}
            await house.create(PODS, pod, "team")
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "used"}}
        used = await house.create("configmaps", config, "team")
        await house.delete(namespace, "")
        await asyncio.sleep(120)
        assert await house.names(PODS, "team") == ["held"]
        assert "deletionTimestamp" not in (await house.get(used))["metadata"]
        assert await house.exists(ACCOUNT)
        reasons = await told(house, namespace)
        assert reasons["NamespaceContentRemaining"] == "SomeResourcesRemain"
        assert reasons["NamespaceFinalizersRemaining"] == "SomeFinalizersRemain"
        await house.patch(Key(PODS, "team", "held"), {"metadata": {"finalizers": None}})
        await asyncio.sleep(20)
        assert not await house.exists(namespace)
        assert await house.names("configmaps", "team") == []


async def test_empty_namespace_with_foreign_finalizer_reports_empty(
    tmp_path: Path,
) -> None:
    async with a_house(tmp_path, "namespaces") as house:
        document = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "team"},
            "spec": {"finalizers": ["kubernetes", "example.org/keep"]},
        }
        namespace = await house.create(NAMESPACES, document, "")
        await asyncio.sleep(1)
        await house.delete(namespace, "")
        await asyncio.sleep(60)
        reasons = await told(house, namespace)
        assert reasons["NamespaceContentRemaining"] == "ContentRemoved"
        assert reasons["NamespaceFinalizersRemaining"] == "ContentHasNoFinalizers"


class Refusing(LocalClient):
    """Client that refuses the deletion of Secrets."""

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        refused = Forbidden("secrets may not be deleted")
        return [
            refused
            if isinstance(op, Delete) and op.key.resource == "secrets"
            else (await super(Refusing, self).write_many([op]))[0]
            for op in ops
        ]


async def test_failed_namespace_deletion_reports_reason(tmp_path: Path) -> None:
    async with a_house(tmp_path, "namespaces", client_of=Refusing) as house:
        namespace = await a_namespace(house)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}}
        await house.create("secrets", secret, "team")
        await house.delete(namespace, "")
        await asyncio.sleep(60)
        conditions = (await house.get(namespace))["status"]["conditions"]
        failure = next(c for c in conditions if c["type"] == "NamespaceDeletionContentFailure")
        assert failure["status"] == "True"
        assert failure["message"] == (
            "Failed to delete all resource types, 1 remaining: secrets may not be deleted"
        )


async def told(house: House, namespace: Key) -> dict[str, str]:
    conditions = (await house.get(namespace))["status"]["conditions"]
    return {condition["type"]: condition["reason"] for condition in conditions}


async def test_a_large_namespace_is_emptied_page_by_page(tmp_path: Path) -> None:
    async with a_house(tmp_path, "namespaces", "garbage") as house:
        namespace = await a_namespace(house)
        names = [f"job-{number}" for number in range(1200)]
        await house.many_finished_jobs(names, namespace="team")
        await house.delete(namespace, "")
        await asyncio.sleep(10)
        assert await house.names(JOBS) == []
        assert not await house.exists(namespace)
