"""The server's certificate authority and serving certificate, kept in the data directory.

Keys are ECDSA P-256, generated within a millisecond. The authority is created once. The serving
certificate is replaced at start when it is about to expire, when the server gets another name, or
when it is unusable: a server that was killed between two writes or had a wrong clock recovers
without manual repair.
"""

import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from onejob.api.access.private_files import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY_LIFE: Final = timedelta(days=3650)
#: Renewed automatically only at start, so it must outlive the longest run of a server.
_SERVER_LIFE: Final = timedelta(days=1825)
_RENEW_BEFORE: Final = timedelta(days=30)
#: Certificates are backdated because clocks differ and are set back. The authority is valid from
#: 1970, so that it stays usable if the clock was ahead when it was created.
_BACKDATED: Final = timedelta(days=1)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)

log = logging.getLogger(__name__)


class BadAuthority(Exception):
    """The existing authority is unusable, and replacing it would cut off all clients.

    The message is one line with a remedy.
    """


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the authority, the serving certificate and their keys.

    Clients must trust `authority`.
    """

    authority: Path
    authority_key: Path
    certificate: Path
    key: Path

    @property
    def authority_data(self) -> bytes:
        return self.authority.read_bytes()

    def server_context(self, client_authority: Path | None = None) -> ssl.SSLContext:
        """Return a TLS context for the server.

        With `client_authority`, client certificates are accepted but not required.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without a password, OpenSSL would prompt on the terminal for an encrypted key.
        context.load_cert_chain(self.certificate, self.key, password="")
        if client_authority is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(client_authority)
        return context


