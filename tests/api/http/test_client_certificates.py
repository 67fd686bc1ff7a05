"""Login with a certificate signed by the server's authority, by kubectl and other clients."""

import base64
import os
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from onejob.api.access.certificates import Certificates, ensure_certificates
from onejob.testing import OnejobServer
from tests.api.http.client_certificate import make_client_certificate
from tests.e2e.serving import needs_kubectl

PKI = ("ca.crt", "ca.key", "server.crt", "server.key")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnejobServer]:
    running = OnejobServer(tmp_path_factory.mktemp("onejob"), "simulated")
    make_admins(running, "team-a")
    yield running
    running.stop()


def pki(server: OnejobServer) -> Certificates:
    folder = server.kubeconfig.parent / "server" / "pki"
    return Certificates(*(folder / name for name in PKI))


def list_jobs(server: OnejobServer, certificate: Path | None) -> int:
    context = ssl.create_default_context(cafile=str(pki(server).authority))
    if certificate is not None:
        context.load_cert_chain(certificate)
    try:
        with urllib.request.urlopen(
            f"{server.url}/apis/batch/v1/jobs", context=context, timeout=30
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def make_admins(server: OnejobServer, group: str) -> None:
    """Bind a group to the admin role: a valid certificate alone grants no permissions."""
    config = msgspec.json.decode(server.kubeconfig.read_bytes())
    binding = {
        "metadata": {"name": group},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": group}],
    }
    request = urllib.request.Request(
        f"{server.url}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        data=msgspec.json.encode(binding),
        headers={
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        },
    )
    context = ssl.create_default_context(cafile=str(pki(server).authority))
    urllib.request.urlopen(request, context=context, timeout=30).close()


def test_it_opens_the_server(server: OnejobServer, tmp_path: Path) -> None:
    assert list_jobs(server, None) == 401
    assert list_jobs(server, make_client_certificate(pki(server), tmp_path)) == 200
    stranger = make_client_certificate(pki(server), tmp_path, group="strangers")
    assert list_jobs(server, stranger) == 403


def expired(server: OnejobServer, folder: Path) -> Path:
    return make_client_certificate(pki(server), folder, datetime(2026, 1, 2, tzinfo=UTC))


def of_another_authority(server: OnejobServer, folder: Path) -> Path:
    other = ensure_certificates(folder / "pki", ["localhost"], datetime(2026, 1, 1, tzinfo=UTC))
    return make_client_certificate(other, folder)


def the_servers_own(server: OnejobServer, folder: Path) -> Path:
    found = pki(server)
    pair = folder / "server.pem"
    pair.write_bytes(found.certificate.read_bytes() + found.key.read_bytes())
    return pair


@pytest.mark.parametrize("make", [expired, of_another_authority, the_servers_own])
def test_others_do_not(
    server: OnejobServer, tmp_path: Path, make: Callable[[OnejobServer, Path], Path]
) -> None:
    """The TLS handshake fails: no request gets through."""
    certificate = make(server, tmp_path)
    with pytest.raises(OSError):  # noqa: PT011 (which kind depends on the version of TLS)
        list_jobs(server, certificate)


@needs_kubectl
def test_kubectl_logs_in_with_one(server: OnejobServer, tmp_path: Path) -> None:
    pair = make_client_certificate(pki(server), tmp_path).read_bytes()
    data = base64.b64encode(pair).decode()
    config = msgspec.json.decode(server.kubeconfig.read_bytes())
    config["users"][0]["user"] = {"client-certificate-data": data, "client-key-data": data}
    (tmp_path / "kubeconfig").write_bytes(msgspec.json.encode(config))
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}

    def kubectl(*words: str) -> str:
        done = subprocess.run(
            ["kubectl", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    assert "alice" in kubectl("auth", "whoami")
    assert "team-a" in kubectl("auth", "whoami")
    assert "job.batch/x created" in kubectl("create", "job", "x", "--image=busybox", "--", "true")
    refused = kubectl("get", "--raw", "/apis/batch/v1/jobs", "--as=system:anonymous")
    assert 'User "system:anonymous" cannot list resource "jobs"' in refused
