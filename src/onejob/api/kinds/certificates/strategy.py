"""Strategy of CertificateSigningRequests, with the subresource `approval`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import keep_section
from onejob.api.kinds.printing import AGE, NAME, age, column, name_of
from onejob.api.kinds.stored import StoredStrategy
from onejob.api.strategy import Document
from onejob.planning.certificates import APPROVED, DENIED, FAILED, conditions_of, shown_condition
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from onejob.wire.names import qualified_name_errors

_USAGES: Final = [
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection",
    "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
    "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth",
    "signing", "timestamping",
]  # fmt: skip
_DECISIONS: Final = (APPROVED, DENIED, FAILED)
_STATUSES: Final = ["False", "True", "Unknown"]
_MIN_SECONDS: Final = 600
_SIGNER_NAME: Final = "spec.signerName"


class CertificateRequestStrategy(StoredStrategy):
    """Strategy of CertificateSigningRequests.

    The spec never changes. Conditions Approved and Denied are set through `approval`, certificate
    and other conditions through `status`; none of these can be taken back.
    """

    def prepare_create(self, doc: Document) -> None:
        super().prepare_create(doc)
        doc.pop("status", None)

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) or _spec_errors(doc["spec"])

    def prepare_approval(self, new: Document, old: Document) -> None:
        conditions = (new.get("status") or {}).get("conditions")
        keep_section(new, old, "spec")
        new["status"] = dict(old.get("status") or {})
        # Empty lists are not stored.
        new["status"].pop("conditions", None)
        if conditions:
            new["status"]["conditions"] = conditions

    def validate_approval(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_status_update(new, old) + _condition_errors(new, old)

    def prepare_status_update(self, new: Document, old: Document) -> None:
        super().prepare_status_update(new, old)
        conditions = (new.get("status") or {}).get("conditions") or []
        for kind in (APPROVED, DENIED):
            stored, given = conditions_of(old, kind), conditions_of(new, kind)
            if len(stored) == len(given) == 1:
                # As upstream: a client need not know the times of the decision.
                conditions[conditions.index(given[0])] = stored[0]

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = super().validate_status_update(new, old) + _condition_errors(new, old)
        path = "status.conditions"
        for kind in (APPROVED, DENIED):
            before, after = conditions_of(old, kind), conditions_of(new, kind)
            if len(after) > len(before):
                errors.append(forbidden(path, f'updates may not add a condition of type "{kind}"'))
            elif len(after) == len(before) and after != before:
                text = f'updates may not modify a condition of type "{kind}"'
                errors.append(forbidden(path, text))
        return errors + _certificate_errors(new, old)

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        return {_SIGNER_NAME: (doc.get("spec") or {}).get("signerName", "")}

    def field_label_error(self, label: str) -> str | None:
        if label in ("metadata.name", _SIGNER_NAME):
            return None
        return f"field label not supported: {label}"

    def columns(self) -> list[dict[str, Any]]:
        return _COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        spec = doc.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        return [
            name_of(doc),
            age(doc, now),
            spec.get("signerName") or "<none>",
            spec.get("username", ""),
            "<none>" if seconds is None else _in_words(seconds),
            shown_condition(doc),
        ]


_COLUMNS: Final = [
    NAME,
    AGE,
    column("SignerName", "Who is asked to sign."),
    column("Requestor", "The user who has created the request."),
    column("RequestedDuration", "Life of the certificate that is requested."),
    column("Condition", "Whether the request is approved, and the certificate issued."),
]


def _in_words(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _spec_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    # Imported with the first request: few servers have any.
    from onejob.api.kinds.certificates.contents import BadCertificateRequest, read_request

    errors: list[FieldError] = []
    try:
        read_request(spec["request"])
    except BadCertificateRequest as error:
        errors.append(invalid("spec.request", spec["request"], str(error)))
    seen = set()
    for index, usage in enumerate(spec["usages"]):
        if usage not in _USAGES:
            errors.append(not_supported(f"spec.usages[{index}]", usage, _USAGES))
        if usage in seen:
            errors.append(duplicate(f"spec.usages[{index}]", usage))
        seen.add(usage)
    errors += _signer_errors(spec["signerName"])
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_SECONDS:
        text = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", seconds, text))
    return errors


def _signer_errors(name: str) -> list[FieldError]:
    path = _SIGNER_NAME
    if name == "kubernetes.io/legacy-unknown":
        text = "the legacy signerName is not allowed via this API version"
        return [invalid(path, name, text)]
    if "/" not in name or "." not in name.partition("/")[0]:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, text)]
    return [invalid(path, name, text) for text in qualified_name_errors(name)]


def _condition_errors(new: Document, old: Document) -> list[FieldError]:
    path = "status.conditions"
    errors: list[FieldError] = []
    conditions = (new.get("status") or {}).get("conditions") or ()
    types = [each.get("type", "") for each in conditions]
    for index, each in enumerate(conditions):
        kind, status = types[index], each.get("status", "")
        place = f"{path}[{index}]"
        if not kind:
            errors.append(required(f"{place}.type"))
        allowed = ["True"] if kind in _DECISIONS else _STATUSES
        if not status:
            errors.append(required(f"{place}.status"))
        elif status not in allowed:
            errors.append(not_supported(f"{place}.status", status, allowed))
        if kind in types[:index]:
            errors.append(duplicate(f"{place}.type", kind))
    if APPROVED in types and DENIED in types:
        later = max((APPROVED, DENIED), key=types.index)
        text = "Approved and Denied conditions are mutually exclusive"
        errors.append(invalid(path, later, text))
    return errors + [
        forbidden(path, f'updates may not remove a condition of type "{kind}"')
        for kind in _DECISIONS
        if len(conditions_of(new, kind)) < len(conditions_of(old, kind))
    ]


def _certificate_errors(new: Document, old: Document) -> list[FieldError]:
    from onejob.api.kinds.certificates.contents import require_certificates

    path = "status.certificate"
    certificate = (new.get("status") or {}).get("certificate", "")
    before = (old.get("status") or {}).get("certificate", "")
    if certificate == before:
        return []
    if before:
        return [forbidden(path, "updates may not modify existing certificate content")]
    try:
        require_certificates(certificate)
    except ValueError as error:
        return [invalid(path, "<certificate data>", str(error))]
    return []
