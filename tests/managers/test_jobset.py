"""JobSet manager: it creates Jobs, and onejob runs them."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import needs_kubectl
from tests.managers.installs import JOBSET_SYSTEM, a_server_for, install
from tests.managers.running import apply, condition, get, until

pytestmark = [pytest.mark.managers, needs_kubectl]


def _replicated(name: str, replicas: int, command: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", command]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"completionMode": "Indexed", "backoffLimit": 0, "template": {"spec": pod}}
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {**job, "parallelism": 2, "completions": 2}},
    }


def _jobset(name: str, *replicated: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": list(replicated), **spec},
    }


def test_jobsets_complete_fail_and_start_again(tmp_path: Path) -> None:
    with a_server_for(tmp_path / "server", JOBSET_SYSTEM) as server:
        install(server, JOBSET_SYSTEM)
        apply(
            server,
            _jobset(
                "three",
                _replicated("driver", 1, "echo driver"),
                _replicated("workers", 2, "echo worker $JOB_COMPLETION_INDEX"),
                _replicated("checks", 1, "echo checked"),
                startupPolicy={"startupPolicyOrder": "InOrder"},
            ),
            _jobset(
                "again",
                _replicated("only", 1, "exit 1"),
                failurePolicy={"maxRestarts": 1},
            ),
        )
        until(
            "the JobSet completes",
            lambda: condition(get(server, "jobset", "three"), "Completed") == "True",
        )
        succeeded = {
            status["name"]: status["succeeded"]
            for status in get(server, "jobset", "three")["status"]["replicatedJobsStatus"]
        }
        assert succeeded == {"driver": 1, "workers": 2, "checks": 1}
        assert "worker 1" in server.kubectl("logs", "job/three-workers-1", "--all-pods")

        until(
            "the other fails after a restart",
            lambda: condition(get(server, "jobset", "again"), "Failed") == "True",
        )
        assert get(server, "jobset", "again")["status"]["restarts"] == 1
        assert (
            get(server, "job", "again-only-0")["metadata"]["labels"][
                "jobset.sigs.k8s.io/restart-attempt"
            ]
            == "1"
        )

        server.kubectl("delete", "jobset", "three", "again", "--cascade=foreground", "--wait")
        assert server.kubectl("get", "jobs,pods,services", "-o", "name").split() == [
            "service/kubernetes"
        ]
