"""Certificates that the server's authority issues for CertificateSigningRequests."""

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from onejob.api.access.certificates import load_authority
from onejob.api.kinds.certificates.contents import (
    BadCertificateRequest,
    alternative_names,
    read_request,
)

#: As upstream: clocks of clients differ.
_BACKDATED: Final = timedelta(minutes=5)

_EXTENDED: Final = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
}


class CertificateSigner:
    """Signer with the key of the server's certificate authority, read for each certificate."""

    def __init__(self, pki: Path) -> None:
        self._pki = pki

    def sign(self, request: str, usages: Sequence[str], seconds: int, now: datetime) -> str:
        """Return a certificate for a request, in PEM and base64.

        Raises BadCertificateRequest, or BadAuthority without a usable authority.
        """
        wanted = read_request(request)
        authority = load_authority(self._pki, now)
        end = min(now + timedelta(seconds=seconds), authority.certificate.not_valid_after_utc)
        try:
            builder = (
                x509.CertificateBuilder()
                .subject_name(wanted.subject)
                .issuer_name(authority.certificate.subject)
                .public_key(wanted.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - _BACKDATED)
                .not_valid_after(end)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
                    critical=False,
                )
            )
            if key_usage := _key_usage(usages):
                builder = builder.add_extension(key_usage, critical=True)
            extended = [_EXTENDED[usage] for usage in usages if usage in _EXTENDED]
            if extended:
                builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
            names = alternative_names(wanted)
            if list(names):
                builder = builder.add_extension(names, critical=False)
            certificate = builder.sign(authority.key, hashes.SHA256())
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadCertificateRequest(str(error)) from error
        return base64.b64encode(certificate.public_bytes(Encoding.PEM)).decode()


def _key_usage(usages: Sequence[str]) -> x509.KeyUsage | None:
    """Return the usages of the key; None for any, because an empty extension is invalid.

    Signing of other certificates is never granted, whatever is requested.
    """
    if not {"digital signature", "signing", "key encipherment"} & set(usages):
        return None
    return x509.KeyUsage(
        digital_signature="digital signature" in usages or "signing" in usages,
        content_commitment=False,
        key_encipherment="key encipherment" in usages,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