def ensure_certificates(directory: Path, names: Iterable[str], now: datetime) -> Certificates:
    """Return the certificates in `directory`, creating or renewing them as needed.

    Raises BadAuthority.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = _paths(directory)
    wanted = tuple(dict.fromkeys(names))
    authority = _usable_authority(paths, now)
    if authority is None:
        authority = _make_authority(paths, now)
    problem = _problem(paths, authority, wanted, now)
    if problem:
        if paths.certificate.exists():
            log.warning("a new server certificate is made: the old one %s", problem)
        _make_server_certificate(paths, authority, wanted, now)
    return paths


def renew_server_certificate(directory: Path, now: datetime) -> None:
    """Replace the serving key and certificate, keeping the names.

    Raises BadAuthority, or OSError or ValueError if no certificate exists yet.
    """
    from cryptography import x509

    paths = _paths(directory)
    authority = load_authority(directory, now)
    old = _load(paths.certificate).extensions
    names = old.get_extension_for_class(x509.SubjectAlternativeName).value
    _make_server_certificate(paths, authority, [str(name.value) for name in names], now)


def load_authority(directory: Path, now: datetime) -> "Authority":
    """Return the existing authority. Raises BadAuthority."""
    authority = _usable_authority(_paths(directory), now)
    if authority is None:
        raise BadAuthority(f"no usable certificate authority in {directory}: start the server once")
    return authority


def server_names(listen_host: str) -> tuple[str, ...]:
    """Return all names and addresses under which clients on this machine may reach the server."""
    names = ["127.0.0.1", "::1", "localhost", socket.gethostname()]
    if listen_host not in ("", "0.0.0.0", "::"):
        names.append(listen_host)
    return tuple(dict.fromkeys(name for name in names if name))


def _paths(directory: Path) -> Certificates:
    """Return the paths of the certificates in a folder, whether they exist or not."""
    return Certificates(
        directory / "ca.crt",
        directory / "ca.key",
        directory / "server.crt",
        directory / "server.key",
    )


class Authority(NamedTuple):
    """Certificate authority with its key."""

    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"


def _usable_authority(paths: Certificates, now: datetime) -> Authority | None:
    """Return the authority, or None if it does not exist or is about to expire.

    Raises BadAuthority.
    """
    if not (paths.authority.exists() and paths.authority_key.exists()):
        # Only one of the two files: creation was interrupted, and no client has seen the authority.
        return None
    way_out = (
        f"restore {paths.authority.parent}, or remove it to have a new authority made (all clients "
        "then need the new kubeconfig)"
    )
    try:
        found = Authority(_load(paths.authority), _load_key(paths.authority_key))
    except (ValueError, TypeError) as error:
        raise BadAuthority(
            f"cannot read the certificate authority in {paths.authority.parent} ({error}); "
            f"{way_out}"
        ) from error
    if found.certificate.public_key() != found.key.public_key():
        raise BadAuthority(
            f"{paths.authority.name} and {paths.authority_key.name} in {paths.authority.parent} "
            f"do not belong together; {way_out}"
        )
    if found.certificate.not_valid_before_utc > now:
        raise BadAuthority(
            f"{paths.authority} is valid from {found.certificate.not_valid_before_utc:%F %T} UTC "
            f"only, and it is {now:%F %T} UTC; if that clock is right, {way_out}"
        )
    if _expires_soon(found.certificate, now):
        log.warning("a new authority is made: the old one expires; clients need its kubeconfig")
        return None
    return found


def _make_authority(paths: Certificates, now: datetime) -> Authority:
    """Create a certificate authority and write its files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = new_key()
    name = _name("onejob-ca")
    usage = _key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True)
    certificate = (
        _builder(name, name, key, _BEGINNING, now + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    # Remove the old certificate first: a crash in between leaves one file, never a mismatched pair.
    paths.authority.unlink(missing_ok=True)
    write_private(paths.authority_key, key_pem(key))
    write_private(paths.authority, _pem(certificate))
    return Authority(certificate, key)


def _make_server_certificate(
    paths: Certificates, authority: Authority, names: Sequence[str], now: datetime
) -> None:
    """Create a serving certificate for these names and write its files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = new_key()
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    subject, issuer = _name("onejob"), authority.certificate.subject
    certificate = (
        _builder(subject, issuer, key, now - _BACKDATED, now + _SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
    write_private(paths.key, key_pem(key))
    write_private(paths.certificate, _pem(certificate))


def _problem(paths: Certificates, authority: Authority, names: Sequence[str], now: datetime) -> str:
    """Return the reason why the serving certificate cannot be used; "" if it can."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        certificate, key = _load(paths.certificate), _load_key(paths.key)
        certificate.verify_directly_issued_by(authority.certificate)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, x509.ExtensionNotFound) as error:
        return f"cannot be read ({error})"
    except InvalidSignature:
        return "is of another authority"
    if certificate.public_key() != key.public_key():
        return "does not belong to its key"
    if certificate.not_valid_before_utc > now:
        return f"is valid from {certificate.not_valid_before_utc:%F %T} UTC only"
    if _expires_soon(certificate, now):
        return f"expires at {certificate.not_valid_after_utc:%F %T} UTC"
    if not {_general_name(name) for name in names} <= set(found):
        return "lacks a name of this server"
    return ""


def _expires_soon(certificate: "x509.Certificate", now: datetime) -> bool:
    """Return whether the certificate has to be renewed."""
    return certificate.not_valid_after_utc - now < _RENEW_BEFORE


def _load(path: Path) -> "x509.Certificate":
    """Return the certificate in a PEM file. Raises OSError, ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(path.read_bytes())


def _load_key(path: Path) -> "EllipticCurvePrivateKey":
    """Return the ECDSA key in a PEM file. Raises OSError, ValueError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{path} is not an ECDSA key")
    return key


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    start: datetime,
    end: datetime,
) -> "x509.CertificateBuilder":
    """Return a certificate builder with the fields common to all certificates."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start.astimezone(UTC))
        .not_valid_after(end.astimezone(UTC))
    )


def _name(common_name: str) -> "x509.Name":
    """Return a distinguished name of only a common name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> "x509.GeneralName":
    """Return an IP address or DNS name as a subject alternative name."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> "x509.KeyUsage":
    """Return the key usage extension."""
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


def new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    """Return a private key in PEM, unencrypted."""
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: "x509.Certificate") -> bytes:
    """Return the certificate in PEM."""
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)
