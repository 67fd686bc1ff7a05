import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from onejob.api.kinds import KINDS
from onejob.api.openapi import OpenApiDocuments
from onejob.api.schema import load_schema
from tests.api.recording_server import Recorder, discovery, needs_kubectl

DOCUMENTS = OpenApiDocuments(load_schema())
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
    assert OpenApiDocuments(load_schema()).root() == DOCUMENTS.root()


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
def test_patches_say_that_fields_are_validated_and_how_they_merge(kind: Any) -> None:
    path = f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    [operation] = [
        operations["patch"]
        for place, operations in document(path)["paths"].items()
        if place.endswith(f"/{kind.plural}/{{name}}")
    ]
    assert operation["x-kubernetes-group-version-kind"] == gvk
    assert "fieldValidation" in [parameter["name"] for parameter in operation["parameters"]]
    assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]


def test_schemas_of_kinds_carry_a_list_of_their_names() -> None:
    assert schema("io.k8s.api.batch.v1.Job")["x-kubernetes-group-version-kind"] == [
        {"group": "batch", "version": "v1", "kind": "Job"}
    ]


def test_lists_say_how_they_merge() -> None:
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
        """Also of fields that this kubectl was built without."""
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
    """As client-side apply left it."""
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(job)}
    return job | {"metadata": job["metadata"] | {"annotations": annotation}}
