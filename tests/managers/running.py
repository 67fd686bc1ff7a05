"""Managers as processes with a kubeconfig, and waits for their actions.

They run as outside of a cluster: without leader election and metrics. Their webhooks are called at
the address in an annotation of their Service.
"""

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from onejob.api.access.certificates import ensure_certificates
from onejob.clock import SystemClock
from tests.e2e.serving import Server
from tests.managers.building import JOBSET, KUEUE, Manager
from tests.managers.queues import flavor

_PATIENCE_SECONDS = 90.0


_A_JOBSET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"replicatedJobs": []},
}


@dataclass(frozen=True, slots=True)
class _Webhooks:
    """Names of the objects of a manager's webhooks."""

    namespace: str
    service: str
    #: The Secret that the manager fills with its certificate, if it makes one.
    secret: str = ""


_JOBSET_WEBHOOKS = _Webhooks("jobset-system", "jobset-webhook-service")
_KUEUE_WEBHOOKS = _Webhooks("kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert")


@contextmanager
def jobset(server: Server, folder: Path) -> Iterator[Path]:
    """Apply JobSet's manifests and run its manager; yield the log."""
    _install(JOBSET, server)
    certificates = folder / "certificates"
    name = f"{_JOBSET_WEBHOOKS.service}.{_JOBSET_WEBHOOKS.namespace}.svc"
    made = ensure_certificates(certificates, (name,), SystemClock().now())
    made.certificate.rename(certificates / "tls.crt")
    made.key.rename(certificates / "tls.key")
    configuration: dict[str, Any] = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        # Its own certificates would have to be in a folder below `/tmp` with a fixed name.
        "internalCertManagement": {"enable": False},
        **_outside_of_a_cluster(certificates),
    }
    _call(server, _JOBSET_WEBHOOKS, configuration)
    _trust(server, made.authority.read_bytes())
    with _running(JOBSET, server, folder, configuration) as log:
        until("the webhooks answer", lambda: _is_made(server, _A_JOBSET), log)
        yield log


@contextmanager
def kueue(server: Server, folder: Path, *, called: bool = True, **settings: Any) -> Iterator[Path]:
    """Apply Kueue's manifests and run its manager for batch Jobs; yield the log.

    `called`: whether the server reaches the manager's webhooks.
    """
    _install(KUEUE, server)
    certificates = folder / "certificates"
    certificates.mkdir(parents=True)
    configuration: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": _KUEUE_WEBHOOKS.namespace,
        "integrations": {"frameworks": ["batch/job"]},
        # Its own API server would need aggregation.
        "featureGates": {"VisibilityOnDemand": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": _KUEUE_WEBHOOKS.service,
            "webhookSecretName": _KUEUE_WEBHOOKS.secret,
        },
        **_outside_of_a_cluster(certificates),
        **settings,
    }
    if called:
        _call(server, _KUEUE_WEBHOOKS, configuration)
    with _running(KUEUE, server, folder, configuration) as log:
        _mount_secret(server, _KUEUE_WEBHOOKS, certificates)
        if called:
            until("the webhooks answer", lambda: _is_made(server, flavor()), log)
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
        pytest.skip(f"{manager.name} is not built: `make e2e-controllers` does that")
    server.kubectl("apply", "--server-side", "-f", str(manager.release))


def _call(server: Server, webhooks: _Webhooks, configuration: dict[str, Any]) -> None:
    """Have the server call a manager's webhooks."""
    address = f"onejob.dev/webhook-address=127.0.0.1:{configuration['webhook']['port']}"
    server.kubectl("annotate", "service", webhooks.service, "-n", webhooks.namespace, address)


def _trust(server: Server, authority: bytes) -> None:
    """Enter the authority of JobSet's webhooks in their configurations."""
    for kind in ("mutating", "validating"):
        name = f"jobset-{kind}-webhook-configuration"
        found = get(server, f"{kind}webhookconfiguration", name)
        for webhook in found["webhooks"]:
            webhook["clientConfig"]["caBundle"] = base64.b64encode(authority).decode()
        server.kubectl("replace", "-f", "-", stdin=json.dumps(found))


def _is_made(server: Server, document: dict[str, Any]) -> bool:
    """Return whether an object could be created: its webhooks answer."""
    done = subprocess.run(
        ["kubectl", "create", "--dry-run=server", "-f", "-"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        env=server.environ(),
        check=False,
    )
    return done.returncode == 0


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


def _mount_secret(server: Server, webhooks: _Webhooks, folder: Path) -> None:
    """Write the files of the manager's own Secret, for which it waits, as a kubelet does."""

    def data() -> dict[str, str]:
        found: dict[str, str] = (
            json.loads(
                server.kubectl(
                    *("get", "secret", webhooks.secret, "-n", webhooks.namespace, "-o", "json")
                )
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
