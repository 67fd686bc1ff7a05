"""Request authorization: RBAC on a server, full access for readers of a kept run."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from msgspec import Struct

from onejob.api.access.authentication import AUTHENTICATED_GROUP, Impersonation
from onejob.api.audit_notes import note, noted
from onejob.planning.rbac.policy import MASTERS, Granted, Policy
from onejob.planning.rbac.rules import AccessAttributes, PolicyRule, allows_name
from onejob.wire.errors import Forbidden
from onejob.wire.requests import User


class Attributes(Struct, frozen=True):
    """Authorization attributes of one request: a verb on a resource or on a non-resource path."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(Struct, frozen=True):
    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Authorization policy: decides whether a user may perform a request.

    A denial is a Decision, not an exception. Requirements: `rules` and `authorize` must implement
    the same policy.

    Concurrency: called on the event loop's thread and, for large writes, in the worker thread.
    """

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        """Return whether the user may perform the operation, and why."""

    def rules(self, user: User, namespace: str) -> Sequence[PolicyRule]:
        """Return all rules that apply to the user in a namespace, for SelfSubjectRulesReview and
        the privilege-escalation check."""


EVERYTHING: Sequence[PolicyRule] = (
    PolicyRule(("*",), ("*",), ("*",)),
    PolicyRule(("*",), non_resource_urls=("*",)),
)


class AllowAuthenticated:
    """Authorizer that grants everything to every authenticated user."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        return Decision(bool(self.rules(user, "")))

    def rules(self, user: User, namespace: str) -> Sequence[PolicyRule]:
        known = AUTHENTICATED_GROUP in user.groups or MASTERS in user.groups
        return EVERYTHING if known else ()


_ALLOWED: Final = Decision(True)
_NOT_ALLOWED: Final = Decision(False)
#: Limits of the decision cache in entries and characters per key: a client that sends ever new or
#: very long requests pays for an evaluation each time.
_REMEMBERED: Final = 4096
_MAX_KEY_LENGTH: Final = 512


class RbacAuthorizer:
    """RBAC authorizer: evaluates Roles and RoleBindings.

    Members of `system:masters` may do everything, so that a bad policy cannot lock out all users.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        #: Cache of rules by request attributes. Object names are not part of the key; they are
        #: compared on every request.
        self._concerning: dict[tuple[object, ...], tuple[Granted, ...]] = {}
        policy.listeners.append(self._clear_cache)

    def _clear_cache(self) -> None:
        # Replace rather than clear: the worker thread, which evaluates large roles, may be about to
        # add to the old dict.
        self._concerning = {}

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return _ALLOWED
        for granted in self._matching_grants(user, attributes):
            if allows_name(granted.rule, attributes.name):
                return Decision(True, granted.reason)
        return _NOT_ALLOWED

    def _matching_grants(self, user: User, wanted: Attributes) -> tuple[Granted, ...]:
        """Return the grants that may allow the request, cached by user and resource."""
        place = (
            user.name,
            user.groups,
            wanted.namespace,
            wanted.verb,
            wanted.group,
            wanted.resource,
            wanted.subresource,
            wanted.path,
        )
        concerning = self._concerning
        found = concerning.get(place)
        if found is None:
            question = AccessAttributes(
                wanted.verb, wanted.group, wanted.resource, wanted.subresource, path=wanted.path
            )
            found = self._policy.concerning(user.name, user.groups, wanted.namespace, question)
            if _is_short(user, wanted):
                if len(concerning) >= _REMEMBERED:
                    concerning.clear()
                concerning[place] = found
        return found

    def rules(self, user: User, namespace: str) -> Sequence[PolicyRule]:
        if MASTERS in user.groups:
            return EVERYTHING
        granted = self._policy.granted(user.name, user.groups, namespace)
        return tuple(item.rule for item in granted)


def _is_short(user: User, wanted: Attributes) -> bool:
    texts = (wanted.namespace, wanted.verb, wanted.group, wanted.resource, wanted.subresource)
    length = sum(map(len, texts)) + len(wanted.path) + len(user.name)
    return length + sum(map(len, user.groups)) <= _MAX_KEY_LENGTH


def needed_to_impersonate(other: Impersonation) -> Iterator[Attributes]:
    """Yield the attributes that an impersonation must be authorized for.

    One for the user, one per group, and one for the uid: each name is a separate right.
    """
    match other.user.split(":"):
        case ["system", "serviceaccount", namespace, name] if namespace and name:
            yield Attributes(
                "impersonate", "", "v1", "serviceaccounts", namespace=namespace, name=name
            )
        case _:
            yield Attributes("impersonate", "", "v1", "users", name=other.user)
    for group in other.groups:
        yield Attributes("impersonate", "", "v1", "groups", name=group)
    if other.uid:
        yield Attributes("impersonate", "authentication.k8s.io", "v1", "uids", name=other.uid)


def require(authorizer: Authorizer, user: User, attributes: Attributes) -> None:
    """Raise Forbidden unless the user is authorized; record the decision for the audit log."""
    decision = authorizer.authorize(user, attributes)
    if noted():
        note("authorization.k8s.io/decision", "allow" if decision.allowed else "forbid")
        note("authorization.k8s.io/reason", decision.reason)
    if not decision.allowed:
        raise _forbidden(user, attributes, decision.reason)


def _forbidden(user: User, wanted: Attributes, reason: str) -> Forbidden:
    """Return the error of a request that is not permitted, in upstream's words."""
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
