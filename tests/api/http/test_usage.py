"""metrics.k8s.io, the API of `kubectl top`."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onejob.api.usage import Measurement, Usage
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import Wire, with_server

METRICS = "/apis/metrics.k8s.io/v1beta1"
PODS = f"{METRICS}/namespaces/default/pods"
AT = datetime(2026, 11, 16, 9, tzinfo=UTC)


class Measured:
    async def pods(self) -> Mapping[str, Measurement]:
        return {"u1": Measurement(AT, 2.5, {"c": Usage(1_500_000, 3 * 1024 * 1024)})}

    async def node(self) -> Measurement | None:
        return Measurement(AT, 1.0, {"here": Usage(2_000_000_000, 1024)})


def document(name: str, uid: str) -> bytes:
    metadata = {"name": name, "namespace": "default", "uid": uid, "labels": {"a": "b"}}
    return json.dumps({"metadata": metadata}).encode()


SERVICE = ScriptedService(
    {
        "measured": document("measured", "u1"),
        "pending": document("pending", "u2"),
        "here": document("here", "n"),
    }
)
OF_THE_POD = {
    "kind": "PodMetrics",
    "apiVersion": "metrics.k8s.io/v1beta1",
    "metadata": {
        "name": "measured",
        "namespace": "default",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-11-16T09:00:00Z",
    },
    "timestamp": "2026-11-16T09:00:00Z",
    "window": "2.500s",
    "containers": [{"name": "c", "usage": {"cpu": "1500000n", "memory": "3072Ki"}}],
}


def test_pods_that_are_measured_are_listed(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        for path in (PODS, f"{METRICS}/pods"):
            found = (await wire.call("GET", path)).json()
            assert (found["kind"], found["items"]) == ("PodMetricsList", [OF_THE_POD])
        assert (await wire.call("GET", f"{PODS}/measured")).json() == OF_THE_POD

    with_server(SERVICE, tmp_path, test, usage=Measured())


def test_a_node_is_measured_as_a_whole(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        [node] = (await wire.call("GET", f"{METRICS}/nodes")).json()["items"]
        assert (node["kind"], node["metadata"]["name"]) == ("NodeMetrics", "here")
        assert node["usage"] == {"cpu": "2000000000n", "memory": "1Ki"}
        assert (await wire.call("GET", f"{METRICS}/nodes/here")).json() == node

    with_server(SERVICE, tmp_path, test, usage=Measured())


@pytest.mark.parametrize("name", ["pending", "nope"])
def test_metrics_of_unmeasured_pod_are_not_found(tmp_path: Path, name: str) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", f"{PODS}/{name}")
        assert (reply.code, reply.json()["reason"]) == (404, "NotFound")

    with_server(SERVICE, tmp_path, test, usage=Measured())


def test_a_runtime_that_measures_nothing_has_empty_lists(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", PODS)).json()["items"] == []
        assert (await wire.call("GET", f"{METRICS}/nodes/here")).code == 404

    with_server(SERVICE, tmp_path, test)


def test_metrics_selectors_match_pod_labels(tmp_path: Path) -> None:
    service = ScriptedService({})

    async def test(wire: Wire) -> None:
        await wire.call("GET", f"{PODS}?labelSelector=a%3Db&limit=5")

    with_server(service, tmp_path, test, usage=Measured())
    [options] = service.seen
    assert (options.label_selector, options.limit) == ("a=b", 5)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_measurements_cannot_be_written(tmp_path: Path, method: str) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call(method, f"{PODS}/measured", b"{}")).code == 405
        assert (await wire.call("GET", f"{METRICS}/watch/pods")).code == 404

    with_server(SERVICE, tmp_path, test, usage=Measured())


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/yaml", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 406),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 406),
    ],
)
def test_measurements_have_no_other_form(tmp_path: Path, accept: str, code: int) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", PODS, accept=accept)).code == code

    with_server(SERVICE, tmp_path, test, usage=Measured())


def test_the_group_is_discovered(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        found: Any = (await wire.call("GET", METRICS)).json()["resources"]
        assert [(resource["name"], resource["kind"]) for resource in found] == [
            ("nodes", "NodeMetrics"),
            ("pods", "PodMetrics"),
        ]
        groups = [group["name"] for group in (await wire.call("GET", "/apis")).json()["groups"]]
        assert "metrics.k8s.io" in groups

    with_server(SERVICE, tmp_path, test)
