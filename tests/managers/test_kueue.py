"""Kueue manager: it admits Jobs, and onejob runs them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import Server, needs_kubectl
from tests.managers.installs import KUEUE_SYSTEM, a_server_for, apply_when_ready, install
from tests.managers.queues import (
    PRIORITY_LABEL,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority,
)
from tests.managers.running import apply, condition, get, until

pytestmark = [pytest.mark.managers, needs_kubectl]

_CAPACITY = ("--capacity", "cpu=16,memory=4Gi,pods=50")


def _is_running(server: Server, name: str) -> bool:
    status = get(server, "job", name).get("status", {})
    return bool(status.get("active") == 2 and status.get("ready") == 2)


def _is_complete(server: Server, name: str) -> bool:
    return condition(get(server, "job", name), "Complete") == "True"


def _workload_of(server: Server, name: str) -> Any:
    uid = get(server, "job", name)["metadata"]["uid"]
    found = [
        workload
        for workload in get(server, "workloads").get("items", [])
        if workload["metadata"]["labels"].get("kueue.x-k8s.io/job-uid") == uid
    ]
    return found[0] if found else {}


def test_jobs_are_admitted_queued_and_preempted(tmp_path: Path) -> None:
    with a_server_for(tmp_path / "server", KUEUE_SYSTEM, options=_CAPACITY) as server:
        install(server, KUEUE_SYSTEM)
        preemption = {"withinClusterQueue": "LowerPriority"}
        apply_when_ready(server, flavor(), cluster_queue(2, preemption=preemption))
        apply(server, local_queue(), priority("urgent", 1000))
        may_end = tmp_path / "may-end"
        waits = f"while [ ! -e {may_end} ]; do sleep 0.1; done"
        apply(server, job("first", waits))
        until("the first Job is admitted", lambda: _is_running(server, "first"))

        apply(server, job("second", "true"))
        until(
            "the second Job is queued",
            lambda: condition(_workload_of(server, "second"), "QuotaReserved") == "False",
        )
        assert get(server, "job", "second")["spec"]["suspend"] is True

        apply(server, job("third", "true", {PRIORITY_LABEL: "urgent"}))
        until("the urgent Job completes", lambda: _is_complete(server, "third"))
        workload = _workload_of(server, "first")
        assert condition(workload, "Preempted") != ""
        reasons = server.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
        assert "Preempted" in reasons

        may_end.touch()
        until("the preempted Job runs again", lambda: _is_complete(server, "first"))
        until("the queued Job has its turn", lambda: _is_complete(server, "second"))
        until(
            "no quota is taken any more",
            lambda: get(server, "clusterqueue", "team")["status"]["admittedWorkloads"] == 0,
        )
        bad = cluster_queue(2)
        bad["spec"]["resourceGroups"][0]["coveredResources"] = ["cpu", "memory"]
        refusal = server.kubectl("apply", "-f", "-", stdin=json.dumps(bad), fails=True)
        assert "flavors" in refusal
        server.kubectl("delete", "jobs", "--all")
        until(
            "workloads go with their Jobs",
            lambda: get(server, "workloads").get("items", []) == [],
        )
