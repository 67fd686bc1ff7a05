"""Deployments and ReplicaSets over HTTP: validation, tables and the scale subresource."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.http.raw_requests import TABLE, Requests, with_requests

MERGE = "application/merge-patch+json"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
LABELS = {"app": "web"}
PATHS = pytest.mark.parametrize("path", [DEPLOYMENTS, REPLICA_SETS])


def a_workload(template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "c", "image": "x"}], **(template or {})}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
            **spec,
        },
    }


@PATHS
def test_scale_is_read_and_written(tmp_path: Path, path: str) -> None:
    async def test(ask: Requests) -> None:
        await ask.ok("POST", path, a_workload(replicas=0))
        scale = await ask.get(f"{path}/web/scale")
        assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
        assert scale["spec"] == {}
        assert scale["status"] == {"replicas": 0, "selector": "app=web"}
        patched = await ask.ok(
            "PATCH", f"{path}/web/scale", {"spec": {"replicas": 2}}, content_type=MERGE
        )
        assert patched["spec"] == {"replicas": 2}
        patched["spec"]["replicas"] = 3
        await ask.ok("PUT", f"{path}/web/scale", patched)
        assert (await ask.get(f"{path}/web"))["spec"]["replicas"] == 3
        # The version of the Scale that was read is no longer current.
        code, _ = await ask("PUT", f"{path}/web/scale", patched)
        assert code == 409
        patched["spec"]["replicas"] = -1
        code, answer = await ask("PUT", f"{path}/web/scale", patched)
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "spec.replicas")

    with_requests(tmp_path, test)


@PATHS
def test_tables_count_pods(tmp_path: Path, path: str) -> None:
    async def test(ask: Requests) -> None:
        await ask.ok("POST", path, a_workload(replicas=0))
        status = {"status": {"replicas": 4, "readyReplicas": 3, "updatedReplicas": 2}}
        await ask.ok("PATCH", f"{path}/web/status", status, content_type=MERGE)
        table = await ask.get(path, accept=TABLE)
        names = [column["name"] for column in table["columnDefinitions"]]
        cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
        if path == DEPLOYMENTS:
            assert (cells["Ready"], cells["Up-to-date"], cells["Available"]) == ("3/0", 2, 0)
        else:
            assert (cells["Desired"], cells["Current"], cells["Ready"]) == (0, 4, 3)
        assert (cells["Images"], cells["Selector"]) == ("x", "app=web")

    with_requests(tmp_path, test)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (a_workload({"restartPolicy": "Never"}), "spec.template.spec.restartPolicy"),
        (a_workload({"activeDeadlineSeconds": 5}), "spec.template.spec.activeDeadlineSeconds"),
        (a_workload({"containers": [{"name": "C!", "image": "x"}]}),
         "spec.template.spec.containers[0].name"),
        (a_workload(replicas=-1), "spec.replicas"),
        (a_workload(minReadySeconds=-1), "spec.minReadySeconds"),
        (a_workload(selector={}), "spec.selector"),
        (a_workload(selector={"matchLabels": {"app": "b"}}), "spec.template.metadata.labels"),
    ],
)  # fmt: skip
@PATHS
def test_invalid_workload_is_rejected(
    tmp_path: Path, path: str, document: dict[str, Any], field: str
) -> None:
    async def test(ask: Requests) -> None:
        code, answer = await ask("POST", path, document)
        assert code == 422
        assert field in [cause["field"] for cause in answer["details"]["causes"]]

    with_requests(tmp_path, test)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"strategy": {"type": "Sometimes"}}, "spec.strategy.type"),
        ({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
         "spec.strategy.rollingUpdate"),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
         "spec.strategy.rollingUpdate.maxUnavailable"),
        ({"strategy": {"rollingUpdate": {"maxSurge": -1}}}, "spec.strategy.rollingUpdate.maxSurge"),
        ({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}},
         "spec.strategy.rollingUpdate.maxUnavailable"),
        ({"strategy": {"rollingUpdate": {"maxSurge": "many"}}},
         "spec.strategy.rollingUpdate.maxSurge"),
        ({"progressDeadlineSeconds": 10, "minReadySeconds": 10}, "spec.progressDeadlineSeconds"),
        ({"revisionHistoryLimit": -1}, "spec.revisionHistoryLimit"),
    ],
)  # fmt: skip
def test_invalid_deployment_is_rejected(tmp_path: Path, spec: dict[str, Any], field: str) -> None:
    async def test(ask: Requests) -> None:
        code, answer = await ask("POST", DEPLOYMENTS, a_workload(**spec))
        assert code == 422
        assert [cause["field"] for cause in answer["details"]["causes"]] == [field]

    with_requests(tmp_path, test)
