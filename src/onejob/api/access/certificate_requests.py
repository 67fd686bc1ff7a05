"""Requester identity in CertificateSigningRequests.

onejob signs no certificates, but external signers rely on these fields.
"""

from typing import Final

from onejob.api.access.reviews import user_info
from onejob.api.strategy import Document
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

CERTIFICATE_REQUESTS: Final = "certificatesigningrequests.certificates.k8s.io"
_WHO: Final = ("username", "uid", "groups", "extra")


def note_requester(
    user: User, kind: Kind, namespace: str, new: Document, old: Document | None
) -> None:
    """Write the requesting user into a new CertificateSigningRequest.

    Replaces any identity in the body. The fields are immutable afterwards.
    """
    if old is None:
        asked = {name: value for name, value in new["spec"].items() if name not in _WHO}
        new["spec"] = {**asked, **user_info(user)}
