"""MultiKueue runs Jobs of one onejob on another."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl
from tests.managers.queues import cluster_queue, flavor, job, local_queue, multikueue
from tests.managers.running import apply, condition, get, kueue, until

pytestmark = [pytest.mark.managers, needs_kubectl]

_CAPACITY = ("--capacity", "cpu=16,memory=4Gi,pods=50")
_MANAGED_BY = "kueue.x-k8s.io/multikueue"


def test_jobs_run_on_another_server_until_it_is_lost(tmp_path: Path) -> None:
    # What is not run here would run with a node of its own, so there is none.
    with (
        a_server(tmp_path / "manager", "--no-node") as manager,
        a_server(tmp_path / "worker", *_CAPACITY) as worker,
        kueue(worker, tmp_path / "worker-kueue"),
        kueue(manager, tmp_path / "manager-kueue", multiKueue={"workerLostTimeout": "3s"}) as log,
    ):
        apply(worker, flavor(), cluster_queue(4), local_queue())
        _connect(manager, worker)
        apply(
            manager,
            flavor(),
            cluster_queue(4, admissionChecksStrategy={"admissionChecks": [{"name": "elsewhere"}]}),
            local_queue(),
        )
        until(
            "the worker is connected",
            lambda: condition(get(manager, "multikueuecluster", "worker"), "Active") == "True",
            log,
        )

        apply(manager, job("moved", "echo hello from $(hostname)", managedBy=_MANAGED_BY))
        until(
            "the status comes back",
            lambda: condition(get(manager, "job", "moved"), "Complete") == "True",
            log,
        )
        done = get(manager, "job", "moved")
        assert done["status"]["succeeded"] == 2
        assert manager.kubectl("get", "pods", "-o", "name") == ""
        until("the copy is deleted", lambda: get(worker, "job", "moved") == {}, log)

        apply(manager, job("lost", "sleep 600", managedBy=_MANAGED_BY))
        until("it runs there", lambda: _active(manager, "lost") == 2, log)
        worker.kill()
        until(
            "the lost worker is noticed",
            lambda: condition(get(manager, "multikueuecluster", "worker"), "Active") == "False",
            log,
        )
        until(
            "the Job waits for a worker again",
            lambda: get(manager, "job", "lost")["spec"]["suspend"] is True,
            log,
        )


def _connect(manager: Server, worker: Server) -> None:
    manager.kubectl(
        *("create", "secret", "generic", "worker-access", "-n", "kueue-system"),
        f"--from-file=kubeconfig={worker.kubeconfig}",
    )
    apply(manager, *multikueue("worker-access"))


def _active(server: Server, name: str) -> Any:
    return get(server, "job", name).get("status", {}).get("active")
