"""CertificateSigningRequests: signers, usages and conditions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
#: Signers whose certificates this server issues.
SIGNERS: Final = (CLIENT_SIGNER, SERVING_SIGNER)

#: Group whose members no policy restricts; certificates for it are refused.
MASTERS: Final = "system:masters"
_NODES: Final = "system:nodes"
_NODE_PREFIX: Final = "system:node:"

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"

#: Longest life of a certificate, in seconds; the same if no duration is requested.
MAX_SECONDS: Final = 365 * 86400
_MIN_SECONDS: Final = 600

_CLIENT_OPTIONAL: Final = ("digital signature", "key encipherment")
_SERVING: Final = (
    {"digital signature", "key encipherment", "server auth"},
    {"digital signature", "server auth"},
)


class RequestedNames(Struct, frozen=True):
    """What a request asks to certify."""

    common_name: str = ""
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def signer_refusal(signer: str, names: RequestedNames, usages: Sequence[str]) -> str:
    """Return why a signer does not sign an approved request, in upstream's words; "" if it does."""
    if signer == CLIENT_SIGNER:
        return _client_refusal(usages)
    if names.organizations != (_NODES,):
        return "subject organization is not system:nodes"
    if not names.dns_names and not names.addresses:
        return "DNS or IP subjectAltName is required"
    if names.emails:
        return "Email subjectAltNames are not allowed"
    if names.uris:
        return "URI subjectAltNames are not allowed"
    if set(usages) not in _SERVING:
        return f"usages did not match [{' '.join(sorted(_SERVING[0]))}]"
    if not names.common_name.startswith(_NODE_PREFIX):
        return "subject common name does not begin with system:node:"
    return ""


def _client_refusal(usages: Sequence[str]) -> str:
    for usage in usages:
        if usage != "client auth" and usage not in _CLIENT_OPTIONAL:
            return f"invalid usage for client certificate: {usage}"
    if "client auth" not in usages:
        return "missing required usage for client certificate: client auth"
    return ""


def life_seconds(requested: int | None) -> int:
    """Return the life of a certificate in seconds."""
    if requested is None:
        return MAX_SECONDS
    return max(min(requested, MAX_SECONDS), _MIN_SECONDS)


def conditions_of(document: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the conditions of a type."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return [each for each in conditions if each.get("type") == kind]


def is_to_be_signed(document: Mapping[str, Any]) -> bool:
    """Return whether a request is approved and has neither a certificate nor a final error."""
    return (
        document["spec"].get("signerName") in SIGNERS
        and bool(conditions_of(document, APPROVED))
        and not conditions_of(document, DENIED)
        and not conditions_of(document, FAILED)
        and not (document.get("status") or {}).get("certificate")
    )


def shown_condition(document: Mapping[str, Any]) -> str:
    """Return the state of a request as tables show it."""
    if conditions_of(document, DENIED):
        text = "Denied"
    elif conditions_of(document, APPROVED):
        text = "Approved"
    else:
        text = "Pending"
    if conditions_of(document, FAILED):
        text += ",Failed"
    if (document.get("status") or {}).get("certificate"):
        text += ",Issued"
    return text
