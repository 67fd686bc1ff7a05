"""Defaults of a structural schema: their size is bounded before they are filled in."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.crd.defaulting import added_bytes, apply_defaults
from onejob.api.crd.strategy import CustomStrategy
from onejob.api.crd.structural import Node
from onejob.api.service import Service
from onejob.api.writing.context import MAX_OBJECT_BYTES
from onejob.wire.errors import RequestTooLarge
from onejob.wire.kinds import BY_RESOURCE, Kind
from tests.api.crd.build import a_definition, a_version, text, thing, widget
from tests.api.service_support import PERSON, create, failure, read, served

DEFINITION = BY_RESOURCE["customresourcedefinitions.apiextensions.k8s.io"]


def listing(default: Any) -> dict[str, Any]:
    """Return the schema of a spec whose list items each get `default`."""
    item = thing({"filler": {**text(), "default": default}})
    return thing({"items": {"type": "array", "items": item}})


async def serve(service: Service, *versions: dict[str, Any]) -> None:
    made = await create(service, a_definition(*versions), DEFINITION, "")
    service.definitions.install({**made, "status": {"acceptedNames": made["spec"]["names"]}})


def items(count: int) -> dict[str, Any]:
    return {"items": [{} for _ in range(count)]}


@pytest.mark.parametrize(
    "value",
    [{}, {"list": [{}, {"a": "x"}]}, {"map": {"k": {}}}, {"nested": {}}, {"nested": {"in": {}}}],
)
def test_added_bytes_bounds_size_of_defaults(value: dict[str, Any]) -> None:
    item = thing({"a": {**text(), "default": "dear"}, "b": {"type": "integer", "default": 7}})
    schema = thing(
        {
            "list": {"type": "array", "items": item},
            "map": {"type": "object", "additionalProperties": item},
            "nested": {**thing({"in": {**item, "default": {}}}), "default": {"in": {"b": 1}}},
        }
    )
    before = len(msgspec.json.encode(value))
    predicted = added_bytes(value, Node(schema))
    apply_defaults(value, Node(schema))
    added = len(msgspec.json.encode(value)) - before
    # The first member needs no comma.
    assert added <= predicted <= added + 8


def test_create_is_refused_before_its_defaults_are_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(value: Any, node: Node) -> None:
        raise AssertionError("the defaults of 20,000 items take 1.2 GB")

    async def test(service: Service) -> None:
        await serve(service, a_version(listing("x" * 60_000)), a_version(name="v2", storage=False))
        monkeypatch.setattr("onejob.api.crd.strategy.apply_defaults", fill)
        kind = service.kinds.by_resource["widgets.example.com"]
        body = widget(spec=items(20_000))
        refused = await failure(service.create(kind, "default", body, PERSON, size=60_000))
        assert isinstance(refused, RequestTooLarge)
        assert str(MAX_OBJECT_BYTES) in refused.message

    served(tmp_path, test)


def test_shown_leaves_out_defaults_that_are_too_large() -> None:
    """An object stored before the default was added must not make its list unreadable."""
    kind = Kind("example.com", "v1", "Widget", "widgets", "widget", custom=True)
    strategy = CustomStrategy(kind, a_version(listing("x" * 60_000)))
    stored = msgspec.json.encode(widget(spec=items(1000)))
    assert read(strategy.shown(stored)) == widget(spec=items(1000))
    assert len(read(strategy.shown(msgspec.json.encode(widget(spec=items(1)))))["spec"]["items"][0])


@pytest.mark.parametrize("verb", ["create", "update", "apply", "merge", "json"])
def test_small_body_with_large_defaults_is_worked_on_by_the_worker(
    tmp_path: Path, verb: str
) -> None:
    async def write(service: Service) -> None:
        kind = service.kinds.by_resource["widgets.example.com"]
        if verb == "create":
            await service.create(kind, "default", widget("b", spec=items(1000)), PERSON, size=4000)
        elif verb == "update":
            old = read(await service.get(kind, "default", "a"))
            body = {**old, "spec": items(1000)}
            await service.update(kind, "default", "a", body, PERSON, size=4000)
        elif verb == "json":
            patch = [{"op": "add", "path": "/spec", "value": items(1000)}]
            await service.patch(kind, "default", "a", "json", patch, PERSON, size=4000)
        else:
            name = "new" if verb == "apply" else "a"
            body = widget(name, spec=items(1000))
            await service.patch(kind, "default", name, verb, body, PERSON, size=4000)

    async def test(service: Service) -> None:
        await serve(service, a_version(listing("x" * 100)))
        kind = service.kinds.by_resource["widgets.example.com"]
        await service.create(kind, "default", widget(spec=items(1)), PERSON, size=100)
        assert service.worker.runs == 0
        await write(service)
        assert service.worker.runs == 1

    served(tmp_path, test)


def test_other_version_is_checked_by_the_worker_if_its_defaults_are_large(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        other = a_version(listing("x" * 100), name="v2", storage=False)
        await serve(service, a_version(listing("x" * 100)), other)
        kind = next(kind for kind in service.kinds.kinds if kind.version == "v2" and kind.custom)
        body = widget("b", version="v2", spec=items(1000))
        await service.create(kind, "default", body, PERSON, size=4000)
        assert service.worker.runs == 3, "shape, values, write"

    served(tmp_path, test)
