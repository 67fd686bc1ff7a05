"""Who may do what. For now everybody who is known may do everything; RBAC comes behind the same
protocol."""

from dataclasses import dataclass
from typing import Protocol

from onejob.api.access.authentication import AUTHENTICATED_GROUP
from onejob.wire.errors import Forbidden
from onejob.wire.requests import User


@dataclass(frozen=True, slots=True)
class Attributes:
    """One thing that somebody wants to do: to a resource, or to a path that is none."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    def authorize(self, user: User, attributes: Attributes) -> Decision: ...


class AllowAuthenticated:
    """Known users are operators."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        if AUTHENTICATED_GROUP in user.groups or "system:masters" in user.groups:
            return Decision(True)
        return Decision(False)


def require(authorizer: Authorizer, user: User, attributes: Attributes) -> None:
    decision = authorizer.authorize(user, attributes)
    if not decision.allowed:
        raise _forbidden(user, attributes, decision.reason)


def _forbidden(user: User, wanted: Attributes, reason: str) -> Forbidden:
    if wanted.path:
        text = f'User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
        return Forbidden(f"forbidden: {text}{': ' + reason if reason else ''}")
    plural = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    qualified = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    text = (
        f'User "{user.name}" cannot {wanted.verb} resource "{plural}" in API group "{wanted.group}"'
    )
    text += (
        f' in the namespace "{wanted.namespace}"' if wanted.namespace else " at the cluster scope"
    )
    subject = (
        f'{qualified} "{wanted.name}" is forbidden' if wanted.name else f"{qualified} is forbidden"
    )
    details = {"name": wanted.name} if wanted.name else {}
    if wanted.group:
        details["group"] = wanted.group
    details["kind"] = wanted.resource
    return Forbidden(f"{subject}: {text}{': ' + reason if reason else ''}", details=details)
