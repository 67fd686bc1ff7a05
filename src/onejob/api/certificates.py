"""The server's own certificate authority and certificate, kept in the data directory.

Keys are ECDSA P-256: made in a millisecond. The authority is made once; the certificate is
made again, at start, when it is about to expire or when the server gets another name.
"""

import ipaddress
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onejob.api.private_files import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY_LIFE: Final = timedelta(days=3650)
#: Renewed at start only, so it must outlive the longest run of a server.
_SERVER_LIFE: Final = timedelta(days=1825)
_RENEW_BEFORE: Final = timedelta(days=30)
#: Clocks differ: certificates are valid from a little before they are made.
_BACKDATED: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where everything is. `authority` is what clients need to trust."""

    authority: Path
    authority_key: Path
    certificate: Path
    key: Path

    @property
    def authority_data(self) -> bytes:
        return self.authority.read_bytes()

    def server_context(self, client_authority: Path | None = None) -> ssl.SSLContext:
        """`client_authority` makes client certificates welcome; they are never required."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        if client_authority is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(client_authority)
        return context


def ensure_certificates(directory: Path, names: Iterable[str], now: datetime) -> Certificates:
    """The certificates in `directory`, made or renewed where needed."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = Certificates(
        directory / "ca.crt",
        directory / "ca.key",
        directory / "server.crt",
        directory / "server.key",
    )
    wanted = tuple(dict.fromkeys(names))
    authority_is_new = not (paths.authority.exists() and paths.authority_key.exists())
    if authority_is_new or _expires_soon(paths.authority, now):
        _make_authority(paths, now)
        authority_is_new = True
    if authority_is_new or not _still_good(paths, wanted, now):
        _make_server_certificate(paths, wanted, now)
    return paths


def server_names(listen_host: str) -> tuple[str, ...]:
    """All names and addresses under which clients on this machine may reach the server."""
    names = ["127.0.0.1", "::1", "localhost", socket.gethostname()]
    if listen_host not in ("", "0.0.0.0", "::"):
        names.append(listen_host)
    return tuple(dict.fromkeys(name for name in names if name))


def _make_authority(paths: Certificates, now: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _new_key()
    name = _name("onejob-ca")
    usage = _key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True)
    certificate = (
        _builder(name, name, key, now, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(paths.authority_key, _key_pem(key))
    write_private(paths.authority, _pem(certificate))


def _make_server_certificate(paths: Certificates, names: Sequence[str], now: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority = _load(paths.authority)
    authority_key = serialization.load_pem_private_key(paths.authority_key.read_bytes(), None)
    assert isinstance(authority_key, EllipticCurvePrivateKey)
    key = _new_key()
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_name("onejob"), authority.subject, key, now, _SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    write_private(paths.key, _key_pem(key))
    write_private(paths.certificate, _pem(certificate))


def _still_good(paths: Certificates, names: Sequence[str], now: datetime) -> bool:
    from cryptography import x509

    if not (paths.certificate.exists() and paths.key.exists()):
        return False
    if _expires_soon(paths.certificate, now):
        return False
    certificate = _load(paths.certificate)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {_general_name(name) for name in names} <= set(found)


def _expires_soon(path: Path, now: datetime) -> bool:
    return _load(path).not_valid_after_utc - now < _RENEW_BEFORE


def _load(path: Path) -> "x509.Certificate":
    from cryptography import x509

    return x509.load_pem_x509_certificate(path.read_bytes())


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    now: datetime,
    life: timedelta,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before((now - _BACKDATED).astimezone(UTC))
        .not_valid_after((now + life).astimezone(UTC))
    )


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)
