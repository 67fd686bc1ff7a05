"""Contents of CertificateSigningRequests, decoded with `cryptography`."""

import base64
import binascii
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from onejob.planning.certificates import RequestedNames

_PEM_TYPE: Final = b"-----BEGIN CERTIFICATE REQUEST-----"


class BadCertificateRequest(ValueError):
    """The request is malformed, or not signed with its own key."""


def read_request(text: str) -> x509.CertificateSigningRequest:
    """Decode `spec.request` and check its signature. Raises BadCertificateRequest."""
    try:
        pem = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadCertificateRequest(str(error)) from error
    if not pem.lstrip().startswith(_PEM_TYPE):
        raise BadCertificateRequest("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(pem)
        valid = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadCertificateRequest(str(error)) from error
    if not valid:
        raise BadCertificateRequest("the signature is invalid")
    return request


def names_in(request: x509.CertificateSigningRequest) -> RequestedNames:
    """Return the names that a request asks to certify. Raises BadCertificateRequest."""
    try:
        subject = request.subject
        common = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        found = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        names = alternative_names(request)
    except ValueError as error:
        raise BadCertificateRequest(str(error)) from error
    return RequestedNames(
        common[-1] if common else "",
        tuple(str(each.value) for each in found),
        tuple(names.get_values_for_type(x509.DNSName)),
        tuple(map(str, names.get_values_for_type(x509.IPAddress))),
        tuple(names.get_values_for_type(x509.RFC822Name)),
        tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
    )


def require_certificates(text: str) -> None:
    """Check a value of `status.certificate`. Raises ValueError."""
    found = x509.load_pem_x509_certificates(base64.b64decode(text, validate=True))
    if not found:
        raise ValueError("must contain at least one CERTIFICATE PEM block")


def alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    """Return the alternative names of a request. Raises ValueError if they are malformed."""
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
