"""Systems installed as documented: with webhooks, leader election and certificates of their own."""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import Server, needs_kubectl
from tests.managers.installs import (
    JOBSET_SYSTEM,
    MPI_SYSTEM,
    System,
    a_server_for,
    install,
    pods_of,
    wait_for_rollout,
)
from tests.managers.running import apply, condition, get, until

pytestmark = [pytest.mark.managers, needs_kubectl]

#: Seconds after the creation of a JobSet at which its manager is killed.
_KILL_SECONDS = (0.0, 0.3, 1.0, 10.0)


def a_container(script: str) -> dict[str, Any]:
    return {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}


def a_job(script: str, **spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [a_container(script)]}
    return {"template": {"spec": pod}, **spec}


def a_jobset(name: str, *, replicas: int, script: str, **job: Any) -> dict[str, Any]:
    """Return a JobSet without the fields that JobSet's webhook sets."""
    replicated = {
        "name": "workers",
        "replicas": replicas,
        "template": {"spec": a_job(script, **job)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [replicated]},
    }


def test_jobset_is_installed_unmodified(tmp_path: Path) -> None:
    with a_server_for(tmp_path / "server", JOBSET_SYSTEM) as server:
        install(server, JOBSET_SYSTEM)
        (manager,) = pods_of(server, JOBSET_SYSTEM)
        assert manager["status"]["containerStatuses"][0]["restartCount"] == 0
        apply(
            server, a_jobset("two", replicas=2, script="echo $JOB_COMPLETION_INDEX", completions=2)
        )
        # Set by the webhook, which is called at the Pod behind its Service.
        assert get(server, "jobset", "two")["spec"]["successPolicy"] == {"operator": "All"}
        until("the JobSet completes", lambda: _completed(server, "two"))
        assert get(server, "jobset", "two")["status"]["replicatedJobsStatus"][0]["succeeded"] == 2
        bad = a_jobset("bad", replicas=1, script="true")
        bad["spec"]["successPolicy"] = {"operator": "Any", "targetReplicatedJobs": ["none"]}
        refusal = server.kubectl("apply", "-f", "-", stdin=json.dumps(bad), fails=True)
        assert "invalid replicatedJob name 'none'" in refusal


def test_jobs_stay_exact_while_the_manager_is_killed(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with a_server_for(tmp_path / "server", JOBSET_SYSTEM) as server:
        install(server, JOBSET_SYSTEM)
        script = f"sleep 2; echo x >> {runs}/$HOSTNAME"
        for number, delay in enumerate(_KILL_SECONDS):
            name = f"set-{number}"
            apply(server, a_jobset(name, replicas=3, script=script, completions=3, parallelism=1))
            time.sleep(delay)
            _kill_manager(server, JOBSET_SYSTEM)
            # The next one must take over the lease, which takes 15 s.
            wait_for_rollout(server, JOBSET_SYSTEM)
            until(f"{name} completes", partial(_completed, server, name))
        jobs = get(server, "jobs")["items"]
        assert len(jobs) == 3 * len(_KILL_SECONDS)
        assert {job["status"]["succeeded"] for job in jobs} == {3}
        # Each index of each Job has run once: the host name of an indexed Pod is unique.
        files = list(runs.iterdir())
        assert len(files) == 3 * len(jobs)
        assert {file.read_text() for file in files} == {"x\n"}


def _completed(server: Server, name: str) -> bool:
    return condition(get(server, "jobset", name), "Completed") == "True"


def _kill_manager(server: Server, system: System) -> None:
    """Kill a manager with SIGKILL, together with its Pod: a container would be restarted with
    back-off."""
    for pod in pods_of(server, system):
        name = pod["metadata"]["name"]
        flags = ("--force", "--grace-period=0", "--ignore-not-found")
        server.kubectl("delete", "pod", name, "-n", system.namespace, *flags)


def test_mpi_operator_is_installed_unmodified(tmp_path: Path) -> None:
    with a_server_for(tmp_path / "server", MPI_SYSTEM) as server:
        install(server, MPI_SYSTEM)
        launcher = a_container("cat /etc/mpi/hostfile; ls /root/.ssh")
        worker = a_container("sleep 600")
        replicas = {
            name: {"replicas": count, "template": {"spec": {"containers": [container]}}}
            for name, count, container in (("Launcher", 1, launcher), ("Worker", 2, worker))
        }
        document = {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": "pi"},
            "spec": {
                "slotsPerWorker": 1,
                "runPolicy": {"cleanPodPolicy": "Running"},
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiReplicaSpecs": replicas,
            },
        }
        apply(server, document)
        until(
            "the MPIJob succeeds",
            lambda: condition(get(server, "mpijob", "pi"), "Succeeded") == "True",
        )
        logs = server.kubectl("logs", "job/pi-launcher")
        # Workers are named, but their names do not resolve: `mpirun` over ssh does not work.
        assert "pi-worker-0.pi.default.svc slots=1" in logs
        assert "id_rsa" in logs
        until(
            "the workers are removed",
            lambda: (
                server.kubectl(
                    "get", "pods", "-l", "training.kubeflow.org/job-role=worker", "-o", "name"
                )
                == ""
            ),
        )
