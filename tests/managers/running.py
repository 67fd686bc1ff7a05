"""Kueue's manager outside of a cluster, for a real one, and waits for the actions of managers.

It runs without leader election and metrics. Its webhooks listen but are never called.
"""

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.serving import Server
from tests.managers.building import KUEUE, Manager

_PATIENCE_SECONDS = 90.0
_KUEUE_NAMESPACE = "kueue-system"
_KUEUE_SECRET = "kueue-webhook-server-cert"


@contextmanager
def kueue(server: Server, folder: Path, **settings: Any) -> Iterator[Path]:
    """Apply Kueue's manifests and run its manager for batch Jobs; yield the log."""
    _install(KUEUE, server)
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": _KUEUE_NAMESPACE,
        "integrations": {"frameworks": ["batch/job"]},
        # Its own API server would need aggregation.
        "featureGates": {"VisibilityOnDemand": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": "kueue-webhook-service",
            "webhookSecretName": _KUEUE_SECRET,
        },
        **_outside_of_a_cluster(certificates),
        **settings,
    }
    with _running(KUEUE, server, folder, configuration) as log:
        _mount_secret(server, certificates)
        yield log


def until(what: str, holds: Callable[[], object], log: Path | None = None) -> None:
    """Wait until something holds; fail with the end of the log if it does not."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > give_up:
            said = "" if log is None else "\n".join(log.read_text().splitlines()[-40:])
            raise AssertionError(f"{what}: not within {_PATIENCE_SECONDS:.0f} s\n{said}")
        time.sleep(0.2)


def get(server: Server, resource: str, name: str = "") -> Any:
    """Return an object or {}; without a name, the list of all."""
    words = ["get", resource, *([name] if name else []), "-o", "json", "--ignore-not-found"]
    return json.loads(server.kubectl(*words) or "{}")


def condition(document: Any, name: str) -> str:
    """Return the status of a condition; "" if there is none."""
    for item in document.get("status", {}).get("conditions", []):
        if item["type"] == name:
            return str(item["status"])
    return ""


def apply(server: Server, *documents: dict[str, Any]) -> None:
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))


def _install(manager: Manager, server: Server) -> None:
    if not manager.is_built:
        pytest.skip(f"{manager.name} is not built: `make managers` does that")
    server.kubectl("apply", "--server-side", "-f", str(manager.release))


def _outside_of_a_cluster(certificates: Path) -> dict[str, Any]:
    return {
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": _free_port(), "certDir": str(certificates)},
    }


@contextmanager
def _running(
    manager: Manager, server: Server, folder: Path, configuration: dict[str, Any]
) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "config.yaml", folder / "manager.log"
    file.write_text(yaml.safe_dump(configuration))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [manager.program, "--config", file],
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
        assert process.poll() is None, f"{manager.name} ended:\n{log.read_text()[-4000:]}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _mount_secret(server: Server, folder: Path) -> None:
    """Write the files of the manager's own Secret, for which it waits, as a kubelet does."""

    def data() -> dict[str, str]:
        found: dict[str, str] = (
            json.loads(
                server.kubectl("get", "secret", _KUEUE_SECRET, "-n", _KUEUE_NAMESPACE, "-o", "json")
            ).get("data")
            or {}
        )
        return found

    until("the manager has made its certificates", lambda: "tls.crt" in data())
    for name, content in data().items():
        (folder / name).write_bytes(base64.b64decode(content))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
