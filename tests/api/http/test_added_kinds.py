"""Kinds added to the registry of a running server: served at once, and everywhere."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onejob.wire.errors import NotFound
from onejob.wire.kinds import BY_RESOURCE, STATUS_VERBS, Kind, Subresource
from onejob.wire.registry import KindRegistry, KindsChanged
from tests.api.http.raw_requests import AGGREGATED, TABLE, Requests, eventually, with_requests

WIDGETS = Kind(
    "example.com", "v1", "Widget", "widgets", "widget", short_names=("wd",), categories=("all",),
    subresources=(Subresource("status", STATUS_VERBS),),
)  # fmt: skip
PATH = "/apis/example.com/v1/namespaces/default/widgets"


def widget(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, **more}


def test_a_kind_is_found_by_all_its_names_until_it_is_removed() -> None:
    kinds = KindRegistry()
    changes: list[KindsChanged] = []
    unsubscribe = kinds.subscribe(changes.append)
    generation = kinds.generation
    kinds.add(WIDGETS)
    assert kinds.by_resource["widgets.example.com"] is WIDGETS
    assert kinds.by_path["example.com", "v1", "widgets"] is WIDGETS
    assert kinds.by_kind["example.com/v1", "Widget"] is WIDGETS
    assert "example.com" in kinds.groups
    assert kinds.generation == generation + 1
    kinds.remove(WIDGETS)
    assert "example.com" not in kinds.groups
    assert ("example.com", "v1") not in kinds.group_versions
    with pytest.raises(NotFound, match=r"widgets\.example\.com"):
        kinds.by_resource["widgets.example.com"]
    assert changes == [KindsChanged((WIDGETS,), ()), KindsChanged((), (WIDGETS,))]
    unsubscribe()
    kinds.add(WIDGETS)
    assert len(changes) == 2


def test_a_name_that_is_taken_changes_nothing() -> None:
    kinds = KindRegistry()
    served = kinds.served
    with pytest.raises(ValueError, match="same name"):
        kinds.add(Kind("batch", "v1", "Work", "jobs", "work"))
    assert kinds.served is served
    assert kinds.by_resource["jobs.batch"] is BY_RESOURCE["jobs.batch"]


def test_an_added_kind_is_in_discovery_and_openapi_and_leaves_again(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        async def shown() -> list[bool]:
            groups = await ask.get("/apis")
            whole = await ask.get("/apis", accept=AGGREGATED)
            root = await ask.get("/openapi/v3")
            old = await ask.get("/openapi/v2")
            return [
                "example.com" in [group["name"] for group in groups["groups"]],
                "example.com" in [item["metadata"]["name"] for item in whole["items"]],
                "apis/example.com/v1" in root["paths"],
                "com.example.v1.Widget" in old["definitions"],
                (await ask("GET", "/apis/example.com/v1"))[0] == 200,
                (await ask("GET", PATH))[0] == 200,
                (await ask("GET", "/openapi/v3/apis/example.com/v1"))[0] == 200,
            ]

        kinds = ask.server.plane.service.kinds
        assert await shown() == [False] * 7
        kinds.add(WIDGETS)
        assert await shown() == [True] * 7
        listed = await ask.get("/apis/example.com/v1")
        names = [resource["name"] for resource in listed["resources"]]
        assert names == ["widgets", "widgets/status"]
        document = await ask.get("/openapi/v3/apis/example.com/v1")
        assert PATH.replace("default", "{namespace}") in document["paths"]
        assert "com.example.v1.WidgetList" in document["components"]["schemas"]
        kinds.remove(WIDGETS)
        assert await shown() == [False] * 7

    with_requests(tmp_path, test)


def test_objects_of_an_added_kind_live_like_others(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        ask.server.plane.service.kinds.add(WIDGETS)
        watching = asyncio.create_task(ask.events(PATH, 3))
        await asyncio.sleep(0)
        created = await ask.ok("POST", PATH, widget("a", spec={"size": 3}, status={"ready": True}))
        assert created["spec"] == {"size": 3}
        assert created["status"] == {}, "status has an endpoint of its own"
        await ask.ok("PUT", f"{PATH}/a/status", widget("a", status={"ready": True}))
        patch = {"spec": {"size": 4}}
        await ask.ok("PATCH", f"{PATH}/a", patch, content_type="application/merge-patch+json")
        assert (await ask.get(f"{PATH}/a"))["spec"] == {"size": 4}
        assert [item["metadata"]["name"] for item in (await ask.get(PATH))["items"]] == ["a"]
        table = await ask.get(PATH, accept=TABLE)
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
        assert table["rows"][0]["cells"][0] == "a"
        assert [event["type"] for event in await watching] == ["ADDED", "MODIFIED", "MODIFIED"]
        deleted = await ask.ok("DELETE", f"{PATH}/a")
        assert deleted["details"]["group"] == "example.com"
        assert (await ask("GET", f"{PATH}/a"))[0] == 404

    with_requests(tmp_path, test)


def test_garbage_collection_follows_added_kinds_in_both_directions(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        maps = "/api/v1/namespaces/default/configmaps"
        ask.server.plane.service.kinds.add(WIDGETS)
        owner = await ask.ok("POST", PATH, widget("owner"))
        below = {**_reference(owner), "kind": "Widget", "apiVersion": "example.com/v1"}
        for kind, path in (("ConfigMap", maps), ("Widget", PATH)):
            body = widget("dependent", metadata={"ownerReferences": [below]})
            version = "v1" if kind == "ConfigMap" else "example.com/v1"
            await ask.ok("POST", path, {**body, "kind": kind, "apiVersion": version})
        map_owner = await ask.ok("POST", maps, {"metadata": {"name": "map"}})
        above = {**_reference(map_owner), "kind": "ConfigMap", "apiVersion": "v1"}
        await ask.ok("POST", PATH, widget("of-map", metadata={"ownerReferences": [above]}))
        await ask.ok("DELETE", f"{PATH}/owner")
        await ask.ok("DELETE", f"{maps}/map")

        async def only_strangers() -> bool:
            names = [
                item["metadata"]["name"]
                for path in (maps, PATH)
                for item in (await ask.get(path))["items"]
            ]
            return names == ["kube-root-ca.crt"]

        await eventually(only_strangers, "dependents are collected")

    with_requests(tmp_path, test)


def test_a_foreground_deletion_of_an_added_kind_waits_for_dependents(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        ask.server.plane.service.kinds.add(WIDGETS)
        owner = await ask.ok("POST", PATH, widget("owner"))
        reference = {
            **_reference(owner), "kind": "Widget", "apiVersion": "example.com/v1",
            "blockOwnerDeletion": True,
        }  # fmt: skip
        held = {"ownerReferences": [reference], "finalizers": ["example.com/hold"]}
        await ask.ok("POST", PATH, widget("dependent", metadata=held))
        await ask.ok("DELETE", f"{PATH}/owner?propagationPolicy=Foreground")

        async def dependent_goes() -> bool:
            metadata = (await ask.get(f"{PATH}/dependent"))["metadata"]
            return "deletionTimestamp" in metadata

        await eventually(dependent_goes, "the dependent is deleted first")
        assert (await ask("GET", f"{PATH}/owner"))[0] == 200
        free = [{"op": "remove", "path": "/metadata/finalizers"}]
        await ask.ok("PATCH", f"{PATH}/dependent", free, content_type="application/json-patch+json")

        async def all_gone() -> bool:
            return not (await ask.get(PATH))["items"]

        await eventually(all_gone, "the owner follows")

    with_requests(tmp_path, test)


def test_a_namespace_is_emptied_of_added_kinds(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        ask.server.plane.service.kinds.add(WIDGETS)
        await ask.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "doomed"}})
        path = PATH.replace("default", "doomed")
        await ask.ok("POST", path, widget("a"))
        await ask.ok("DELETE", "/api/v1/namespaces/doomed")

        async def gone() -> bool:
            return (await ask("GET", "/api/v1/namespaces/doomed"))[0] == 404

        await eventually(gone, "the namespace is deleted")
        assert (await ask.get("/apis/example.com/v1/widgets"))["items"] == []

    with_requests(tmp_path, test)


def test_collecting_goes_on_after_a_kind_was_removed_and_added_again(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        plane = ask.server.plane
        kinds = plane.service.kinds
        tasks = len(plane.informers.tasks)
        kinds.add(WIDGETS)
        assert len(plane.informers.tasks) == tasks + 1
        owner = await ask.ok("POST", PATH, widget("owner"))
        kinds.remove(WIDGETS)
        assert len(plane.informers.tasks) == tasks
        kinds.add(WIDGETS)
        reference = {**_reference(owner), "kind": "Widget", "apiVersion": "example.com/v1"}
        await ask.ok("POST", PATH, widget("d", metadata={"ownerReferences": [reference]}))
        await ask.ok("DELETE", f"{PATH}/owner")

        async def gone() -> bool:
            return not (await ask.get(PATH))["items"]

        await eventually(gone, "the dependent is collected")
        assert not plane.failed.done()

    with_requests(tmp_path, test)


def _reference(owner: dict[str, Any]) -> dict[str, Any]:
    return {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
