"""Server with secrets to steal, and raw connections to it."""

import base64
import hmac
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from onejob.api.access.service_accounts.jwt import sign
from onejob.api.access.service_accounts.signing_keys import SigningKeys
from onejob.api.access.users import USERS_FILE, add_user, revoke_user
from onejob.clock import SystemClock
from tests.e2e.serving import Server, a_server

#: In a Secret that none of the attackers may read.
TREASURE = "treasure-5f0c4a"
NOW = SystemClock().now()
_CODE = re.compile(rb"^HTTP/1\.1 (\d{3})", re.MULTILINE)


@dataclass
class Answered:
    """All bytes that a server sent on one connection."""

    raw: bytes

    @property
    def codes(self) -> list[int]:
        return [int(code) for code in _CODE.findall(self.raw)]


@dataclass
class Victim:
    """The attacked server, with credentials of several attackers."""

    server: Server
    #: Tokens by their defect, or by that of their user.
    tokens: dict[str, str] = field(default_factory=dict)
    #: Client certificates (PEM files with keys) likewise.
    certificates: dict[str, Path] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.server.data_dir / "server"

    @property
    def port(self) -> int:
        config = json.loads(self.server.kubeconfig.read_text())
        return int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])

    @property
    def secrets(self) -> list[bytes]:
        """Return texts that must never be in a response to an unauthorized client."""
        admin = (self.state / "admin.token").read_text().strip()
        return [TREASURE.encode(), admin.encode(), str(self.state).encode(), b"Traceback"]

    def send(
        self, raw: bytes, *, certificate: Path | None = None, reads_to_end: bool = True
    ) -> Answered:
        """Send bytes on a new connection; return the response until the server closes it."""
        context = ssl.create_default_context(cafile=str(self.state / "pki" / "ca.crt"))
        if certificate is not None:
            context.load_cert_chain(certificate)
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                    connection.sendall(raw)
                    while part := connection.recv(65536):
                        received += part
                        if not reads_to_end and b"\r\n\r\n" in received:
                            break
            except (ConnectionError, ssl.SSLError):
                # A closed connection is an acceptable response.
                return Answered(received)
        return Answered(received)

    def call(self, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        """Send a request as the owner, unless a token is given."""
        token = token or (self.state / "admin.token").read_text().strip()
        content = b"" if body is None else json.dumps(body).encode()
        answer = self.send(request(method, path, token=token, body=content))
        head, _, rest = answer.raw.partition(b"\r\n\r\n")
        assert answer.codes[0] < 300, answer.raw
        if b"chunked" in head.lower():
            rest = b"".join(rest.split(b"\r\n")[1::2])
        return json.loads(rest)


def request(
    method: str,
    path: str,
    *headers: str,
    token: str = "",
    body: bytes = b"",
    close: bool = True,
) -> bytes:
    """Return an HTTP/1.1 request with these header lines."""
    lines = [f"{method} {path} HTTP/1.1", "Host: victim"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body or method in ("POST", "PUT", "PATCH"):
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body


@contextmanager
def a_victim(folder: Path) -> Iterator[Victim]:
    """Run a server with full audit logging, as a further possible source of errors."""
    policy = folder / "policy.json"
    rules = [{"level": "RequestResponse"}]
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
    policy.write_text(json.dumps(document))
    audit = ("--audit-policy-file", str(policy), "--audit-log-path", str(folder / "audit.log"))
    with a_server(folder / "data", "--runtime", "simulated", *audit) as server:
        victim = Victim(server)
        _fill(victim)
        _make_users(victim)
        _make_account_tokens(victim)
        _make_certificates(victim, folder)
        yield victim


def _fill(victim: Victim) -> None:
    for name in ("team-a", "team-b"):
        victim.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    secret = {"metadata": {"name": "treasure"}, "stringData": {"word": TREASURE}}
    victim.call("POST", "/api/v1/namespaces/team-b/secrets", secret)
    # In another encoding, so that it is recognised in plain responses, too.
    note = {"metadata": {"name": "note"}, "data": {"word": TREASURE}}
    victim.call("POST", "/api/v1/namespaces/team-b/configmaps", note)


def _make_users(victim: Victim) -> None:
    users = victim.state / USERS_FILE
    victim.tokens["viewer"] = add_user(users, "viewer", (), NOW, None)
    victim.tokens["revoked"] = add_user(users, "revoked", ("system:masters",), NOW, None)
    revoke_user(users, "revoked")
    past = NOW - timedelta(hours=1)
    victim.tokens["expired"] = add_user(users, "late", ("system:masters",), past, past)
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "viewer"}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings"
    victim.call("POST", rbac, binding)


def _make_account_tokens(victim: Victim) -> None:
    """Create tokens of accounts with all permissions, so that accepting one is noticed."""
    core = "/api/v1/namespaces/team-a"
    for name in ("boss", "dismissed", "replaced", "unbound", "imprisoned"):
        victim.call("POST", f"{core}/serviceaccounts", {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": "accounts"},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts:team-a"}],
    }
    victim.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)

    def token(account: str, **spec: Any) -> str:
        made = victim.call("POST", f"{core}/serviceaccounts/{account}/token", {"spec": spec})
        text: str = made["status"]["token"]
        return text

    tokens = victim.tokens
    tokens["good account"] = token("boss")
    tokens["other audience"] = token("boss", audiences=["somebody-else"])
    tokens["deleted account"] = token("dismissed")
    tokens["account of the same name"] = token("replaced")
    for name in ("dismissed", "replaced"):
        victim.call("DELETE", f"{core}/serviceaccounts/{name}")
    victim.call("POST", f"{core}/serviceaccounts", {"metadata": {"name": "replaced"}})
    victim.call("POST", f"{core}/secrets", {"metadata": {"name": "bound"}})
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "bound"}
    tokens["deleted Secret"] = token("boss", boundObjectRef=reference)
    victim.call("DELETE", f"{core}/secrets/bound")
    pod = {
        "metadata": {"name": "bound"},
        "spec": {
            "serviceAccountName": "boss",
            "schedulingGates": [{"name": "never"}],
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    victim.call("POST", f"{core}/pods", pod)
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "bound"}
    tokens["deleted Pod"] = token("boss", boundObjectRef=reference)
    victim.call("DELETE", f"{core}/pods/bound?gracePeriodSeconds=0")
    tokens |= _forged(victim, tokens["good account"])


def _forged(victim: Victim, good: str) -> dict[str, str]:
    def encode(value: Any) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def decode(part: str) -> Any:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))

    header, claims, signature = good.split(".")
    said, kid = decode(claims), decode(header)["kid"]
    keys = SigningKeys(victim.state / "pki" / "service-account-keys.json")
    other = ec.generate_private_key(ec.SECP256R1())
    public = keys.verifying[kid].public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    long_ago, ahead = int(NOW.timestamp()) - 7200, int(NOW.timestamp()) + 7200
    stranger = sign(said, other).split(".")
    symmetric = f"{encode({'alg': 'HS256', 'kid': kid})}.{claims}"
    mac = encode(hmac.digest(public, symmetric.encode(), "sha256"))
    return {
        "changed claims": f"{header}.{encode({**said, 'sub': 'system:admin'})}.{signature}",
        "alg none": f"{encode({'alg': 'none', 'kid': kid})}.{claims}.",
        "alg None": f"{encode({'alg': 'None'})}.{claims}.{signature}",
        "alg ES384": f"{encode({'alg': 'ES384', 'kid': kid})}.{claims}.{signature}",
        "public key as secret": f"{symmetric}.{mac}",
        "other key": ".".join(stranger),
        "other key under our name": f"{header}.{stranger[1]}.{stranger[2]}",
        "key by URL": f"{encode({'alg': 'ES256', 'jku': 'https://evil/jwks'})}.{claims}.{signature}",
        "kid is a path": f"{encode({'alg': 'ES256', 'kid': '../../admin.token'})}.{claims}.x",
        "empty signature": f"{header}.{claims}.",
        "zero signature": f"{header}.{claims}.{encode(bytes(64))}",
        "no claims": f"{header}..{signature}",
        "claims are a list": f"{header}.{encode([1])}.{signature}",
        "not JSON": f"{encode(b'{')}.{encode(b'{')}.{signature}",
        "too many parts": f"{good}.{signature}",
        "expired token": sign({**said, "exp": long_ago, "nbf": long_ago - 60}, keys.signing),
        "not valid yet": sign({**said, "nbf": ahead, "exp": ahead + 60}, keys.signing),
        "other issuer": sign({**said, "iss": "https://evil"}, keys.signing),
        "no audience": sign({**said, "aud": []}, keys.signing),
        "no account": sign({**said, "kubernetes.io": {"namespace": "team-a"}}, keys.signing),
        "end is a text": sign({**said, "exp": "never"}, keys.signing),
    }


