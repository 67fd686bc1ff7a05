"""Disruption of Jobs by kubectl: cordon, drain, eviction, deletion."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl

pytestmark = needs_kubectl

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  completions: {completions}
  parallelism: {completions}
  backoffSeconds: 0
  {more}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: busybox
        command: [sh, -c, "trap 'exit 9' TERM; while [[ ! -e /go/go ]]; do sleep 0.1; done"]
        volumeMounts:
        - {{name: go, mountPath: /go}}
        - {{name: scratch, mountPath: /scratch}}
      volumes:
      - {{name: go, hostPath: {{path: {go}, type: DirectoryOrCreate}}}}
      - {{name: scratch, emptyDir: {{}}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("drain")) as server:
        yield server


def start_job(server: Server, name: str, go: Path, *, completions: int = 2, more: str = "") -> None:
    """Start a Job whose Pods run until the file `go` exists."""
    text = JOB.format(name=name, go=go, completions=completions, more=more)
    server.kubectl("create", "-f", "-", stdin=text)
    ready = f"--for=jsonpath={{.status.ready}}={completions}"
    server.kubectl("wait", ready, f"job/{name}", "--timeout=60s")


def finish(server: Server, name: str, go: Path) -> dict[str, Any]:
    (go / "go").touch()
    server.kubectl("wait", "--for=condition=complete", f"job/{name}", "--timeout=60s")
    status: dict[str, Any] = the_job(server, name)["status"]
    return status


def the_job(server: Server, name: str) -> dict[str, Any]:
    job: dict[str, Any] = json.loads(server.kubectl("get", "job", name, "-o", "json"))
    return job


def pods_of(server: Server, name: str) -> list[dict[str, Any]]:
    found = server.kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json")
    pods: list[dict[str, Any]] = json.loads(found)["items"]
    return pods


def names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def until(what: str, holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.1)


def the_node(server: Server) -> str:
    return server.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")


def test_a_drained_node_is_empty_and_its_jobs_go_on_when_it_is_back(
    server: Server, tmp_path: Path
) -> None:
    start_job(server, "drained", tmp_path)
    before = names(pods_of(server, "drained"))
    node = the_node(server)
    printed = server.kubectl(
        *("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data"),
        "--timeout=60s",
    )
    assert f"node/{node} cordoned" in printed
    for name in before:
        assert f"pod/{name} evicted" in printed
    assert f"node/{node} drained" in printed
    assert "SchedulingDisabled" in server.kubectl("get", "nodes")

    until("replacements", lambda: len(names(pods_of(server, "drained")) - before) == 2)
    waiting = [pod for pod in pods_of(server, "drained") if names([pod]) - before]
    assert {pod["status"]["phase"] for pod in waiting} == {"Pending"}
    assert not any(pod["spec"].get("nodeName") for pod in waiting)

    server.kubectl("uncordon", node)
    status = finish(server, "drained", tmp_path)
    assert (status["succeeded"], status["failed"]) == (2, 2)


def test_cordoned_node_keeps_pods_and_binds_none(server: Server, tmp_path: Path) -> None:
    start_job(server, "before", tmp_path, completions=1)
    node = the_node(server)
    server.kubectl("cordon", node)
    try:
        server.kubectl("create", "job", "after", "--image=busybox", "--", "true")
        until("a Pod", lambda: pods_of(server, "after"))
        until("an event", lambda: "unschedulable" in server.kubectl("events", "--types=Warning"))
        assert [pod["status"]["phase"] for pod in pods_of(server, "after")] == ["Pending"]
        status = finish(server, "before", tmp_path)
        assert status["succeeded"] == 1
        assert "failed" not in status
    finally:
        server.kubectl("uncordon", node)
    server.kubectl("wait", "--for=condition=complete", "job/after", "--timeout=60s")


def test_an_eviction_can_be_ignored_by_the_failure_policy(server: Server, tmp_path: Path) -> None:
    policy = (
        "podFailurePolicy: {rules: [{action: Ignore, "
        "onPodConditions: [{type: DisruptionTarget}]}]}\n  backoffLimit: 0"
    )
    start_job(server, "evicted", tmp_path, completions=1, more=policy)
    (pod,) = names(pods_of(server, "evicted"))
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    dry = {**body, "deleteOptions": {"dryRun": ["All"]}}
    server.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(dry))
    assert "deletionTimestamp" not in pods_of(server, "evicted")[0]["metadata"]
    answer = server.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert json.loads(answer)["status"] == "Success"
    until("a replacement", lambda: names(pods_of(server, "evicted")) - {pod})
    status = finish(server, "evicted", tmp_path)
    assert status["succeeded"] == 1
    assert "failed" not in status


def test_a_deleted_pod_of_a_job_counts_as_failed_and_is_replaced(
    server: Server, tmp_path: Path
) -> None:
    start_job(server, "deleted", tmp_path)
    before = names(pods_of(server, "deleted"))
    victim = min(before)
    assert f'pod "{victim}" deleted' in server.kubectl("delete", "pod", victim)
    until("a replacement", lambda: len(names(pods_of(server, "deleted")) - {victim}) == 2)
    assert before - {victim} < names(pods_of(server, "deleted"))
    status = finish(server, "deleted", tmp_path)
    assert (status["succeeded"], status["failed"]) == (2, 1)


def test_wait_supports_failure_and_completion(server: Server) -> None:
    server.kubectl("create", "job", "failing", "--image=busybox", "--", "false")
    server.kubectl("patch", "job", "failing", "-p", '{"spec":{"backoffLimit":0}}')
    printed = server.kubectl("wait", "--for=condition=failed", "job/failing", "--timeout=60s")
    assert printed == "job.batch/failing condition met\n"
    never = server.kubectl(
        "wait", "--for=condition=complete", "job/failing", "--timeout=1s", fails=True
    )
    assert "timed out waiting for the condition" in never
    reason = "--for=jsonpath={.status.conditions[?(@.type=='Failed')].reason}=BackoffLimitExceeded"
    server.kubectl("wait", reason, "job/failing", "--timeout=10s")


def test_a_budget_holds_up_evictions(server: Server, tmp_path: Path) -> None:
    start_job(server, "guarded", tmp_path)
    selector = "batch.kubernetes.io/job-name=guarded"
    server.kubectl("create", "pdb", "both", f"--selector={selector}", "--min-available=2")

    def row() -> list[str]:
        return server.kubectl("get", "pdb", "both", "--no-headers").split()[:4]

    until("the budget is calculated", lambda: row() == ["both", "2", "N/A", "0"])
    pod = min(names(pods_of(server, "guarded")))
    refused = _evict(server, pod, fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused
    server.kubectl("patch", "pdb", "both", "--type=merge", '-p={"spec": {"minAvailable": 1}}')
    until("one may go", lambda: row() == ["both", "1", "N/A", "1"])
    _evict(server, pod)
    server.kubectl("delete", "pdb", "both")
    finish(server, "guarded", tmp_path)


def _evict(server: Server, pod: str, *, fails: bool = False) -> str:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    return server.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body), fails=fails)
