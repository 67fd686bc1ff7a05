"""`kubectl debug`: ephemeral containers in running Pods, as processes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.serving import Server, a_server, needs_kubectl

pytestmark = needs_kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  containers:
  - {{name: main, image: busybox, command: [sleep, "{seconds}"]}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("serve")) as server:
        yield server


def a_running_pod(server: Server, name: str, seconds: int = 600) -> None:
    server.kubectl("apply", "-f", "-", stdin=POD.format(name=name, seconds=seconds))
    server.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def status_of(server: Server, name: str) -> Any:
    return json.loads(server.kubectl("get", "pod", name, "-o", "json"))["status"]


def until_ended(server: Server, name: str) -> Any:
    path = "{.status.ephemeralContainerStatuses[0].state.terminated.exitCode}"
    server.kubectl("wait", f"--for=jsonpath={path}", f"pod/{name}", "--timeout=60s")
    return status_of(server, name)


def test_a_debug_container_runs_once_beside_the_others(server: Server) -> None:
    a_running_pod(server, "p")
    command = ("--image=busybox", "-c", "look", "--", "sh", "-c", "echo seen; exit 3")
    server.kubectl("debug", "p", *command)
    status = until_ended(server, "p")
    (look,) = status["ephemeralContainerStatuses"]
    assert look["state"]["terminated"]["exitCode"] == 3
    assert look["restartCount"] == 0
    assert server.kubectl("logs", "p", "-c", "look") == "seen\n"
    assert status["phase"] == "Running", "its end has no consequences for the Pod"
    assert status["containerStatuses"][0]["state"]["running"]


def test_a_debug_container_has_input_and_output(server: Server) -> None:
    a_running_pod(server, "q")
    command = ("debug", "-i", "q", "--image=busybox", "-c", "echo", "--", "sh", "-c")
    printed = server.kubectl(*command, "read line; echo got $line", stdin="hello\n")
    assert "got hello" in printed


def test_the_end_of_the_pod_ends_its_debug_container(server: Server) -> None:
    a_running_pod(server, "r", seconds=5)
    server.kubectl("debug", "r", "--image=busybox", "-c", "long", "--", "sleep", "600")
    server.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/r", "--timeout=90s")
    (long,) = status_of(server, "r")["ephemeralContainerStatuses"]
    assert long["state"]["terminated"]["exitCode"] in (137, 143)


def test_what_may_not_be_set_or_changed_is_refused(server: Server) -> None:
    a_running_pod(server, "s")
    server.kubectl("debug", "s", "--image=busybox", "-c", "a", "--", "true")
    patch = ("patch", "pod", "s", "--subresource=ephemeralcontainers", "-p")

    def refused(**fields: Any) -> str:
        container = {"name": "b", "image": "busybox", **fields}
        body = {"spec": {"ephemeralContainers": [container]}}
        return server.kubectl(*patch, json.dumps(body), fails=True)

    assert "may not be changed" in refused(name="a", command=["false"])
    assert "Duplicate value" in refused(name="main")
    assert "targetContainerName: Not found" in refused(targetContainerName="absent")
    ports = [{"containerPort": 80}]
    assert "cannot be set for an Ephemeral Container" in refused(ports=ports)
    mounts = [{"name": "absent", "mountPath": "/x"}]
    assert "volumeMounts[0].name: Not found" in refused(volumeMounts=mounts)
    other = json.dumps({"spec": {"activeDeadlineSeconds": 1}})
    server.kubectl(*patch, other)
    spec = json.loads(server.kubectl("get", "pod", "s", "-o", "json"))["spec"]
    assert "activeDeadlineSeconds" not in spec, "other changes are dropped"
    removed = json.dumps([{"op": "remove", "path": "/spec/ephemeralContainers"}])
    text = server.kubectl(*patch, removed, "--type=json", fails=True)
    assert "may not be removed" in text
