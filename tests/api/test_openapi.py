import asyncio
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from onejob.api.schema.added_kinds import open_definition, open_shape
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.api.schema.openapi_v2 import version_2_document
from onejob.api.schema.protobuf_writing import bytes_field, number_field, text_field
from onejob.api.schema.schema import Schema, load_schema
from onejob.wire.kinds import KINDS, WORKLOAD_KINDS, Kind
from onejob.wire.registry import KindRegistry
from tests.api.recording_server import Raw, Recorder, discovery, needs_kubectl

DOCUMENTS = OpenApiDocuments(load_schema(), KindRegistry())
BATCH = "apis/batch/v1"


@cache
def document(path: str) -> Any:
    found = DOCUMENTS.document(path)
    assert found is not None
    return json.loads(found[0])


def schema(name: str, path: str = BATCH) -> Any:
    return document(path)["components"]["schemas"][name]


def all_paths() -> list[str]:
    return list(json.loads(DOCUMENTS.root())["paths"])


def test_the_root_names_every_group_version_with_the_hash_of_its_document() -> None:
    paths = json.loads(DOCUMENTS.root())["paths"]
    assert set(paths) == {
        f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}" for kind in KINDS
    }
    for path, entry in paths.items():
        found = DOCUMENTS.document(path)
        assert found is not None
        assert entry == {"serverRelativeURL": f"/openapi/v3/{path}?hash={found[1]}"}


def test_documents_are_the_same_every_time() -> None:
    assert OpenApiDocuments(load_schema(), KindRegistry()).root() == DOCUMENTS.root()


async def test_once_prepared_nothing_is_left_to_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = OpenApiDocuments(load_schema(), KindRegistry())
    await asyncio.gather(documents.prepare(), documents.prepare())
    monkeypatch.setattr(documents, "_group_document", None)
    assert documents.root() == DOCUMENTS.root()
    assert documents.document(BATCH) == DOCUMENTS.document(BATCH)


WIDGET = Kind("example.com", "v1", "Widget", "widgets", "widget", custom=True)


def serve(
    schema: Schema,
    kinds: KindRegistry,
    kind: Kind = WIDGET,
    definition: Mapping[str, Any] | None = None,
) -> None:
    shape = open_shape(kind, schema)
    schema.add(kind.api_version, kind.kind, shape, {**open_definition(kind), **(definition or {})})
    kinds.add(kind)


@pytest.mark.parametrize("version", ["v2 JSON", "v2 protobuf", "v3"])
async def test_documents_are_made_while_a_kind_is_removed(version: str) -> None:
    schema, kinds = load_schema().for_server(), KindRegistry()
    serve(schema, kinds)
    documents = OpenApiDocuments(schema, kinds)

    async def ask() -> None:
        match version:
            case "v3":
                await documents.prepare()
            case _:
                await documents.version_2(protobuf=version == "v2 protobuf")

    asking = asyncio.create_task(ask())
    # The other thread has begun, which takes a tenth of a second.
    await asyncio.sleep(0.01)
    schema.drop(WIDGET.api_version, WIDGET.kind)
    kinds.remove(WIDGET)
    await asking
    assert "apis/example.com/v1" not in json.loads(documents.root())["paths"]


async def test_prepare_ends_while_kinds_keep_changing() -> None:
    schema, kinds = load_schema().for_server(), KindRegistry()
    documents = OpenApiDocuments(schema, kinds)
    preparing = asyncio.create_task(documents.prepare())
    changes = 0
    while not preparing.done() and (changes := changes + 1) < 2000:
        serve(schema, kinds, Kind(f"g{changes}", "v1", "W", "ws", "w", custom=True))
        # Several changes while the documents are being built.
        await asyncio.sleep(0.01)
    assert preparing.done()
    assert f"apis/g{changes}/v1" in json.loads(documents.root())["paths"]


PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}
TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (TEXT, TEXT),
        ({"nullable": True, "type": "object", "properties": {"a": TEXT}}, {}),
        ({"nullable": True, "type": "array", "items": TEXT}, {}),
        ({"type": "object", "properties": {"a": TEXT}, **PRESERVE}, PRESERVE),
        ({"type": "array", "items": TEXT, **PRESERVE}, PRESERVE),
        (
            {"type": "object", "required": ["a", "b"],
             "properties": {"a": {**TEXT, "nullable": True}, "b": TEXT}},
            {"type": "object", "required": ["b"], "properties": {"a": {}, "b": TEXT}},
        ),
        (
            {"type": "object", "required": ["a"], "properties": {"a": {"nullable": True}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {"type": "object", "required": ["a"],
             "additionalProperties": {**TEXT, "nullable": True}},
            {"type": "object", "additionalProperties": {}},
        ),
        ({"anyOf": [TEXT], "oneOf": [TEXT], "allOf": [TEXT], "not": TEXT, **TEXT}, TEXT),
    ],
)  # fmt: skip
def test_openapi_v2_omits_fields_unsupported_by_kubectl(
    written: dict[str, Any], shown: dict[str, Any]
) -> None:
    schema, kinds = load_schema().for_server(), KindRegistry()
    closed = {next(iter(PRESERVE)): False}
    serve(schema, kinds, definition={"properties": {"spec": written}, **closed})
    body, _ = asyncio.run(OpenApiDocuments(schema, kinds).version_2(protobuf=False))
    definition = json.loads(body)["definitions"]["com.example.v1.Widget"]
    assert definition["properties"]["spec"] == shown


def test_version_2_names_no_fields_of_an_open_kind() -> None:
    schema, kinds = load_schema().for_server(), KindRegistry()
    serve(schema, kinds)
    body, _ = asyncio.run(OpenApiDocuments(schema, kinds).version_2(protobuf=False))
    assert json.loads(body)["definitions"]["com.example.v1.Widget"] == {
        "type": "object",
        "x-kubernetes-group-version-kind": [
            {"group": "example.com", "version": "v1", "kind": "Widget"}
        ],
    }


@pytest.mark.parametrize("value", [True, False, {"type": "string"}])
def test_version_2_protobuf_has_additional_properties(value: Any) -> None:
    schema, kinds = load_schema().for_server(), KindRegistry()
    spec = {"type": "object", "additionalProperties": value}
    closed = {"x-kubernetes-preserve-unknown-fields": False}
    serve(schema, kinds, definition={"properties": {"spec": spec}, **closed})
    body, _ = asyncio.run(OpenApiDocuments(schema, kinds).version_2(protobuf=True))
    written = bytes_field(1, bytes_field(22, text_field(1, "string")))
    item = number_field(2, value) if isinstance(value, bool) else written
    assert bytes_field(21, item) + bytes_field(22, text_field(1, "object")) in body


def test_there_is_no_document_for_other_groups() -> None:
    assert DOCUMENTS.document("apis/nope/v1") is None


def test_every_reference_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [name for item in value.values() for name in references(item)]
        if isinstance(value, list):
            return [name for item in value for name in references(item)]
        return []

    for path in all_paths():
        content = document(path)
        known = {f"#/components/schemas/{name}" for name in content["components"]["schemas"]}
        found = set(references(content))
        assert found
        assert found <= known


@pytest.mark.parametrize("kind", [k for k in KINDS if "patch" in k.verbs], ids=lambda k: k.resource)
def test_openapi_patch_operations_declare_validation_and_merge_types(kind: Any) -> None:
    path = f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    [operation] = [
        operations["patch"]
        for place, operations in document(path)["paths"].items()
        if place.endswith(f"/{kind.plural}/{{name}}") and "/watch/" not in place
    ]
    assert operation["x-kubernetes-group-version-kind"] == gvk
    assert "fieldValidation" in [parameter["name"] for parameter in operation["parameters"]]
    assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]


def test_schemas_of_kinds_carry_a_list_of_their_names() -> None:
    assert schema("io.k8s.api.batch.v1.Job")["x-kubernetes-group-version-kind"] == [
        {"group": "batch", "version": "v1", "kind": "Job"}
    ]


def test_openapi_lists_declare_merge_keys() -> None:
    containers = schema("io.k8s.api.core.v1.PodSpec")["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["items"] == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]
    }


def test_extension_fields_are_documented() -> None:
    fields = schema("io.k8s.api.batch.v1.JobSpec")["properties"]
    assert (fields["backoffSeconds"]["type"], fields["backoffSeconds"]["format"]) == (
        "integer",
        "int64",
    )
    assert "onejob extension" in fields["failedPodsLimit"]["description"]
    pod = schema("io.k8s.api.core.v1.PodSpec")["properties"]
    assert "onejob extension" in pod["ttlSecondsAfterFinished"]["description"]
    assert "x-onejob-alias-of" not in json.dumps(document(BATCH))


def version_2(*, protobuf: bool = False) -> bytes:
    return asyncio.run(
        OpenApiDocuments(load_schema(), KindRegistry()).version_2(protobuf=protobuf)
    )[0]


