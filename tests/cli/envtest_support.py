"""Python equivalent of envtest: certificates, flags and health checks of controller-runtime."""

import ipaddress
import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from onejob.clock import SystemClock

_DAY = timedelta(days=1)


class Pair(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self, password: bytes = b"") -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption(),
        )


def authority() -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "envtest-environment")])
    usage = x509.KeyUsage(True, False, True, False, False, True, False, False, False)
    made = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(made, key)


def serving(issuer: Pair, *names: x509.GeneralName) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        _builder(subject, issuer.certificate.subject, key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    return Pair(made, key)


def client(issuer: Pair, user: str, *groups: str) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    made = (
        _builder(subject, issuer.certificate.subject, key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    return Pair(made, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = SystemClock().now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def free_port() -> int:
    """Return a free port as envtest suggests one: bound, and released."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Environment:
    """One etcd and one kube-apiserver of an assets folder, started with envtest's flags."""

    def __init__(self, assets: Path, folder: Path, environment: dict[str, str]) -> None:
        self.cert_dir = folder / "certs"
        self.data_dir = folder / "etcd"
        for made in (self.cert_dir, self.data_dir):
            made.mkdir(mode=0o700, parents=True)
        self._assets = assets
        self._environment = environment
        self._serving_ca, self.client_ca = authority(), authority()
        self._processes: list[subprocess.Popen[str]] = []
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        self._launch(
            "etcd",
            f"--advertise-client-urls={self.etcd_url}",
            f"--data-dir={self.data_dir}",
            f"--listen-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            "--unsafe-no-fsync=true",
        )
        self._await(f"{self.etcd_url}/health")
        self._write_certificates()
        self._launch("kube-apiserver", *self.flags, *more)
        self._await(f"{self.url}/healthz")

    @property
    def flags(self) -> Sequence[str]:
        return (
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.cert_dir}",
            f"--client-ca-file={self.cert_dir}/client-cert-auth-ca.crt",
            "--disable-admission-plugins=ServiceAccount",
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={self.port}",
            f"--service-account-issuer={self.url}/",
            f"--service-account-key-file={self.cert_dir}/sa-signer.crt",
            f"--service-account-signing-key-file={self.cert_dir}/sa-signer.key",
            "--service-cluster-ip-range=10.0.0.0/24",
        )

    def _write_certificates(self) -> None:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        served = serving(self._serving_ca, x509.DNSName("localhost"), address)
        (self.cert_dir / "apiserver.crt").write_bytes(served.certificate_pem)
        (self.cert_dir / "apiserver.key").write_bytes(served.key_pem())
        signer = authority()
        (self.cert_dir / "sa-signer.crt").write_bytes(signer.certificate_pem)
        (self.cert_dir / "sa-signer.key").write_bytes(signer.key_pem())
        (self.cert_dir / "client-cert-auth-ca.crt").write_bytes(self.client_ca.certificate_pem)

    def _launch(self, name: str, *flags: str) -> None:
        # A process group of its own, which gets the signals, as in envtest.
        self._processes.append(
            subprocess.Popen(
                [self._assets / name, *flags],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self._environment,
                cwd=self.data_dir,
                start_new_session=True,
            )
        )

    def _await(self, url: str) -> None:
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        while True:
            process = self._processes[-1]
            assert process.poll() is None, process.communicate()
            try:
                with urllib.request.urlopen(url, context=anyone, timeout=60) as answer:
                    assert answer.status == 200
                    return
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{url}: {error.code} {error.read()!r}") from error
            except urllib.error.URLError:
                time.sleep(0.05)

    def api(self, user: str, *groups: str) -> "Api":
        """Return a client with a certificate that is made as envtest's AddUser does."""
        pair = client(self.client_ca, user, *groups)
        file = self.cert_dir / f"{user}.pem"
        file.write_bytes(pair.certificate_pem + pair.key_pem())
        context = ssl.create_default_context(cadata=self._serving_ca.certificate_pem.decode())
        context.load_cert_chain(file)
        return Api(self.url, context)

    def stop(self) -> list[tuple[int, str]]:
        """Send SIGTERM, to the API server first; return exit codes and stderr."""
        ends = []
        for process in reversed(self._processes):
            process.terminate()
            try:
                _, errors = process.communicate(timeout=30)
            finally:
                process.kill()
            ends.append((process.returncode, errors))
        self._processes.clear()
        return ends


class Api(NamedTuple):
    url: str
    context: ssl.SSLContext

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
