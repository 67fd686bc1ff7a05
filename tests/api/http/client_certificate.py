"""Client certificate signed by the server's own authority."""

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from onejob.api.access.certificates import Certificates


def make_client_certificate(
    certificates: Certificates,
    directory: Path,
    end: datetime = datetime(2199, 12, 31, tzinfo=UTC),
    *,
    group: str = "team-a",
) -> Path:
    """Write one PEM file with certificate and key, for alice of a group."""

    authority = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    signer = serialization.load_pem_private_key(certificates.authority_key.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    start = authority.not_valid_before_utc
    certificate = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
                    x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
                ]
            )
        )
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .sign(signer, hashes.SHA256())
    )
    path = directory / "client.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path
