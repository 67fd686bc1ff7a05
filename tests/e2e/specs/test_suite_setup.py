"""Requirements of upstream's test suite on a cluster before it runs any spec."""

import pytest

from tests.e2e.specs.api import NODES, PODS, SERVICES, Api, Resource
from tests.e2e.specs.running import Runs, Spec, Suite

suite = Suite(level="privileged")


@suite.it("every schedulable node is ready, untainted and named by its host label")
async def _(api: Api, namespace: str) -> None:
    nodes = await api.items(
        NODES, "", fieldSelector="spec.unschedulable=false", resourceVersion="0"
    )
    assert nodes
    for node in nodes:
        ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        assert ready == ["True"]
        assert not node["spec"].get("taints")
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == node["metadata"]["name"]
        assert node["status"]["allocatable"]["cpu"]
        assert int(node["status"]["allocatable"]["pods"]) >= 110


@suite.it("nothing of the system is missing or still to start")
async def _(api: Api, namespace: str) -> None:
    apps = [Resource("apps/v1", plural) for plural in ("replicasets", "daemonsets")]
    for resource in (Resource("v1", "replicationcontrollers"), *apps, PODS):
        assert await api.items(resource, "kube-system") == []
    service = await api.get(SERVICES, "default", "kubernetes")
    assert service["spec"]["clusterIP"]
    version = await api.call("GET", "/version")
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


@pytest.mark.parametrize("spec", suite.parameters())
def test_set_up(spec: Spec, runs: Runs) -> None:
    runs.result(spec)