def _make_certificates(victim: Victim, folder: Path) -> None:
    pki = victim.state / "pki"
    authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    loaded = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    stranger = ec.generate_private_key(ec.SECP256R1())
    day = timedelta(days=1)
    valid = (NOW - day, NOW + day)

    def write(name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        path = victim.certificates[name] = folder / f"{name.replace(' ', '-')}.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    for name, signer, (start, end), usage in (
        ("good", loaded, valid, ExtendedKeyUsageOID.CLIENT_AUTH),
        ("of another authority", stranger, valid, ExtendedKeyUsageOID.CLIENT_AUTH),
        ("expired", loaded, (NOW - 2 * day, NOW - day), ExtendedKeyUsageOID.CLIENT_AUTH),
        ("not valid yet", loaded, (NOW + day, NOW + 2 * day), ExtendedKeyUsageOID.CLIENT_AUTH),
        ("for servers", loaded, valid, ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_subject("mallory", "system:masters"))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        write(name, certificate, key)
    alone = ec.generate_private_key(ec.SECP256R1())
    own = (
        x509.CertificateBuilder()
        .subject_name(_subject("mallory", "system:masters"))
        .issuer_name(_subject("mallory", "system:masters"))
        .public_key(alone.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .sign(alone, hashes.SHA256())
    )
    write("of nobody", own, alone)


def _subject(name: str, group: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
