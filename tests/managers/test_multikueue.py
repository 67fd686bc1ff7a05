"""MultiKueue: Jobs of one onejob, or of a real cluster, run on another."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import Server, needs_kubectl
from tests.managers.installs import KUEUE_SYSTEM, a_server_for, apply_when_ready, install
from tests.managers.queues import cluster_queue, flavor, job, local_queue, multikueue
from tests.managers.running import apply, condition, get, kueue, until
from tests.upstream.cluster import Upstream

pytestmark = [pytest.mark.managers, needs_kubectl]

_CAPACITY = ("--capacity", "cpu=16,memory=4Gi,pods=50")
_ELSEWHERE = {"admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}]}}


def _on_other_ports(manifests: str) -> str:
    """Return Kueue's manifests with the changes of the how-to, for the second server of a machine.

    As in a cluster, a worker must have the CRDs of all integrations of MultiKueue. The port of the
    visibility server is a default, and so not part of the manifests.
    """
    other = r'\n +- "(?!batch/job")[a-z0-9./-]+"(?=\n)'
    place = "#pprofBindAddress: :8083"
    assert place in manifests
    more = "visibilityServer: {bindPort: 18082}\n    multiKueue: {workerLostTimeout: 3s}"
    return re.sub(other, "", manifests).replace(place, more)


def test_jobs_run_on_another_server_until_it_is_lost(tmp_path: Path) -> None:
    with (
        a_server_for(tmp_path / "manager", KUEUE_SYSTEM) as manager,
        a_server_for(tmp_path / "worker", KUEUE_SYSTEM, options=_CAPACITY) as worker,
    ):
        install(worker, KUEUE_SYSTEM)
        install(manager, KUEUE_SYSTEM, shift=10000, edit=_on_other_ports)
        apply_when_ready(worker, flavor(), cluster_queue(4))
        apply(worker, local_queue())
        _connect(manager, worker.kubeconfig)
        apply_when_ready(manager, flavor(), cluster_queue(4, **_ELSEWHERE))
        apply(manager, local_queue())
        until(
            "the worker is connected",
            lambda: condition(get(manager, "multikueuecluster", "worker"), "Active") == "True",
        )

        apply(manager, job("moved", "echo hello from $(hostname)"))
        until(
            "the status comes back",
            lambda: condition(get(manager, "job", "moved"), "Complete") == "True",
        )
        done = get(manager, "job", "moved")
        assert done["status"]["succeeded"] == 2
        # Set by the webhook, as is `suspend`. The manager here has a node, too, but runs nothing.
        assert done["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
        assert manager.kubectl("get", "pods", "-o", "name") == ""
        until("the copy is deleted", lambda: get(worker, "job", "moved") == {})

        apply(manager, job("lost", "sleep 600"))
        until("it runs there", lambda: _active(manager, "lost") == 2)
        worker.kill()
        until(
            "the lost worker is noticed",
            lambda: condition(get(manager, "multikueuecluster", "worker"), "Active") == "False",
        )
        until(
            "the Job waits for a worker again",
            lambda: get(manager, "job", "lost")["spec"]["suspend"] is True,
        )
        # Its Pods outlived it, also that of its manager.
        worker.start()


@pytest.mark.skipif(bool(Upstream.missing()), reason=Upstream.missing() or "built")
def test_jobs_of_a_real_cluster_run_on_a_server_of_ours(tmp_path: Path) -> None:
    """The cluster's manager is a user with only the permissions of the how-to."""
    with (
        Upstream(tmp_path / "cluster") as cluster,
        a_server_for(tmp_path / "worker", KUEUE_SYSTEM, options=_CAPACITY) as worker,
        kueue(Server(cluster.folder), tmp_path / "cluster-kueue") as log,
    ):
        manager = Server(cluster.folder)
        cluster.start_controller_manager("*")
        _call_nobody(manager)
        install(worker, KUEUE_SYSTEM)
        apply_when_ready(worker, flavor(), cluster_queue(4))
        apply(worker, local_queue())
        _connect(manager, _restricted_user(worker))
        apply(manager, flavor(), cluster_queue(4, **_ELSEWHERE), local_queue())
        apply(manager, job("moved", "true", suspend=True, managedBy="kueue.x-k8s.io/multikueue"))
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
