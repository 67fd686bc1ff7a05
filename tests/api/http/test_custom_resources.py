"""Custom resources over HTTP, from their definition to its deletion."""

import asyncio
from pathlib import Path
from typing import Any

from onejob.planning.custom_resources import is_true
from tests.api.crd.build import (
    DEFINITIONS,
    NAME,
    PATH,
    a_definition,
    a_version,
    text,
    thing,
    widget,
)
from tests.api.http.raw_requests import (
    AGGREGATED,
    TABLE,
    Requests,
    a_server,
    eventually,
    with_requests,
)

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
SPEC = thing(
    {
        "size": {"type": "integer", "minimum": 1, "default": 1},
        "color": text(enum=["red", "blue"]),
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": thing({"name": text(), "weight": {"type": "integer"}}, required=["name"]),
        },
    }
)


async def define(ask: Requests, definition: dict[str, Any]) -> None:
    name = definition["metadata"]["name"]
    await ask.ok("POST", DEFINITIONS, definition)

    async def established() -> bool:
        return is_true(await ask.get(f"{DEFINITIONS}/{name}"), "Established")

    await eventually(established, f"{name} is established")


def test_a_definition_is_served_as_soon_as_it_is_established(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        assert (await ask("GET", PATH))[0] == 404
        version = a_version(SPEC, subresources={"status": {}})
        await define(ask, a_definition(version, names={"shortNames": ["wd"]}))
        listed = await ask.get("/apis/example.com/v1")
        assert [(r["name"], r["kind"]) for r in listed["resources"]] == [
            ("widgets", "Widget"), ("widgets/status", "Widget"),
        ]  # fmt: skip
        assert listed["resources"][0]["shortNames"] == ["wd"]
        groups = await ask.get("/apis", accept=AGGREGATED)
        assert "example.com" in [item["metadata"]["name"] for item in groups["items"]]
        schemas = (await ask.get("/openapi/v3/apis/example.com/v1"))["components"]["schemas"]
        shown = schemas["com.example.v1.Widget"]["properties"]["spec"]["properties"]["size"]
        assert shown["minimum"] == 1
        assert "com.example.v1.Widget" in (await ask.get("/openapi/v2"))["definitions"]

    with_requests(tmp_path, test)


def test_custom_objects_are_pruned_defaulted_and_validated(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(SPEC, subresources={"status": {}})))
        body = widget(spec={"color": "red", "stranger": 1}, status={"x": 1})
        created = await ask.ok("POST", PATH, body)
        assert created["spec"] == {"color": "red", "size": 1}
        assert "status" not in created
        assert created["metadata"]["generation"] == 1
        assert 'unknown field \\"spec.stranger\\"' in ask.warnings[0]
        code, strict = await ask("POST", f"{PATH}?fieldValidation=Strict", body)
        assert (code, strict["reason"]) == (400, "BadRequest")
        assert strict["message"].endswith('strict decoding error: unknown field "spec.stranger"')
        applied = await ask(
            "PATCH",
            f"{PATH}/a?fieldManager=m&fieldValidation=Strict",
            widget(spec={"size": 1, "stranger": 1}, other=1),
            content_type="application/apply-patch+yaml",
        )
        assert (applied[0], applied[1]["message"]) == (
            400,
            "failed to create typed patch object (default/a; example.com/v1, Kind=Widget): "
            "errors:\n  .spec.stranger: field not declared in schema"
            "\n  .other: field not declared in schema",
        )
        code, refused = await ask("POST", PATH, widget("b", spec={"size": 0, "color": "green"}))
        assert (code, refused["reason"]) == (422, "Invalid")
        assert refused["details"]["kind"] == "Widget"
        assert {cause["field"]: cause["message"] for cause in refused["details"]["causes"]} == {
            "spec.size": (
                "Invalid value: 0: spec.size in body should be greater than or equal to 1"
            ),
            "spec.color": 'Unsupported value: "green": supported values: "red", "blue"',
        }

    with_requests(tmp_path, test)


