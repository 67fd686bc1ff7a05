"""Documents of CertificateSigningRequests."""

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from onejob.api.access.certificates import new_key
from onejob.planning.certificates import CLIENT_SIGNER

Key = ec.EllipticCurvePrivateKey


def a_request(
    name: str = "r",
    common_name: str = "alice",
    *groups: str,
    key: Key | None = None,
    names: tuple[x509.GeneralName, ...] = (),
    **spec: Any,
) -> dict[str, Any]:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    subject += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(key or new_key(), hashes.SHA256()).public_bytes(Encoding.PEM)
    wanted = {"signerName": CLIENT_SIGNER, "usages": ["client auth"], **spec}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": base64.b64encode(pem).decode(), **wanted},
    }
