"""ResourceQuotas: exact counts for all writers and for failed writes."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from onejob.api.service import Service
from onejob.client.base import Create, Delete
from onejob.client.local import LocalClient
from onejob.gates import FeatureGates
from onejob.objects.meta import PODS, Key
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from onejob.wire.errors import ApiError, Forbidden, Invalid
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import DeleteOptions, Outcome, WriteOptions
from sim.faulty_disk import Entry, FaultyDisk
from tests.api.service_support import (
    CONFIGMAP,
    NAMESPACE,
    PERSON,
    POD,
    a_map,
    a_pod,
    a_service,
    create,
    failure,
    read,
    served,
)

_QUOTA = BY_RESOURCE["resourcequotas"]
_LIMITS = BY_RESOURCE["limitranges"]
_CLAIM = BY_RESOURCE["persistentvolumeclaims"]


async def _bound(service: Service, **hard: str) -> None:
    named = {name.replace("__", "/"): amount for name, amount in hard.items()}
    await create(service, {"metadata": {"name": "q"}, "spec": {"hard": named}}, _QUOTA)


def _used(service: Service, name: str = "pods") -> str:
    return str(service.admission.quotas.used("default")["q"][1][name])


def test_pods_that_are_created_at_once_never_exceed_a_quota(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await _bound(service, pods="5")
        tries = [create(service, a_pod(f"p{n}"), POD) for n in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        refused = [result for result in results if isinstance(result, ApiError)]
        assert len(results) - len(refused) == 5
        assert all(isinstance(error, Forbidden) for error in refused)
        assert "used: pods=5, limited: pods=5" in refused[-1].message
        assert service.store.count(PODS, "default") == 5

    served(tmp_path, test)


def test_controllers_are_bound_by_a_quota_like_everybody(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        client = LocalClient(service)
        pod = b'{"metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        # Without a quota, such Pods take the fast path.
        for _ in range(2):
            await client.write(Create(PODS, "default", pod))
        await _bound(service, pods="4")
        results = await client.write_many([Create(PODS, "default", pod)] * 5)
        assert [isinstance(result, Forbidden) for result in results] == [False] * 2 + [True] * 3

    served(tmp_path, test)


def test_a_pod_that_ends_or_goes_makes_room(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await _bound(service, pods="2", count__pods="3")
        for name in "ab":
            await create(service, a_pod(name), POD)
        ended = {"status": {"phase": "Succeeded"}}
        await service.patch(POD, "default", "a", "merge", ended, PERSON, subresource="status")
        assert (_used(service), _used(service, "count/pods")) == ("1", "2")
        await LocalClient(service).write(Delete(Key(PODS, "default", "b"), grace_seconds=0))
        assert (_used(service), _used(service, "count/pods")) == ("0", "1")

    served(tmp_path, test)


def test_no_pod_makes_room_by_asking_for_less_than_nothing(tmp_path: Path) -> None:
    """Quotas count the requests of a Pod as a whole, where it has them."""
    asking = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
    tries: list[dict[str, Any]] = [
        {"overhead": {"cpu": "-5"}},
        {"resources": {"requests": {"cpu": "-5"}}},
        {"resources": {"requests": {"cpu": "0"}}},
    ]

    async def test(service: Service) -> None:
        await _bound(service, **{"requests.cpu": "1"})
        for fields in tries:
            pod = {"metadata": {"name": "p"}, "spec": {"containers": asking, **fields}}
            refused = await failure(create(service, pod, POD))
            assert isinstance(refused, Invalid), fields
        assert _used(service, "requests.cpu") == "0"

    served(tmp_path, test)


def _a_claim(name: str, storage: str) -> dict[str, Any]:
    resources = {"requests": {"storage": storage}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("storage", ["-5Gi", "0"])
def test_no_claim_makes_room_by_asking_for_less_than_nothing(tmp_path: Path, storage: str) -> None:
    async def test(service: Service) -> None:
        await _bound(service, **{"requests.storage": "1Gi"})
        refused = await failure(create(service, _a_claim("less", storage), _CLAIM))
        assert isinstance(refused, Invalid)
        text = f'spec.resources[storage]: Invalid value: "{storage}": must be greater than zero'
        assert text in refused.message
        await create(service, _a_claim("one", "1Gi"), _CLAIM)
        size = {"spec": _a_claim("one", storage)["spec"]}
        refused = await failure(service.patch(_CLAIM, "default", "one", "merge", size, PERSON))
        assert isinstance(refused, Invalid)
        assert _used(service, "requests.storage") == "1Gi"

    served(tmp_path, test)


def test_a_claim_does_not_outgrow_its_limit_later(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}]
        document = {"metadata": {"name": "bounds"}, "spec": {"limits": limits}}
        await create(service, document, _LIMITS)
        growing = {"metadata": {"name": "g"}, "provisioner": "x", "allowVolumeExpansion": True}
        await create(service, growing, BY_RESOURCE["storageclasses.storage.k8s.io"], "")
        claim = _a_claim("c", "1Gi")
        claim["spec"]["storageClassName"] = "g"
        await create(service, claim, _CLAIM)
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
        await service.patch(_CLAIM, "default", "c", "merge", bound, PERSON, subresource="status")
        for storage, allowed in (("2Gi", True), ("3Gi", False)):
            size = {"spec": _a_claim("c", storage)["spec"]}
            change = service.patch(_CLAIM, "default", "c", "merge", size, PERSON)
            if allowed:
                await change
            else:
                refused = await failure(change)
                assert isinstance(refused, Forbidden)
                assert "maximum storage usage per PersistentVolumeClaim is 2Gi" in refused.message

    served(tmp_path, test)


def test_dry_run_is_checked_but_uses_no_quota(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await _bound(service, pods="1")
        dry = WriteOptions(PERSON.user, dry_run=True)
        for _ in range(2):
            await service.create(POD, "default", a_pod(), dry)
        await create(service, a_pod(), POD)
        error = await failure(service.create(POD, "default", a_pod("q"), dry))
        assert isinstance(error, Forbidden)

    served(tmp_path, test)


async def test_a_large_object_is_counted_when_it_is_staged_and_not_before(tmp_path: Path) -> None:
    """Such writes are decided in another thread, while others go on."""

    async def test(service: Service) -> None:
        await _bound(service, count__configmaps="1")

        def large(name: str) -> dict[str, Any]:
            return {**a_map(name), "data": {"k": "x" * 900_000}}

        results = await asyncio.gather(
            *(
                service.create(CONFIGMAP, "default", large(name), PERSON, size=900_000)
                for name in "abc"
            ),
            return_exceptions=True,
        )
        made = [result for result in results if isinstance(result, Outcome)]
        refused = [result for result in results if isinstance(result, Forbidden)]
        assert (len(made), len(refused)) == (1, 2)

    # With real threads, hence in real time.
    async with a_service(tmp_path) as service:
        await test(service)


def test_objects_older_than_quota_or_restart_are_counted(tmp_path: Path) -> None:
    async def fill(service: Service) -> None:
        for name in "abc":
            await create(service, a_pod(name), POD)
        ended = {"status": {"phase": "Failed"}}
        await service.patch(POD, "default", "c", "merge", ended, PERSON, subresource="status")
        await _bound(service, pods="3", count__pods="9")
        assert (_used(service), _used(service, "count/pods")) == ("2", "3")

    served(tmp_path, fill)

    async def restarted() -> None:
        clock = virtual_clock()
        store = await LogStore.open(tmp_path / "db", clock=clock, committer=LoopCommitter())
        service = Service(store, clock=clock, rng=Random(7), gates=FeatureGates())
        assert (_used(service), _used(service, "count/pods")) == ("2", "3")
        await create(service, a_pod("d"), POD)
        assert isinstance(await failure(create(service, a_pod("e"), POD)), Forbidden)
        await store.close()

    run_virtual(restarted())


def _fail_to_write(entry: Entry) -> None:
    if entry.what == "write":
        raise apsw.FullError("injected")


@pytest.mark.virtual_time
async def test_a_write_that_could_not_be_stored_uses_nothing(tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        clock = virtual_clock()
        store = await LogStore.open(
            tmp_path / "db", clock=clock, committer=LoopCommitter(), vfs=disk.name
        )
        service = Service(store, clock=clock, rng=Random(7), gates=FeatureGates())
        await create(service, {"metadata": {"name": "default"}}, NAMESPACE, "")
        await _bound(service, pods="1")
        disk.before = _fail_to_write
        assert (await failure(create(service, a_pod(), POD))).code == 507
        disk.before = lambda _: None
        assert _used(service) == "0"
        await create(service, a_pod(), POD)
        assert isinstance(await failure(create(service, a_pod("b"), POD)), Forbidden)
        await store.close()


def test_defaults_of_one_namespace_do_not_reach_another(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, {"metadata": {"name": "other"}}, NAMESPACE, "")
        item = {"type": "Container", "default": {"cpu": "2"}}
        await create(service, {"metadata": {"name": "l"}, "spec": {"limits": [item]}}, _LIMITS)
        client = LocalClient(service)
        pod = b'{"metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        cpus = []
        for namespace in ("other", "default", "other", "default"):
            written = read((await client.write(Create(PODS, namespace, pod))).document)
            resources = written["spec"]["containers"][0].get("resources", {})
            cpus.append(resources.get("limits", {}).get("cpu"))
        assert cpus == [None, "2", None, "2"]

    served(tmp_path, test)


def test_deleted_quota_and_limit_range_have_no_effect(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await _bound(service, pods="0")
        assert isinstance(await failure(create(service, a_pod(), POD)), Forbidden)
        await service.delete(_QUOTA, "default", "q", DeleteOptions())
        await create(service, a_pod(), POD)

    served(tmp_path, test)
