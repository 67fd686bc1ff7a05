"""Writes under dynamic admission: both phases, mutation, concurrency and onejob's own writers."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from onejob.api.admission.dynamic.plugins import Review
from onejob.api.documents import deep_copy
from onejob.api.service import Service
from onejob.client.base import Create, Delete, Patch
from onejob.client.local import LocalClient
from onejob.objects.meta import PODS, Key
from onejob.wire.errors import ApiError, Forbidden, Invalid
from onejob.wire.requests import DeleteOptions
from tests.api.admission.dynamic_support import Plugin, accept, install
from tests.api.service_support import CONFIGMAP, PERSON, POD, a_map, a_pod, create, read, served


def _set(*path: str, value: object) -> "Plugin":
    async def decide(review: Review) -> None:
        if review.request.object is None:
            return
        document = deep_copy(review.request.object)
        place = document
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
        review.replace_object(document)

    return Plugin(decide)


async def _refuse(review: Review) -> None:
    raise Forbidden("refused by a test")


def test_a_new_object_is_mutated_and_then_validated(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        mutating, validating = _set("data", "added", value="yes"), Plugin(accept)
        install(service, mutating=mutating, validating=validating)
        body = {"metadata": {"generateName": "m-"}, "data": {"k": "v"}}
        made = read((await service.create(CONFIGMAP, "default", body, PERSON)).document)
        assert made["data"] == {"k": "v", "added": "yes"}
        (first,), (second,) = mutating.requests, validating.requests
        assert first.operation == "CREATE"
        assert first.object is not None
        # As upstream: generated fields are set after the mutating phase.
        assert first.name == ""
        assert "uid" not in first.object["metadata"]
        assert second.object is not None
        assert second.name == made["metadata"]["name"]
        assert second.object["metadata"]["uid"] == made["metadata"]["uid"]
        assert second.object["data"] == made["data"]

    served(tmp_path, test)


def test_a_mutated_object_is_validated_by_the_rules_of_its_kind(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        install(service, mutating=_set("spec", "restartPolicy", value="Nope"), validating=None)
        with pytest.raises(Invalid, match=r"spec\.restartPolicy"):
            await create(service, a_pod(), POD)

    served(tmp_path, test)


def test_a_mutated_object_gets_defaults(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        added = [{"name": "added", "image": "busybox"}]
        install(service, mutating=_set("spec", "containers", value=added), validating=None)
        made = read((await service.create(POD, "default", a_pod(), PERSON)).document)
        (container,) = made["spec"]["containers"]
        assert container["terminationMessagePath"] == "/dev/termination-log"

    served(tmp_path, test)


def test_an_update_is_mutated_with_its_old_state(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("m"), CONFIGMAP)
        mutating = _set("metadata", "labels", value={"by": "plugin"})
        install(service, mutating=mutating, validating=Plugin(accept))
        patch = {"data": {"k": "new"}}
        outcome = await service.patch(CONFIGMAP, "default", "m", "merge", patch, PERSON)
        written = read(outcome.document)
        assert written["data"] == {"k": "new"}
        assert written["metadata"]["labels"] == {"by": "plugin"}
        (request,) = mutating.requests
        assert request.old_object is not None
        assert request.old_object["data"] == {"k": "v"}
        assert request.options["kind"] == "UpdateOptions"

    served(tmp_path, test)


def test_a_rejected_write_leaves_no_trace(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("m"), CONFIGMAP)
        before = service.store.revision
        install(service, mutating=None, validating=Plugin(_refuse))
        with pytest.raises(Forbidden, match="refused by a test"):
            await create(service, a_map("other"), CONFIGMAP)
        with pytest.raises(Forbidden, match="refused by a test"):
            await service.delete(CONFIGMAP, "default", "m", DeleteOptions())
        with pytest.raises(Forbidden, match="refused by a test"):
            await service.patch(CONFIGMAP, "default", "m", "merge", {"data": None}, PERSON)
        assert service.store.revision == before

    served(tmp_path, test)


def test_a_write_is_evaluated_again_if_its_object_has_changed_in_the_meantime(
    tmp_path: Path,
) -> None:
    async def test(service: Service) -> None:
        await create(service, a_map("m"), CONFIGMAP)
        changed = False

        async def decide(review: Review) -> None:
            nonlocal changed
            if not changed:
                changed = True
                patch = {"data": {"other": "1"}}
                await service.patch(CONFIGMAP, "default", "m", "merge", patch, PERSON)

        validating = Plugin(decide)
        install(service, mutating=None, validating=validating)
        patch = {"data": {"k": "2"}}
        outcome = await service.patch(CONFIGMAP, "default", "m", "merge", patch, PERSON)
        assert read(outcome.document)["data"] == {"k": "2", "other": "1"}
        # The outer write, the inner one, and the outer one again with the new state.
        assert len(validating.requests) == 3
        old = validating.requests[-1].old_object
        assert old is not None
        assert old["data"] == {"k": "v", "other": "1"}

    served(tmp_path, test)


def test_no_request_waits_for_the_plugin_of_another(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        async def decide(review: Review) -> None:
            if review.request.name == "slow":
                await asyncio.sleep(60)

        install(service, mutating=Plugin(decide), validating=None)
        loop = asyncio.get_running_loop()
        slow = asyncio.create_task(create(service, a_map("slow"), CONFIGMAP))
        await asyncio.sleep(0)
        began = loop.time()
        await create(service, a_map("fast"), CONFIGMAP)
        assert loop.time() == began
        await slow

    served(tmp_path, test)


def test_a_large_write_is_mutated_in_the_worker_thread(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        install(service, mutating=_set("data", "added", value="yes"), validating=None)
        body = {"metadata": {"name": "m"}, "data": {"k": "v" * 100_000}}
        outcome = await service.create(CONFIGMAP, "default", body, PERSON, size=100_000)
        assert read(outcome.document)["data"]["added"] == "yes"
        assert service.worker.runs

    served(tmp_path, test)


def test_onejobs_own_writers_are_subject_to_it(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        mutating = _set("metadata", "labels", value={"by": "plugin"})
        install(service, mutating=mutating, validating=None)
        client = LocalClient(service)
        pod = {**a_pod(""), "metadata": {"generateName": "p-"}}
        ops = [Create(PODS, "default", msgspec.json.encode(pod)) for _ in range(3)]
        results = await client.write_many(ops)
        names = []
        for result in results:
            assert not isinstance(result, ApiError)
            metadata = read(result.document)["metadata"]
            assert metadata["labels"] == {"by": "plugin"}
            names.append(metadata["name"])
        key = Key(PODS, "default", names[0])
        status = msgspec.json.encode({"status": {"phase": "Running"}})
        await client.write_many([Patch(key, status, "strategic", "status"), Delete(key)])
        asked = [(request.operation, request.subresource) for request in mutating.requests]
        assert asked == [("CREATE", "")] * 3 + [("UPDATE", "status"), ("DELETE", "")]

    served(tmp_path, test)


def test_configurations_of_admission_are_exempt(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        validating = Plugin(_refuse)
        install(service, mutating=None, validating=validating)
        kind = service.kinds.by_resource[
            "validatingwebhookconfigurations.admissionregistration.k8s.io"
        ]
        await create(service, {"metadata": {"name": "w"}}, kind)
        assert not validating.requests

    served(tmp_path, test)


def test_writes_that_no_configuration_concerns_are_staged_directly(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        validating = Plugin(_refuse, concerns=lambda operation, kind, sub: kind is POD)
        install(service, mutating=None, validating=validating)
        await create(service, a_map("m"), CONFIGMAP)
        with pytest.raises(Forbidden):
            await create(service, a_pod(), POD)
        assert len(validating.requests) == 1

    served(tmp_path, test)


def test_without_any_configuration_no_plugin_is_consulted(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        def fail(*_: object) -> bool:
            raise AssertionError("a write consulted a plugin without configurations")

        plugin = Plugin(_refuse, concerns=fail)
        plugin.active = False
        install(service, mutating=plugin, validating=plugin)
        await create(service, a_map("m"), CONFIGMAP)
        await service.patch(CONFIGMAP, "default", "m", "merge", {"data": {"a": "b"}}, PERSON)
        await service.delete(CONFIGMAP, "default", "m", DeleteOptions())
        client = LocalClient(service)
        pod = {**a_pod(""), "metadata": {"generateName": "p-"}}
        (made,) = await client.write_many([Create(PODS, "default", msgspec.json.encode(pod))])
        assert not isinstance(made, ApiError)
        await client.write(Delete(Key(PODS, "default", read(made.document)["metadata"]["name"])))
        assert service.worker.runs == 0

    served(tmp_path, test)