def test_status_and_generation_have_their_own_ways(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(SPEC, subresources={"status": {}})))
        await ask.ok("POST", PATH, widget())
        patched = await ask.ok("PATCH", f"{PATH}/a", {"spec": {"size": 2}}, content_type=MERGE)
        assert patched["metadata"]["generation"] == 2
        change = {"spec": {"size": 5}, "status": {"ready": 1}}
        status = await ask.ok("PATCH", f"{PATH}/a/status", change, content_type=MERGE)
        assert (status["spec"]["size"], status["status"]) == (2, {"ready": 1})
        assert status["metadata"]["generation"] == 2
        code, _ = await ask(
            "PATCH", f"{PATH}/a", {}, content_type="application/strategic-merge-patch+json"
        )
        assert code == 415

    with_requests(tmp_path, test)


def test_without_a_status_subresource_status_is_a_field_like_others(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition())
        created = await ask.ok("POST", PATH, widget(status={"ready": 1}))
        assert created["status"] == {"ready": 1}
        assert (await ask("GET", f"{PATH}/a/status"))[0] == 404

    with_requests(tmp_path, test)


def test_bodies_that_are_no_such_resource_are_refused_as_upstream_does(tmp_path: Path) -> None:
    embedded = {
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    spec = thing({"inner": {"type": "object", **embedded}})

    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(spec, subresources={"status": {}})))
        code, other = await ask("POST", PATH, {**widget("a"), "kind": "Gadget"})
        assert (code, other["message"]) == (
            422, 'Gadget.example.com "a" is invalid: kind: Invalid value: "Gadget": must be Widget',
        )  # fmt: skip
        code, nothing = await ask("POST", PATH, {"metadata": {"name": "a"}})
        assert (code, nothing["message"]) == (
            400,
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' is "
            "missing",
        )
        inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}
        code, wrong = await ask("POST", PATH, widget("a", spec={"inner": inner}))
        text = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
        handled = 'Widget in version "v1" cannot be handled as a Widget'
        shown = 'spec.inner.metadata: Invalid value: {"labels":{"a":1}}'
        assert (code, wrong["message"]) == (400, f"{handled}: {shown}: {text}")
        code, wrong = await ask("POST", PATH, widget("a", metadata={"labels": {"a": 1}}))
        assert (code, wrong["message"]) == (400, f"{handled}: {text}")
        await ask.ok("POST", PATH, widget("a"))
        code, stale = await ask("PUT", f"{PATH}/a", widget("a"))
        assert (code, stale["message"].partition(" is ")[0]) == (422, f'{NAME} "a"')

    with_requests(tmp_path, test)


def test_scale_can_be_set_without_existing_replicas(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        scale = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}
        spec = thing({"count": {"type": "integer", "maximum": 9}})
        version = a_version(spec, subresources={"status": {}, "scale": scale})
        await define(ask, a_definition(version))
        await ask.ok("POST", PATH, widget("a"))
        patch = {"spec": {"replicas": 3}}
        scaled = await ask.ok("PATCH", f"{PATH}/a/scale", patch, content_type=MERGE)
        assert scaled["spec"] == {"replicas": 3}
        code, _ = await ask(
            "PATCH", f"{PATH}/a/scale", {"spec": {"replicas": 10}}, content_type=MERGE
        )
        assert code == 422

    with_requests(tmp_path, test)


