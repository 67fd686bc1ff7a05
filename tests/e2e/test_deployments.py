"""Deployments of real processes, as kubectl handles them."""

import json
import time
from pathlib import Path
from typing import Any

from tests.e2e.serving import Server, a_server, needs_kubectl

pytestmark = needs_kubectl

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: example.com/{name}:v1
        {command}
"""


def progressing(server: Server, name: str) -> dict[str, Any]:
    document = json.loads(server.kubectl("get", "deploy", name, "-o", "json"))
    conditions: list[dict[str, Any]] = document.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Progressing"), {})


def test_kubectl_follows_rolls_back_and_scales(tmp_path: Path) -> None:
    # The program of the image is not on this machine: the image map names one that is.
    with a_server(tmp_path, "--image-map", "example.com/web=sleep") as server:
        manifest = DEPLOYMENT.format(
            name="web",
            replicas=2,
            command="command: [/manager-of-the-image]\n        args: ['600']",
        )
        server.kubectl("apply", "-f", "-", stdin=manifest)
        follow = ("rollout", "status", "deploy/web", "--timeout=60s")
        assert "successfully rolled out" in server.kubectl(*follow)
        server.kubectl("set", "env", "deploy/web", "A=b")
        assert "successfully rolled out" in server.kubectl(*follow)
        assert "2" in server.kubectl("rollout", "history", "deploy/web")
        server.kubectl("rollout", "undo", "deploy/web")
        server.kubectl("scale", "deploy/web", "--replicas=1")
        assert "successfully rolled out" in server.kubectl(*follow)
        assert "1/1" in server.kubectl("get", "deploy", "web")
        (pod,) = server.kubectl("get", "pods", "-o", "name", "-l", "app=web").split()
        command = "jsonpath={.spec.containers[0].env}"
        assert server.kubectl("get", pod, "-o", command) == ""
        server.kubectl("delete", "deploy", "web", "--cascade=foreground", "--wait")
        assert server.kubectl("get", "rs,pods", "-o", "name") == ""


def test_image_without_stand_in_is_reported_and_not_restarted(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        server.kubectl(
            "apply", "-f", "-", stdin=DEPLOYMENT.format(name="none", replicas=1, command="")
        )
        give_up = time.monotonic() + 60
        while progressing(server, "none").get("status") != "False":
            assert time.monotonic() < give_up
            time.sleep(0.1)
        found = progressing(server, "none")
        assert found["reason"] == "ErrImageNeverPull"
        assert "example.com/none:v1" in found["message"]
        assert "image map" in found["message"]
        assert "ErrImageNeverPull" in server.kubectl("get", "pods")
        restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
        assert server.kubectl("get", "pods", "-o", restarts) == "0"
