"""kubectl with custom resources, a very large definition among them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.crd.build import a_definition, a_version, text, thing
from tests.e2e.serving import Server, a_server, needs_kubectl

pytestmark = needs_kubectl

#: etcd accepts 1.5 MB; the largest known definitions have 1.2 MB.
_LARGE_BYTES = 1_200_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("serve")) as server:
        size = {"type": "integer", "minimum": 1, "default": 1, "description": "How large it is."}
        columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
        version = a_version(
            thing({"size": size, "names": {"type": "array", "items": text()}}),
            additionalPrinterColumns=columns,
            subresources={
                "status": {},
                "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
            },
        )
        names = {"shortNames": ["wd"], "categories": ["all"]}
        folder = tmp_path_factory.mktemp("crds")
        server.kubectl("create", "-f", written(folder, a_definition(version, names=names)))
        name = "crd/widgets.example.com"
        server.kubectl("wait", "--for=condition=Established", name, "--timeout=20s")
        yield server


def written(folder: Path, document: dict[str, Any]) -> str:
    path = folder / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    return str(path)


def a_widget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec
    }  # fmt: skip


def test_objects_are_applied_listed_described_and_scaled(server: Server, tmp_path: Path) -> None:
    path = written(tmp_path, a_widget("a", size=2))
    assert "widget.example.com/a created" in server.kubectl("apply", "-f", path)
    assert "unchanged" in server.kubectl("apply", "-f", path)
    assert "serverside-applied" in server.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", path
    )
    rows = [line.split() for line in server.kubectl("get", "wd").splitlines()]
    assert rows == [["NAME", "SIZE"], ["a", "2"]]
    assert "widget.example.com/a" in server.kubectl("get", "all")
    assert "Size:  2" in server.kubectl("describe", "widget", "a")
    assert "scaled" in server.kubectl("scale", "widget/a", "--replicas=4")
    assert server.kubectl("get", "widget", "a", "-o", "jsonpath={.spec.size}") == "4"
    server.kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":5}}')
    assert "deleted" in server.kubectl("delete", "widget", "a")


def test_fields_are_explained(server: Server) -> None:
    explained = server.kubectl("explain", "widget.spec.size")
    assert "FIELD: size <integer>" in explained
    assert "How large it is." in explained


def test_a_very_large_definition_is_applied_by_the_server(server: Server, tmp_path: Path) -> None:
    described = text(description="x" * 1000)
    fields = {f"field{number}": described for number in range(_LARGE_BYTES // 1040)}
    large = a_definition(a_version(thing(fields)), names={"plural": "blobs", "kind": "Blob"})
    path = written(tmp_path, large)
    assert Path(path).stat().st_size > _LARGE_BYTES
    assert "serverside-applied" in server.kubectl("apply", "--server-side", "-f", path)
    server.kubectl("wait", "--for=condition=Established", "crd/blobs.example.com", "--timeout=20s")
    assert "blobs.example.com" in server.kubectl("delete", "-f", path)
