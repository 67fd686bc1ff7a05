"""Who asks for a certificate. Nothing here signs one, but others may, and they go by this."""

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
    """A new request says who made it, whatever its body said. Later nothing of it changes."""
    if old is None:
        asked = {name: value for name, value in new["spec"].items() if name not in _WHO}
        new["spec"] = {**asked, **user_info(user)}