class TestVersion2:
    async def test_it_is_made_once_however_many_ask(self) -> None:
        documents = OpenApiDocuments(load_schema(), KindRegistry())
        first, *others = await asyncio.gather(
            *(documents.version_2(protobuf=False) for _ in range(3))
        )
        assert all(other is first for other in others)

    def test_every_reference_leads_somewhere(self) -> None:
        content = json.loads(version_2())
        found = set(re.findall(r'"\$ref":"([^"]+)"', version_2().decode()))
        assert found
        assert found <= {f"#/definitions/{name}" for name in content["definitions"]}

    def test_it_has_the_paths_and_fields_of_all_groups(self) -> None:
        content = json.loads(version_2())
        described = {path: set(item) for path, item in content["paths"].items()}
        assert described == {
            path: set(item)
            for group in all_paths()
            for path, item in document(group)["paths"].items()
        }
        job = content["definitions"]["io.k8s.api.batch.v1.JobSpec"]["properties"]
        assert job["template"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"
        assert "onejob extension" in job["backoffSeconds"]["description"]

    def test_openapi_definitions_declare_kind_and_list_types(self) -> None:
        definitions = json.loads(version_2())["definitions"]
        assert definitions["io.k8s.api.batch.v1.Job"]["x-kubernetes-group-version-kind"] == [
            {"group": "batch", "version": "v1", "kind": "Job"}
        ]
        containers = definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
        assert containers["x-kubernetes-patch-merge-key"] == "name"
        assert definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {
            "type": "string",
            "format": "int-or-string",
        }

    def test_nothing_in_it_is_foreign_to_this_version(self) -> None:
        content = json.loads(version_2())
        # It describes schemas, and so has fields of those names.
        schemas = content["definitions"].pop(
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
        )
        assert schemas["properties"]["allOf"]["type"] == "array"
        text = json.dumps(content)
        for word in ("allOf", "oneOf", "requestBody", "components", "x-onejob-alias-of"):
            assert f'"{word}"' not in text

    def test_bodies_are_parameters(self) -> None:
        item = json.loads(version_2())["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]
        patch = item["patch"]
        assert "application/strategic-merge-patch+json" in patch["consumes"]
        assert patch["parameters"][0] == {
            "name": "body",
            "in": "body",
            "required": True,
            "schema": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"},
        }
        assert patch["operationId"] == "patchBatchV1NamespacedJob"
        assert item["parameters"][0] == {
            "name": "name",
            "in": "path",
            "required": True,
            "type": "string",
        }

    def test_operations_have_names_of_their_own(self) -> None:
        names = [
            operation["operationId"]
            for item in json.loads(version_2())["paths"].values()
            for method, operation in item.items()
            if method != "parameters"
        ]
        assert len(names) == len(set(names))
        for name in (
            "listCoreV1PodForAllNamespaces",
            "readCoreV1NamespacedPodLog",
            "connectCoreV1GetNamespacedPodExec",
            "watchBatchV1NamespacedJobList",
            "deleteBatchV1CollectionNamespacedCronJob",
            "createAuthorizationV1SelfSubjectAccessReview",
        ):
            assert name in names


class TestVersion2WithKubectl:
    """kubectl reads the v2 document, in protobuf, from servers that have no v3."""

    pytestmark = needs_kubectl

    def answers(self) -> dict[str, Any]:
        found = discovery({"v1": {"pods": "Pod"}, "batch/v1": {"jobs": "Job"}})
        found["/openapi/v2"] = Raw(
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", version_2(protobuf=True)
        )
        return found

    def test_explain(self, tmp_path: Path) -> None:
        with Recorder(tmp_path, self.answers()).running() as server:
            text = server.kubectl("explain", "job.spec.template.spec.containers")
        for part in ("<[]Object>", "imagePullPolicy\t<string>", "-required-", "livenessProbe"):
            assert part in text

    def test_create_learns_that_the_server_validates(self, tmp_path: Path) -> None:
        answers = self.answers()
        answers["POST /apis/batch/v1/namespaces/default/jobs"] = _A_JOB
        with Recorder(tmp_path, answers).running() as server:
            server.kubectl("create", "-f", "-", stdin=json.dumps(_A_JOB | {"odd": 1}))
        [(_, body)] = server.bodies("POST")
        assert json.loads(body)["odd"] == 1

    def test_apply_knows_the_merge_keys(self, tmp_path: Path) -> None:
        """For a field that this kubectl was built without: it must be in the document."""
        live = _applied(_with(containers=[{"name": "a", "image": "1"}, {"name": "b"}]))
        wanted = _with(containers=[{"name": "b"}], ttlSecondsAfterFinished=5)
        answers = self.answers()
        place = "/apis/batch/v1/namespaces/default/jobs/j"
        answers[place] = answers[f"PATCH {place}"] = live
        with Recorder(tmp_path, answers).running() as server:
            server.kubectl("apply", "-f", "-", stdin=json.dumps(wanted))
        [(_, body)] = server.bodies("PATCH")
        assert json.loads(body)["spec"]["template"]["spec"]["containers"] == [
            {"$patch": "delete", "name": "a"}
        ]


class TestWithKubectl:
    pytestmark = needs_kubectl

    def answers(self) -> dict[str, Any]:
        found = discovery(
            {
                "v1": {"pods": "Pod", "configmaps": "ConfigMap"},
                "batch/v1": {"jobs": "Job", "cronjobs": "CronJob"},
            }
        )
        found["/openapi/v3"] = json.loads(DOCUMENTS.root())
        return found | {f"/openapi/v3/{path}": document(path) for path in all_paths()}

    @pytest.mark.parametrize(
        ("what", "parts"),
        [
            ("job.spec.backoffLimit", ["FIELD: backoffLimit <integer>", "number of retries"]),
            ("job.spec.backoffSeconds", ["FIELD: backoffSeconds <integer>", "onejob extension"]),
            ("pod.spec.containers", ["<[]Container>", "imagePullPolicy\t<string>", "-required-"]),
            ("pod.spec.containers.resources.limits", ["<map[string]Quantity>"]),
            ("job.status.startTime", ["FIELD: startTime <string>"]),
            ("job", ["KIND:       Job", "VERSION:    v1", "GROUP:      batch", "spec\t<JobSpec>"]),
        ],
    )
    def test_explain(self, tmp_path: Path, what: str, parts: list[str]) -> None:
        with Recorder(tmp_path, self.answers()).running() as server:
            text = server.kubectl("explain", what)
        assert [part for part in parts if part not in text] == [], text

    def test_explain_recursively(self, tmp_path: Path) -> None:
        with Recorder(tmp_path, self.answers()).running() as server:
            text = server.kubectl("explain", "cronjob", "--recursive")
        for field in ("jobTemplate", "failedPodsLimit", "podFailurePolicy", "topologyKey"):
            assert f"{field}\t<" in text

    def test_create_validates_on_the_server(self, tmp_path: Path) -> None:
        answers = self.answers()
        answers["POST /apis/batch/v1/namespaces/default/jobs"] = _A_JOB
        with Recorder(tmp_path, answers).running() as server:
            server.kubectl("create", "-f", "-", stdin=json.dumps(_A_JOB | {"odd": 1}))
        [(content_type, body)] = server.bodies("POST")
        assert content_type == "application/json"
        assert json.loads(body)["odd"] == 1

    def test_apply_knows_the_merge_keys_of_the_documents(self, tmp_path: Path) -> None:
        """Also for fields that this kubectl was built without."""
        live = _applied(_with(containers=[{"name": "a", "image": "1"}, {"name": "b"}]))
        wanted = _with(containers=[{"name": "b"}], ttlSecondsAfterFinished=5)
        answers = self.answers()
        place = "/apis/batch/v1/namespaces/default/jobs/j"
        answers[place] = answers[f"PATCH {place}"] = live
        with Recorder(tmp_path, answers).running() as server:
            server.kubectl("apply", "-f", "-", stdin=json.dumps(wanted))
        [(content_type, body)] = server.bodies("PATCH")
        assert content_type == "application/strategic-merge-patch+json"
        assert json.loads(body)["spec"] == {
            "template": {
                "spec": {
                    "$setElementOrder/containers": [{"name": "b"}],
                    "containers": [{"$patch": "delete", "name": "a"}],
                    "ttlSecondsAfterFinished": 5,
                }
            }
        }


_A_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "default"},
}


def _with(**pod_spec: Any) -> dict[str, Any]:
    return _A_JOB | {"spec": {"template": {"spec": pod_spec}}}


def _applied(job: dict[str, Any]) -> dict[str, Any]:
    """Return the Job as client-side apply left it."""
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(job)}
    return job | {"metadata": job["metadata"] | {"annotations": annotation}}


def test_openapi_v2_defines_kinds_behind_a_gate_only_where_they_are_served() -> None:
    def defined(*kinds: Kind) -> set[str]:
        text, _ = version_2_document("v1.37.0", kinds, {}, protobuf=False)
        return {name for name in json.loads(text)["definitions"] if "scheduling.v1beta1" in name}

    assert defined(*KINDS) == set()
    assert "io.k8s.api.scheduling.v1beta1.PodGroup" in defined(*KINDS, *WORKLOAD_KINDS)
