"""Authorizer of admission expressions."""

from onejob.api.access.authorization import Attributes, Authorizer
from onejob.api.admission.dynamic.activation import Authorize
from onejob.cel.library.authorizer import AccessCheck
from onejob.wire.requests import User


def allow_all(user: User, check: AccessCheck) -> tuple[bool, str]:
    """Allow every access, as a server without RBAC does."""
    return True, ""


def authorize_with(authorizer: Authorizer) -> Authorize:
    def authorize(user: User, check: AccessCheck) -> tuple[bool, str]:
        attributes = Attributes(
            check.verb,
            check.group,
            "" if check.path else "*",
            check.resource,
            check.subresource,
            check.namespace,
            check.name,
            check.path,
        )
        decision = authorizer.authorize(user, attributes)
        return decision.allowed, decision.reason

    return authorize
