"""In-cluster API access of programs in Pods: without a kubeconfig, as their service account."""

import json
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl
from tests.node.support import needs_namespaces

pytestmark = [needs_kubectl, needs_namespaces]

#: With the library that in-cluster programs in Python use.
PYTHON = """
import kubernetes
kubernetes.config.load_incluster_config()
found = kubernetes.client.CoreV1Api().list_namespaced_pod("default")
print("python sees", [pod.metadata.name for pod in found.items])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("cluster") / "data") as found:
        found.kubectl("create", "serviceaccount", "worker")
        found.kubectl(
            "create", "rolebinding", "w", "--clusterrole=view", "--serviceaccount=default:worker"
        )
        yield found


def run(server: Server, name: str, account: str, *command: str) -> str:
    container = {"name": "c", "image": "i", "command": list(command)}
    spec = {"restartPolicy": "Never", "serviceAccountName": account, "containers": [container]}
    metadata = {"name": name}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    server.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    server.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}")
    return server.kubectl("logs", name)


def test_kubectl_works_in_a_pod_within_its_role(server: Server) -> None:
    kubectl = shutil.which("kubectl")
    script = f"{kubectl} get pods -o name; {kubectl} get secrets 2>&1; {kubectl} auth whoami; true"
    output = run(server, "shell", "worker", "sh", "-c", script)
    assert "pod/shell" in output
    assert 'User "system:serviceaccount:default:worker" cannot list resource "secrets"' in output
    assert "authentication.kubernetes.io/pod-name" in output


def test_the_python_client_works_in_a_pod(server: Server) -> None:
    assert "python" in run(server, "python", "worker", sys.executable, "-c", PYTHON)


def test_a_token_ends_with_its_pod(server: Server) -> None:
    script = "cat /var/run/secrets/kubernetes.io/serviceaccount/token"
    token = run(server, "brief", "worker", "sh", "-c", script).strip()
    assert "brief" in server.kubectl("get", "pods", "--token", token, "--kubeconfig", "/dev/null",
                                     *server_flags(server))  # fmt: skip
    server.kubectl("delete", "pod", "brief")
    refused = server.kubectl("get", "pods", "--token", token, "--kubeconfig", "/dev/null",
                             *server_flags(server), fails=True)  # fmt: skip
    assert "Unauthorized" in refused or "must be logged in" in refused


def server_flags(server: Server) -> list[str]:
    url = json.loads(server.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    authority = server.data_dir / "server" / "pki" / "ca.crt"
    return ["--server", url, "--certificate-authority", str(authority)]
