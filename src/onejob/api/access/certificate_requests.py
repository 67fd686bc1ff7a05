"""Rights in CertificateSigningRequests: who requests, who approves, and who signs.

The rules are those of Kubernetes' admission plugins CertificateApproval, CertificateSigning and
CertificateSubjectRestriction.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from onejob.api.access.authorization import Attributes, Authorizer
from onejob.api.access.reviews import user_info
from onejob.api.strategy import Document
from onejob.planning.certificates import APPROVED, CLIENT_SIGNER, DENIED, MASTERS, conditions_of
from onejob.wire.errors import Forbidden
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

CERTIFICATE_REQUESTS: Final = "certificatesigningrequests.certificates.k8s.io"
_WHO: Final = ("username", "uid", "groups", "extra")


class CertificateRequests:
    """Guard of writes to CertificateSigningRequests.

    Guarantees: the requester is the user who creates a request. Nobody gets a client certificate
    for `system:masters`. Approval and signing require the verbs `approve` and `sign` on the signer.
    """

    def __init__(self, authorizer: Authorizer, now: Callable[[], datetime]) -> None:
        self._authorizer = authorizer
        self._now = now

    def __call__(
        self, user: User, kind: Kind, namespace: str, new: Document, old: Document | None
    ) -> None:
        """Check a write, and set the requester and missing times. Raises Forbidden."""
        if old is None:
            asked = {name: value for name, value in new["spec"].items() if name not in _WHO}
            new["spec"] = {**asked, **user_info(user)}
            _require_unprivileged_subject(new)
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        if any(conditions_of(new, name) != conditions_of(old, name) for name in (APPROVED, DENIED)):
            self._require(user, "approve", new)
        elif any(before.get(name) != after.get(name) for name in ("certificate", "conditions")):
            self._require(user, "sign", new)
        self._set_times(new, old)

    def _require(self, user: User, verb: str, document: Document) -> None:
        """Raise Forbidden unless the user may approve or sign for the request's signer."""
        signer = document["spec"]["signerName"]
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            wanted = Attributes(verb, "certificates.k8s.io", "v1", "signers", name=name)
            if self._authorizer.authorize(user, wanted).allowed:
                return
        done = {"approve": "approve requests with", "sign": "sign requests with"}[verb]
        raise _refused(document, f'user not permitted to {done} signerName "{signer}"')

    def _set_times(self, new: Document, old: Document) -> None:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        known: dict[tuple[Any, Any], str] = {
            (each.get("type"), each.get("status")): each["lastTransitionTime"]
            for each in (old.get("status") or {}).get("conditions") or ()
            if each.get("lastTransitionTime")
        }
        for each in (new.get("status") or {}).get("conditions") or ():
            each.setdefault("lastUpdateTime", now)
            key = (each.get("type"), each.get("status"))
            each.setdefault("lastTransitionTime", known.get(key, now))


def _require_unprivileged_subject(document: Document) -> None:
    """Raise Forbidden for a client certificate of the group that may do everything."""
    spec = document["spec"]
    if spec["signerName"] != CLIENT_SIGNER:
        return
    # Imported with the first request: few servers have any.
    from onejob.api.kinds.certificates.contents import BadCertificateRequest, names_in, read_request

    try:
        names = names_in(read_request(spec["request"]))
    except BadCertificateRequest as error:
        raise _refused(document, f"could not read the subject: {error}") from error
    if MASTERS in names.organizations:
        text = f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        raise _refused(document, text)


def _refused(document: Document, why: str) -> Forbidden:
    name = document["metadata"].get("name", "")
    details = {
        "name": name,
        "group": "certificates.k8s.io",
        "kind": "certificatesigningrequests",
    }
    return Forbidden(f'{CERTIFICATE_REQUESTS} "{name}" is forbidden: {why}', details=details)
