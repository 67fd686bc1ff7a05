"""MultiKueue: Jobs of one onejob, or of a real cluster, run on another."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl
from tests.managers.queues import cluster_queue, flavor, job, local_queue, multikueue
from tests.managers.running import apply, condition, get, kueue, until
from tests.upstream.cluster import Upstream

pytestmark = [pytest.mark.managers, needs_kubectl]

_CAPACITY = ("--capacity", "cpu=16,memory=4Gi,pods=50")
_ELSEWHERE = {"admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}]}}
_MANAGED_BY = "kueue.x-k8s.io/multikueue"


def test_jobs_run_on_another_server_until_it_is_lost(tmp_path: Path) -> None:
    # No node here, so that Jobs can only run remotely.
    with (
        a_server(tmp_path / "manager", "--no-node") as manager,
        a_server(tmp_path / "worker", *_CAPACITY) as worker,
        kueue(worker, tmp_path / "worker-kueue"),
        kueue(manager, tmp_path / "manager-kueue", multiKueue={"workerLostTimeout": "3s"}) as log,
    ):
        apply(worker, flavor(), cluster_queue(4), local_queue())
        _connect(manager, worker.kubeconfig)
        apply(
            manager,
            flavor(),
            cluster_queue(4, **_ELSEWHERE),
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


@pytest.mark.skipif(bool(Upstream.missing()), reason=Upstream.missing() or "built")
def test_jobs_of_a_real_cluster_run_on_a_server_of_ours(tmp_path: Path) -> None:
    """The cluster's manager is a user with only the permissions of the how-to."""
    with (
        Upstream(tmp_path / "cluster") as cluster,
        a_server(tmp_path / "worker", *_CAPACITY) as worker,
        kueue(worker, tmp_path / "worker-kueue"),
        kueue(Server(cluster.folder), tmp_path / "cluster-kueue", called=False) as log,
    ):
        manager = Server(cluster.folder)
        cluster.start_controller_manager("*")
        _call_nobody(manager)
        apply(worker, flavor(), cluster_queue(4), local_queue())
        _connect(manager, _restricted_user(worker))
        apply(manager, flavor(), cluster_queue(4, **_ELSEWHERE), local_queue())
        # As the webhook would have it.
        apply(manager, job("moved", "true", managedBy=_MANAGED_BY, suspend=True))
        until(
            "the status comes back",
            lambda: condition(get(manager, "job", "moved"), "Complete") == "True",
            log,
        )
        assert get(manager, "job", "moved")["status"]["succeeded"] == 2
        assert manager.kubectl("get", "pods", "-o", "name") == ""
        until("the copy is deleted", lambda: get(worker, "job", "moved") == {}, log)


def _call_nobody(manager: Server) -> None:
    """Remove Kueue's webhooks: it runs outside of the cluster, where they cannot be reached."""
    without = '[{"op": "remove", "path": "/webhooks"}]'
    for kind in ("mutating", "validating"):
        name = f"kueue-{kind}-webhook-configuration"
        manager.kubectl("patch", f"{kind}webhookconfiguration", name, "--type=json", "-p", without)
    manager.kubectl("delete", "apiservices", "-l", "app.kubernetes.io/name=kueue")


def _restricted_user(worker: Server) -> Path:
    worker.kubectl(
        *("create", "clusterrole", "multikueue"),
        "--verb=get,list,watch,create,update,patch,delete",
        "--resource=jobs.batch,jobs.batch/status,"
        "workloads.kueue.x-k8s.io,workloads.kueue.x-k8s.io/status",
    )
    kubeconfig = worker.data_dir / "multikueue.kubeconfig"
    subprocess.run(
        [
            *(sys.executable, "-m", "onejob", "user", "add", "multikueue", "--cluster"),
            *("--data-dir", worker.data_dir, "--role", "multikueue"),
            *("--kubeconfig-out", kubeconfig),
        ],
        check=True,
    )
    return kubeconfig


def _connect(manager: Server, kubeconfig: Path) -> None:
    manager.kubectl(
        *("create", "secret", "generic", "worker-access", "-n", "kueue-system"),
        f"--from-file=kubeconfig={kubeconfig}",
    )
    apply(manager, *multikueue("worker-access"))


def _active(server: Server, name: str) -> Any:
    return get(server, "job", name).get("status", {}).get("active")
