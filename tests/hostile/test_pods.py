"""Pod that tries to escape, under `--host-fs ro`: as root and as another user."""

import base64
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl
from tests.node.support import needs_namespaces, needs_pid_namespaces

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can keep root in"),
    needs_kubectl,
    needs_namespaces,
    needs_pid_namespaces,
]

SCRIPT = Path(__file__).with_name("escapes.py")
NAMES = re.findall(r'^    "([^"]+)": ', SCRIPT.read_text().partition("TRIES:")[2], re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("host")
    before = os.environ.get("API_PASSWORD")
    os.environ["API_PASSWORD"] = "in-the-environment-3c1f"
    try:
        with a_server(folder / "data", "--host-fs", "ro", *option_files(folder)) as found:
            yield found
    finally:
        del os.environ["API_PASSWORD"]
        if before is not None:
            os.environ["API_PASSWORD"] = before


def option_files(folder: Path) -> list[str]:
    """Return options that name files with secrets, outside of the data dir and world-readable."""
    (folder / "encryption.key").write_text(f"k:{base64.b64encode(bytes(32)).decode()}\n")
    (folder / "encryption.key").chmod(0o600)
    (folder / "audit-earlier.log").write_text("")
    (folder / "webhook.key").write_text(base64.b64encode(bytes(32)).decode())
    webhook = {"url": "https://127.0.0.1:9/", "secretFile": f"{folder}/webhook.key"}
    targets = [{"name": "chat", "webhook": webhook}]
    (folder / "notify.yaml").write_text(json.dumps({"targets": targets}))
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
    (folder / "policy.json").write_text(json.dumps(policy))
    return [
        f"--encryption-key-file={folder}/encryption.key",
        f"--audit-policy-file={folder}/policy.json",
        f"--audit-log-path={folder}/audit.log",
        f"--notify-config={folder}/notify.yaml",
    ]


def python_for(user: int) -> str:
    """Return a Python interpreter that this user may execute."""
    if user == 0:
        return sys.executable
    found = shutil.which("python3", path="/usr/bin:/bin")
    if found is None:
        pytest.skip("there is no python3 in /usr/bin that somebody without rights may run")
    return found


def tried_as(server: Server, name: str, user: int) -> dict[str, str]:
    assert server.process is not None
    command = [python_for(user), "-I", "-c", SCRIPT.read_text()]
    arguments = [str(server.data_dir), str(server.process.pid)]
    container = {"name": "c", "image": "python", "command": command, "args": arguments}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": user},
            "containers": [container],
        },
    }
    server.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    server.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=60s"
    )
    lines = server.kubectl("logs", name).splitlines()
    assert lines[-1] == "all tried", lines
    return dict(line.split(": ", 1) for line in lines[:-1])


@pytest.fixture(scope="module")
def as_root(server: Server) -> dict[str, str]:
    return tried_as(server, "root", 0)


@pytest.fixture(scope="module")
def as_nobody(server: Server) -> dict[str, str]:
    return tried_as(server, "nobody", 65534)


@pytest.mark.parametrize("name", NAMES)
def test_root_in_a_pod_does_not_get_out(as_root: dict[str, str], name: str) -> None:
    assert as_root[name].startswith("closed"), as_root[name]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_in_a_pod_does_not_get_out(as_nobody: dict[str, str], name: str) -> None:
    assert as_nobody[name].startswith("closed"), as_nobody[name]


def test_every_way_out_is_tried(as_root: dict[str, str]) -> None:
    assert list(as_root) == NAMES
    assert len(NAMES) > 55


@pytest.mark.parametrize("path", ["link", "link/shadow", "up/secret", "twice"])
def test_a_link_in_a_folder_that_a_namespace_allows_leads_nowhere_else(
    server: Server, tmp_path: Path, path: str
) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to("/etc")
    (allowed / "twice").symlink_to("link")
    (allowed / "up").symlink_to("..")
    (tmp_path / "secret").write_text("not yours")
    name = path.replace("/", "-")
    server.kubectl("create", "namespace", name)
    server.kubectl("annotate", "namespace", name, f"onejob.dev/allowed-host-paths={allowed}")
    container = {
        "name": "c",
        "image": "i",
        "command": ["true"],
        "volumeMounts": [{"name": "v", "mountPath": "/data"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": name},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "v", "hostPath": {"path": str(allowed / path)}}],
            "containers": [container],
        },
    }
    server.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    told = ""
    for _ in range(600):
        told = server.kubectl("get", "events", "-n", name, "-o", "jsonpath={.items[*].message}")
        if told:
            break
        time.sleep(0.1)
    assert "which is not allowed" in told
    phase = server.kubectl("get", "pod", "p", "-n", name, "-o", "jsonpath={.status.phase}")
    assert phase == "Pending"
