"""Conversion webhooks of custom resources: reads, lists, watches and writes in two versions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from onejob.api.service import Service
from onejob.wire.errors import ConversionFailed
from onejob.wire.kinds import BY_RESOURCE, Kind
from onejob.wire.requests import DeleteOptions, ListOptions, WatchOptions
from tests.api.crd.build import a_definition, a_version, text, thing, widget
from tests.api.service_support import PERSON, create, read
from tests.webhooks.support import (
    Doc,
    Hook,
    RespondRaw,
    a_calling_service,
    a_hook,
    a_raw_hook,
    a_webhook,
    configure,
    http_response,
    patch,
)

_DEFINITION = BY_RESOURCE["customresourcedefinitions.apiextensions.k8s.io"]


def _convert(document: Doc, version: str) -> Doc:
    """Convert between `spec.old` of v1beta1 and `spec.new` of v1."""
    before, after = ("old", "new") if version == "example.com/v1" else ("new", "old")
    return {**document, "apiVersion": version, "spec": {after: document["spec"][before]}}


async def _converter(path: str, body: bytes) -> bytes:
    request = msgspec.json.decode(body)["request"]
    wanted = request["desiredAPIVersion"]
    return _response(request, [_convert(document, wanted) for document in request["objects"]])


def _response(request: Doc, objects: list[Doc], **result: str) -> bytes:
    response = {
        "uid": request["uid"],
        "convertedObjects": objects,
        "result": {"status": "Success", **result},
    }
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return http_response(msgspec.json.encode({**review, "response": response}))


@asynccontextmanager
async def _served(
    folder: Path, respond: RespondRaw = _converter
) -> AsyncIterator[tuple[Service, Kind, Kind]]:
    """Run a service with Widgets of two versions; yield their kinds, the stored one first."""
    async with a_raw_hook(folder, respond) as hook, a_calling_service(folder) as service:
        yield await _define(service, hook)


async def _define(service: Service, hook: Hook) -> tuple[Service, Kind, Kind]:
    webhook = {"clientConfig": hook.client(), "conversionReviewVersions": ["v1"]}
    definition = a_definition(
        a_version(thing({"new": text()}), name="v1"),
        a_version(thing({"old": text()}), name="v1beta1", storage=False),
        conversion={"strategy": "Webhook", "webhook": webhook},
    )
    made = await create(service, definition, _DEFINITION, "")
    service.definitions.install({**made, "status": {"acceptedNames": made["spec"]["names"]}})
    by_path = service.kinds.by_path
    versions = [by_path["example.com", version, "widgets"] for version in ("v1", "v1beta1")]
    return service, versions[0], versions[1]


async def test_objects_are_served_and_written_in_both_versions(tmp_path: Path) -> None:
    async with _served(tmp_path) as (service, stored, old):
        body = widget(version="v1beta1", spec={"old": "1"})
        made = read((await service.create(old, "default", body, PERSON)).document)
        assert (made["apiVersion"], made["spec"]) == ("example.com/v1beta1", {"old": "1"})
        found = read(await service.get(stored, "default", "a"))
        assert (found["apiVersion"], found["spec"]) == ("example.com/v1", {"new": "1"})
        found = read(await service.get(old, "default", "a"))
        assert found["metadata"] == made["metadata"]
        change = {"spec": {"old": "2"}}
        await service.patch(old, "default", "a", "merge", change, PERSON)
        (listed,) = (await service.list(stored, "default", ListOptions())).documents
        assert read(listed)["spec"] == {"new": "2"}
        (listed,) = (await service.list(old, "default", ListOptions())).documents
        assert read(listed)["spec"] == {"old": "2"}
        await service.delete(old, "default", "a", DeleteOptions())
        assert not (await service.list(old, "default", ListOptions())).documents


async def test_objects_stored_before_the_storage_version_changed_are_converted(
    tmp_path: Path,
) -> None:
    async with _served(tmp_path) as (service, stored, old):
        await service.create(stored, "default", widget("before", spec={"new": "1"}), PERSON)
        definition = read(service.stored(_DEFINITION, "", "widgets.example.com").value)
        for version in definition["spec"]["versions"]:
            version["storage"] = version["name"] == "v1beta1"
        definition["metadata"]["generation"] += 1
        status = {
            "acceptedNames": definition["spec"]["names"],
            "storedVersions": ["v1", "v1beta1"],
        }
        service.definitions.install({**definition, "status": status})
        by_path = service.kinds.by_path
        new, old = (by_path["example.com", name, "widgets"] for name in ("v1", "v1beta1"))
        assert new.stored_as
        body = widget("after", version="v1beta1", spec={"old": "2"})
        await service.create(old, "default", body, PERSON)

        def specs_of(kind: Kind, documents: Sequence[bytes]) -> list[Doc]:
            shown = service.strategies[kind.strategy].shown
            return [read(shown(document))["spec"] for document in documents]

        for kind, field in ((new, "new"), (old, "old")):
            listed = (await service.list(kind, "default", ListOptions())).documents
            assert specs_of(kind, listed) == [{field: "2"}, {field: "1"}]
            found = await service.get(kind, "default", "before")
            assert specs_of(kind, [found]) == [{field: "1"}]
            async with aclosing(service.watch(kind, "default", WatchOptions())) as batches:
                events = await asyncio.wait_for(anext(batches), 60)
            watched = specs_of(kind, [event.document for event in events])
            assert watched == [{field: "2"}, {field: "1"}]
        labelled = {"metadata": {"labels": {"seen": "yes"}}}
        await service.patch(old, "default", "before", "merge", labelled, PERSON)
        rewritten = read(service.stored(old, "default", "before").value)
        assert rewritten["apiVersion"] == "example.com/v1beta1"
        assert rewritten["spec"] == {"old": "1"}
        assert rewritten["metadata"]["labels"] == {"seen": "yes"}


async def test_a_watch_converts_its_events(tmp_path: Path) -> None:
    async with _served(tmp_path) as (service, stored, old):
        await service.create(stored, "default", widget(spec={"new": "1"}), PERSON)
        async with aclosing(service.watch(old, "default", WatchOptions())) as batches:
            (event,) = await asyncio.wait_for(anext(batches), 60)
        assert read(event.document)["spec"] == {"old": "1"}


async def test_concurrent_patches_in_the_converted_version_are_all_applied(tmp_path: Path) -> None:
    async with _served(tmp_path) as (service, stored, old):
        await service.create(stored, "default", widget(spec={"new": "1"}), PERSON)
        changes = [{"metadata": {"labels": {f"n{n}": "1"}}} for n in range(3)]
        await asyncio.gather(
            *(service.patch(old, "default", "a", "merge", one, PERSON) for one in changes)
        )
        found = read(await service.get(stored, "default", "a"))
        assert found["metadata"]["labels"] == {"n0": "1", "n1": "1", "n2": "1"}


async def test_a_webhook_gets_the_version_of_its_rule(tmp_path: Path) -> None:
    def respond(request: Doc) -> Doc:
        return patch({"op": "replace", "path": "/spec/old", "value": "mutated"})

    async with a_hook(tmp_path, respond) as hook, _served(tmp_path) as (service, stored, _):
        rule = {
            "operations": ["CREATE"],
            "apiGroups": ["example.com"],
            "apiVersions": ["v1beta1"],
            "resources": ["widgets"],
        }
        await configure(service, a_webhook(hook, rules=[rule]), mutating=True)
        body = widget(spec={"new": "1"})
        made = read((await service.create(stored, "default", body, PERSON)).document)
        assert made["spec"] == {"new": "mutated"}
        request = hook.reviews[0]["request"]
        assert request["object"]["spec"] == {"old": "1"}
        assert request["kind"]["version"] == "v1beta1"
        assert request["requestKind"]["version"] == "v1"


async def _failure(path: str, body: bytes) -> bytes:
    request = msgspec.json.decode(body)["request"]
    return _response(request, [], status="Failed", message="cannot do that")


async def _too_few(path: str, body: bytes) -> bytes:
    return _response(msgspec.json.decode(body)["request"], [])


async def _another_object(path: str, body: bytes) -> bytes:
    request = msgspec.json.decode(body)["request"]
    (document,) = request["objects"]
    converted = _convert(document, request["desiredAPIVersion"])
    return _response(request, [{**converted, "metadata": {"name": "other"}}])


async def _unconverted(path: str, body: bytes) -> bytes:
    request = msgspec.json.decode(body)["request"]
    return _response(request, request["objects"])


async def _garbage(path: str, body: bytes) -> bytes:
    return http_response(b"[")


@pytest.mark.parametrize(
    ("respond", "why"),
    [
        (_failure, "failed: cannot do that"),
        (_too_few, "returned 0 objects, expected 1"),
        (_another_object, "returned invalid object: must have the same name: a != other"),
        (
            _unconverted,
            "returned invalid object at index 0: invalid groupVersion "
            "(expected example.com/v1beta1, received example.com/v1)",
        ),
        (_garbage, "failed: cannot decode the response"),
    ],
)
async def test_a_faulty_conversion_fails_the_request(
    tmp_path: Path, respond: RespondRaw, why: str
) -> None:
    async with _served(tmp_path, respond) as (service, stored, old):
        await service.create(stored, "default", widget(spec={"new": "1"}), PERSON)
        with pytest.raises(ConversionFailed) as failure:
            await service.get(old, "default", "a")
        text = "conversion webhook for example.com/v1, Kind=Widget "
        assert failure.value.message.startswith(text)
        assert why in failure.value.message
        # The stored version needs no conversion.
        await service.get(stored, "default", "a")