def test_scale_writes_replicas_at_path_of_definition(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        scale = {
            "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
            "labelSelectorPath": ".status.selector",
        }  # fmt: skip
        await define(
            ask, a_definition(a_version(SPEC, subresources={"status": {}, "scale": scale}))
        )
        await ask.ok("POST", PATH, widget(spec={"size": 3}))
        status = {"status": {"size": 2, "selector": "a=b"}}
        await ask.ok("PATCH", f"{PATH}/a/status", status, content_type=MERGE)
        found = await ask.get(f"{PATH}/a/scale")
        assert (found["kind"], found["spec"]) == ("Scale", {"replicas": 3})
        assert found["status"] == {"replicas": 2, "selector": "a=b"}
        scaled = await ask.ok("PUT", f"{PATH}/a/scale", {**found, "spec": {"replicas": 5}})
        assert scaled["spec"] == {"replicas": 5}
        patch = {"spec": {"replicas": 7}}
        await ask.ok("PATCH", f"{PATH}/a/scale", patch, content_type=MERGE)
        assert (await ask.get(f"{PATH}/a"))["spec"]["size"] == 7
        code, _ = await ask("PUT", f"{PATH}/a/scale", {**scaled, "spec": {"replicas": -1}})
        assert code == 422

    with_requests(tmp_path, test)


def test_columns_and_selectable_fields_are_the_definitions(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        columns = [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
            {"name": "Heavy", "type": "integer", "jsonPath": '.spec.parts[?(@.name=="b")].weight'},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]
        version = a_version(
            SPEC, additionalPrinterColumns=columns, selectableFields=[{"jsonPath": ".spec.color"}]
        )
        await define(ask, a_definition(version))
        parts = [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]
        await ask.ok("POST", PATH, widget("a", spec={"size": 3, "color": "red", "parts": parts}))
        await ask.ok("POST", PATH, widget("b", spec={"color": "blue"}))
        table = await ask.get(PATH, accept=TABLE)
        names = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
        assert names == [("Name", 0), ("Size", 0), ("Color", 1), ("Heavy", 0), ("Age", 0)]
        assert [row["cells"][:4] for row in table["rows"]] == [
            ["a", 3, "red", 2], ["b", 1, "blue", None],
        ]  # fmt: skip
        blue = await ask.get(f"{PATH}?fieldSelector=spec.color=blue")
        assert [item["metadata"]["name"] for item in blue["items"]] == ["b"]
        code, refused = await ask("GET", f"{PATH}?fieldSelector=spec.size=1")
        assert (code, refused["message"]) == (400, "field label not supported: spec.size")

    with_requests(tmp_path, test)


def test_rules_are_evaluated_with_old_values_and_messages(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        rules = [
            {"rule": "self.size <= 10", "message": "too large", "fieldPath": ".size",
             "reason": "FieldValueForbidden"},
            {"rule": "self.size >= oldSelf.size", "messageExpression":
             "'from ' + string(oldSelf.size) + ' down to ' + string(self.size)"},
        ]  # fmt: skip
        root = {"x-kubernetes-validations": [{"rule": "self.metadata.name != 'bad'"}]}
        spec = {**SPEC, "x-kubernetes-validations": rules}
        await define(ask, a_definition(a_version(spec, root=root)))
        code, refused = await ask("POST", PATH, widget("bad", spec={"size": 11}))
        assert code == 422
        assert {cause["field"]: cause["message"] for cause in refused["details"]["causes"]} == {
            "spec.size": "Forbidden: too large",
            "<nil>": "Invalid value: failed rule: self.metadata.name != 'bad'",
        }
        await ask.ok("POST", PATH, widget(spec={"size": 5}))
        change = {"spec": {"size": 4}}
        code, refused = await ask("PATCH", f"{PATH}/a", change, content_type=MERGE)
        assert (code, refused["details"]["causes"][0]["message"]) == (
            422, "Invalid value: from 5 down to 4",
        )  # fmt: skip
        await ask.ok("PATCH", f"{PATH}/a", {"spec": {"size": 6}}, content_type=MERGE)

    with_requests(tmp_path, test)


def test_an_object_survives_a_schema_that_became_stricter(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(thing({"a": text(), "b": text()}))))
        await ask.ok("POST", PATH, widget(spec={"a": "long"}))
        found = await ask.get(f"{DEFINITIONS}/{NAME}")
        stricter = thing({"a": text(maxLength=1), "b": text(maxLength=1), "c": text(default="d")})
        found["spec"]["versions"] = [a_version(stricter)]
        await ask.ok("PUT", f"{DEFINITIONS}/{NAME}", found)

        async def defaulted() -> bool:
            return bool((await ask.get(f"{PATH}/a"))["spec"].get("c") == "d")

        await eventually(defaulted, "a new default is shown on old objects")
        await ask.ok("PATCH", f"{PATH}/a", {"spec": {"b": "b"}}, content_type=MERGE)
        code, _ = await ask("PATCH", f"{PATH}/a", {"spec": {"a": "longer"}}, content_type=MERGE)
        assert code == 422

    with_requests(tmp_path, test)


def test_all_versions_show_the_same_object(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        old = a_version(thing({"a": text()}), name="v1beta1", storage=False, deprecated=True)
        new = a_version(thing({"a": text(), "b": text()}), name="v1")
        await define(ask, a_definition(old, new))
        before = PATH.replace("v1/", "v1beta1/")
        await ask.ok("POST", before, widget(version="v1beta1", spec={"a": "1"}))
        await ask.ok("PATCH", f"{PATH}/a", {"spec": {"b": "2"}}, content_type=MERGE)
        shown = await ask.get(f"{before}/a")
        assert (shown["apiVersion"], shown["spec"]) == ("example.com/v1beta1", {"a": "1"})
        [item] = (await ask.get(PATH))["items"]
        assert (item["apiVersion"], item["spec"]) == ("example.com/v1", {"a": "1", "b": "2"})
        group = await ask.get("/apis/example.com")
        assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
        [event] = await ask.events(before, 1)
        assert event["object"]["apiVersion"] == "example.com/v1beta1"

    with_requests(tmp_path, test)


def test_a_new_storage_version_keeps_the_schema_of_every_version(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
        old = a_version(thing({"a": text()}), name="v1beta1", storage=False)
        new = a_version(thing({"b": text()}), name="v1")
        await define(ask, a_definition(old, new))
        switch = [
            {"op": "replace", "path": "/spec/versions/0/storage", "value": True},
            {"op": "replace", "path": "/spec/versions/1/storage", "value": False},
        ]
        await ask.ok("PATCH", path, switch, content_type="application/json-patch+json")
        for version, field in (("v1beta1", "a"), ("v1", "b")):
            url = f"{PATH.replace('v1/', f'{version}/')}?fieldValidation=Strict"
            code, refused = await ask("POST", url, widget(version=version, spec={field: 1}))
            assert (code, refused["reason"]) == (422, "Invalid")
            code, refused = await ask("POST", url, widget(version=version, spec={"c": "1"}))
            assert (code, refused["reason"]) == (400, "BadRequest")
            assert 'unknown field "spec.c"' in refused["message"]

    with_requests(tmp_path, test)


def test_a_version_whose_webhook_is_missing_is_refused_clearly(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        versions = [a_version(name="v1"), a_version(name="v1beta1", storage=False)]
        client = {"service": {"namespace": "x", "name": "y"}}
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        conversion = {"strategy": "Webhook", "webhook": webhook}
        await define(ask, a_definition(*versions, conversion=conversion))
        await ask.ok("POST", PATH, widget())
        code, refused = await ask("GET", PATH.replace("v1/", "v1beta1/"))
        assert code == 500
        assert refused["message"] == (
            "conversion webhook for example.com/v1, Kind=Widget failed: "
            'Post "https://y.x.svc:443/?timeout=30s": service "y" not found'
        )

    with_requests(tmp_path, test)


def test_apply_owns_fields_of_schema(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(SPEC)))
        for owner, weight in (("one", 1), ("two", 2)):
            body = widget(spec={"parts": [{"name": owner, "weight": weight}]})
            await ask.ok("PATCH", f"{PATH}/a?fieldManager={owner}", body, content_type=APPLY)
        found = await ask.get(f"{PATH}/a")
        assert [part["name"] for part in found["spec"]["parts"]] == ["one", "two"]
        fields = {
            entry["manager"]: entry["fieldsV1"] for entry in found["metadata"]["managedFields"]
        }
        assert fields["two"] == {
            "f:spec": {"f:parts": {'k:{"name":"two"}': {".": {}, "f:name": {}, "f:weight": {}}}}
        }
        body = widget(spec={"parts": [{"name": "one", "weight": 9}]})
        code, conflict = await ask("PATCH", f"{PATH}/a?fieldManager=two", body, content_type=APPLY)
        assert (code, conflict["reason"]) == (409, "Conflict")
        path = f"{PATH}/a?fieldManager=two&force=true"
        forced = await ask.ok("PATCH", path, body, content_type=APPLY)
        assert forced["spec"]["parts"] == [{"name": "one", "weight": 9}]

    with_requests(tmp_path, test)


def test_a_definition_goes_with_its_objects(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition())
        held = {"finalizers": ["example.com/hold"]}
        await ask.ok("POST", PATH, widget("a", metadata=held))
        await ask.ok("POST", PATH, widget("b"))
        await ask.ok("DELETE", f"{DEFINITIONS}/{NAME}")

        async def one_left() -> bool:
            items = (await ask.get(PATH))["items"]
            return [item["metadata"]["name"] for item in items] == ["a"]

        await eventually(one_left, "objects without finalizers are deleted")
        code, refused = await ask("POST", PATH, widget("c"))
        text = "create not allowed while custom resource definition is terminating"
        assert (code, refused["message"]) == (403, f'{NAME} "c" is forbidden: {text}')
        assert is_true(await ask.get(f"{DEFINITIONS}/{NAME}"), "Terminating")
        free: dict[str, Any] = {"metadata": {"finalizers": []}}
        await ask.ok("PATCH", f"{PATH}/a", free, content_type=MERGE)

        async def gone() -> bool:
            return (await ask("GET", f"{DEFINITIONS}/{NAME}"))[0] == 404 and (
                await ask("GET", PATH)
            )[0] == 404

        await eventually(gone, "the definition is gone and no longer served")
        await define(ask, a_definition())
        assert (await ask.get(PATH))["items"] == []

    with_requests(tmp_path, test)


async def test_custom_resources_are_served_after_restart(tmp_path: Path) -> None:
    async with a_server(tmp_path) as ask:
        await define(ask, a_definition(a_version(SPEC)))
        await ask.ok("POST", PATH, widget(spec={"size": 4}))
    async with a_server(tmp_path) as ask:
        assert (await ask.get(f"{PATH}/a"))["spec"]["size"] == 4
        assert (await ask("POST", PATH, widget("b", spec={"size": 0})))[0] == 422


def test_names_that_are_taken_are_not_served_until_they_are_free(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(names={"shortNames": ["wd"]}))
        gadgets = a_definition(names={"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]})
        await ask.ok("POST", DEFINITIONS, gadgets)
        path = f"{DEFINITIONS}/gadgets.example.com"

        async def refused() -> bool:
            conditions = (await ask.get(path))["status"]["conditions"]
            return [entry["reason"] for entry in conditions] == [
                "ShortNamesConflict", "NotAccepted",
            ]  # fmt: skip

        await eventually(refused, "the short name is in use")
        assert (await ask("GET", "/apis/example.com/v1/gadgets"))[0] == 404
        await ask.ok("DELETE", f"{DEFINITIONS}/{NAME}")

        async def served() -> bool:
            return (await ask("GET", "/apis/example.com/v1/gadgets"))[0] == 200

        await eventually(served, "the name is free again")

    with_requests(tmp_path, test)


def _of_the_servers_name() -> dict[str, Any]:
    definition = a_definition(
        a_version(name="v1"),
        group="scheduling.k8s.io",
        scope="Cluster",
        names={"plural": "priorityclasses", "kind": "PriorityClass"},
    )
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    return definition


async def test_a_definition_of_a_name_that_became_the_servers_is_not_served(tmp_path: Path) -> None:
    """As in a data dir from before the server had that kind."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    path = f"{DEFINITIONS}/priorityclasses.scheduling.k8s.io"
    async with a_server(tmp_path) as ask:
        await ask.ok("POST", classes, {"metadata": {"name": "high"}, "value": 5})
        definition = await ask.ok("POST", DEFINITIONS, _of_the_servers_name())

        async def is_refused() -> bool:
            conditions = (await ask.get(path))["status"]["conditions"]
            states = {entry["type"]: entry["status"] for entry in conditions}
            return (states.get("NamesAccepted"), states.get("Established")) == ("False",) * 2

        await eventually(is_refused, "the names are taken")
        definition = await ask.get(path)
        status = {
            **definition["status"],
            "acceptedNames": definition["spec"]["names"],
            "conditions": [
                {"type": "Established", "status": "True"},
                {"type": "NamesAccepted", "status": "True"},
            ],
        }
        await ask.ok("PUT", f"{path}/status", {**definition, "status": status})
        # Also before the controller has synced, and after a restart.
        assert (await ask.get(f"{classes}/high"))["value"] == 5
        await eventually(is_refused, "the names are lost")
    async with a_server(tmp_path) as ask:
        assert (await ask.get(f"{classes}/high"))["value"] == 5
        code, _ = await ask("POST", classes, {"metadata": {"name": "a"}, "value": 1_000_000_001})
        assert code == 422
        await ask.ok("DELETE", path)

        async def is_gone() -> bool:
            return (await ask("GET", path))[0] == 404

        await eventually(is_gone, "the definition is gone")
        # Objects of that name are not instances of the definition.
        assert (await ask.get(f"{classes}/high"))["value"] == 5


def test_an_old_value_that_is_optional_can_be_missing(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        rule = {
            "rule": "oldSelf.hasValue() ? self.size >= oldSelf.value().size : self.size == 1",
            "message": "begins with 1 and grows",
            "optionalOldSelf": True,
        }
        spec = {**SPEC, "x-kubernetes-validations": [rule]}
        await define(ask, a_definition(a_version(spec)))
        code, refused = await ask("POST", PATH, widget(spec={"size": 2}))
        assert (code, refused["details"]["causes"][0]["message"]) == (
            422, "Invalid value: begins with 1 and grows",
        )  # fmt: skip
        await ask.ok("POST", PATH, widget(spec={"size": 1}))
        await ask.ok("PATCH", f"{PATH}/a", {"spec": {"size": 3}}, content_type=MERGE)
        code, _ = await ask("PATCH", f"{PATH}/a", {"spec": {"size": 2}}, content_type=MERGE)
        assert code == 422

    with_requests(tmp_path, test)


def test_list_kind_is_taken_from_definition(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(names={"listKind": "WidgetCollection"}))
        assert (await ask.get(PATH))["kind"] == "WidgetCollection"
        document = await ask.get("/openapi/v3/apis/example.com/v1")
        listed = document["components"]["schemas"]["com.example.v1.WidgetList"]
        (gvk,) = listed["x-kubernetes-group-version-kind"]
        assert gvk["kind"] == "WidgetCollection"

    with_requests(tmp_path, test)


CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"


def test_openapi_describes_the_fields_that_all_objects_have_as_upstream_does(
    tmp_path: Path,
) -> None:
    async def test(ask: Requests) -> None:
        embedded = thing({"data": text()}, **{"x-kubernetes-embedded-resource": True})
        await define(ask, a_definition(a_version(thing({"inner": embedded}))))
        version_3 = await ask.get("/openapi/v3/apis/example.com/v1")
        version_2 = await ask.get("/openapi/v2")
        for schemas in (version_3["components"]["schemas"], version_2["definitions"]):
            shown = schemas["com.example.v1.Widget"]["properties"]
            assert shown["apiVersion"]["description"].startswith("APIVersion defines the versioned")
            assert shown["kind"]["description"].startswith("Kind is a string value representing")
            metadata = f"Standard object's metadata. More info: {CONVENTIONS}#metadata"
            assert shown["metadata"]["description"] == metadata
            listed = schemas["com.example.v1.WidgetList"]["properties"]
            assert listed["items"]["description"] == f"List of widgets. More info: {CONVENTIONS}"
            assert listed["metadata"]["description"].startswith("Standard list metadata.")
            inner = shown["spec"]["properties"]["inner"]
            assert inner["required"] == ["kind", "apiVersion"]
            assert inner["properties"]["metadata"]["description"] == metadata

    with_requests(tmp_path, test)


def test_openapi_v2_reduces_preserved_unknown_fields_to_object(tmp_path: Path) -> None:
    """kubectl reports all fields that are not listed as mistakes."""
    keeps = {"x-kubernetes-preserve-unknown-fields": True}

    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(thing({"a": text()}), root=keeps)))
        version_2 = (await ask.get("/openapi/v2"))["definitions"]["com.example.v1.Widget"]
        gvk = {"group": "example.com", "version": "v1", "kind": "Widget"}
        assert version_2 == {"type": "object", "x-kubernetes-group-version-kind": [gvk]}
        version_3 = await ask.get("/openapi/v3/apis/example.com/v1")
        shown = version_3["components"]["schemas"]["com.example.v1.Widget"]
        assert "spec" in shown["properties"]

    with_requests(tmp_path, test)


def test_openapi_v2_omits_schemas_unsupported_by_kubectl(tmp_path: Path) -> None:
    spec = thing(
        {
            "open": thing({"a": text()}, **{"x-kubernetes-preserve-unknown-fields": True}),
            "maybe": {"type": "array", "items": text(), "nullable": True},
            "sure": text(),
        },
        required=["maybe", "sure"],
    )

    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(spec)))
        definition = (await ask.get("/openapi/v2"))["definitions"]["com.example.v1.Widget"]
        shown = definition["properties"]["spec"]
        assert shown["properties"] == {
            "open": {"x-kubernetes-preserve-unknown-fields": True},
            "maybe": {},
            "sure": {"type": "string"},
        }
        assert shown["required"] == ["sure"]

    with_requests(tmp_path, test)


def test_the_status_of_a_definition_is_written_apart(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition())
        path = f"{DEFINITIONS}/{NAME}"
        found = await ask.get(path)
        found["status"]["storedVersions"] = ["v1", "v0"]
        found["spec"]["names"]["shortNames"] = ["wd"]
        changed = await ask.ok("PUT", f"{path}/status", found)
        assert changed["status"]["storedVersions"] == ["v1", "v0"]
        assert "shortNames" not in changed["spec"]["names"]
        # Storage was migrated: the old version is removed.
        strike = {"status": {"storedVersions": ["v1"]}}
        changed = await ask.ok("PATCH", f"{path}/status", strike, content_type=MERGE)
        assert changed["status"]["storedVersions"] == ["v1"]
        found = await ask.get(path)
        found["status"]["storedVersions"] = []
        changed = await ask.ok("PUT", path, found)
        assert changed["status"]["storedVersions"] == ["v1"]

    with_requests(tmp_path, test)


def test_an_empty_object_is_not_the_same_as_none(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(thing({"on": thing({})}))))
        await ask.ok("POST", PATH, widget(spec={}))
        patched = await ask.ok("PATCH", f"{PATH}/a", {"spec": {"on": {}}}, content_type=MERGE)
        assert patched["spec"] == {"on": {}}

    with_requests(tmp_path, test)


def test_watches_end_with_their_definition(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition())
        watching = asyncio.create_task(ask.events(PATH, 100))
        await asyncio.sleep(0.2)
        await ask.ok("POST", PATH, widget())
        await ask.ok("DELETE", f"{DEFINITIONS}/{NAME}")
        async with asyncio.timeout(60):
            events = await watching
        assert events[0]["type"] == "ADDED"

    with_requests(tmp_path, test)


def test_a_definition_cannot_take_a_name_that_is_measured(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        taken = a_definition(group="metrics.k8s.io", names={"plural": "pods", "kind": "PodMetrics"})
        taken["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
        taken["spec"]["versions"][0]["name"] = "v1beta1"
        await ask.ok("POST", DEFINITIONS, taken)

        async def refused() -> bool:
            found = await ask.get(f"{DEFINITIONS}/pods.metrics.k8s.io")
            reasons = [entry["reason"] for entry in found["status"]["conditions"]]
            return "ListKindConflict" in reasons

        await eventually(refused, "the name is in use")
        assert not ask.server.plane.failed.done()

    with_requests(tmp_path, test)


def test_metadata_alone_can_be_had(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(SPEC)))
        await ask.ok("POST", PATH, widget(spec={"size": 2}))
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        [item] = (await ask.get(PATH, accept=accept))["items"]
        assert item["kind"] == "PartialObjectMetadata"
        assert item["metadata"]["name"] == "a"
        assert "spec" not in item

    with_requests(tmp_path, test)


def test_owners_and_dependents_are_collected_and_orphaned(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition(a_version(SPEC)))
        for name in ("kept", "doomed"):
            owner = (await ask.ok("POST", PATH, widget(name)))["metadata"]
            reference = {
                "apiVersion": "example.com/v1", "kind": "Widget", "name": name,
                "uid": owner["uid"],
            }  # fmt: skip
            below = {"ownerReferences": [reference]}
            await ask.ok("POST", PATH, widget(f"of-{name}", metadata=below))
        await ask.ok("DELETE", f"{PATH}/kept?propagationPolicy=Orphan")
        await ask.ok("DELETE", f"{PATH}/doomed")

        async def settled() -> bool:
            items = (await ask.get(PATH))["items"]
            found = [(i["metadata"]["name"], "ownerReferences" in i["metadata"]) for i in items]
            return found == [("of-kept", False)]

        await eventually(settled, "one dependent is orphaned, the other collected")

    with_requests(tmp_path, test)


def test_watch_list_sends_existing_objects_then_bookmark(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await define(ask, a_definition())
        await ask.ok("POST", PATH, widget("a"))
        options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        first, second = await ask.events(f"{PATH}?{options}&allowWatchBookmarks=true", 2)
        assert (first["type"], first["object"]["kind"]) == ("ADDED", "Widget")
        assert (second["type"], second["object"]["kind"]) == ("BOOKMARK", "Widget")
        assert second["object"]["apiVersion"] == "example.com/v1"
        assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await ask.ok("DELETE", PATH)
        assert (await ask.get(PATH))["items"] == []

    with_requests(tmp_path, test)


def test_a_malformed_ttl_rule_is_stored_with_a_warning(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        definition = a_definition()
        definition["metadata"]["annotations"] = {"onejob.dev/ttl-after-finished": '{"ttl": []}'}
        await ask.ok("POST", DEFINITIONS, definition)
        assert [
            "annotation onejob.dev/ttl-after-finished: Expected `int | str`, got `array`" in warning
            for warning in ask.warnings
        ] == [True]
        mended = {"metadata": {"annotations": {"onejob.dev/ttl-after-finished": "{}"}}}
        await ask.ok("PATCH", f"{DEFINITIONS}/{NAME}", mended, content_type=MERGE)
        assert ask.warnings == []

    with_requests(tmp_path, test)
