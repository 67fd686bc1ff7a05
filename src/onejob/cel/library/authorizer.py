"""Authorization checks: the methods of the variable `authorizer`."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.values import Opaque

LIBRARY = Library()

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LONGEST_LABEL = 63
_LONGEST_SUBDOMAIN = 253


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """One question to the authorizer: a verb on a resource, or on a path."""

    #: Namespace and name of the service account to check; None for the user of the request.
    service_account: tuple[str, str] | None = None
    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


#: Returns whether access is allowed, and the reason.
Decide: TypeAlias = Callable[[AccessCheck], tuple[bool, str]]


class _Question(Opaque):
    __slots__ = ("check", "decide")

    def __init__(self, decide: Decide, check: AccessCheck) -> None:
        self.decide = decide
        self.check = check

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, _Question) and self.check == other.check


class Authorizer(_Question):
    """Value of `authorizer`."""

    __slots__ = ()
    type_name = "kubernetes.authorization.Authorizer"


class PathCheck(_Question):
    __slots__ = ()
    type_name = "kubernetes.authorization.PathCheck"


class GroupCheck(_Question):
    __slots__ = ()
    type_name = "kubernetes.authorization.GroupCheck"


class ResourceCheck(_Question):
    """Value of `authorizer.requestResource`, too."""

    __slots__ = ()
    type_name = "kubernetes.authorization.ResourceCheck"


class Decision(Opaque):
    __slots__ = ("allowed", "reason")
    type_name = "kubernetes.authorization.Decision"

    def __init__(self, allowed: bool, reason: str) -> None:
        self.allowed = allowed
        self.reason = reason

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, Decision) and (self.allowed, self.reason) == (
            other.allowed,
            other.reason,
        )


@LIBRARY.add("Authorizer..path(string) -> PathCheck")
def path(authorizer: Authorizer, text: str) -> PathCheck:
    if not text.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(authorizer.decide, replace(authorizer.check, path=text))


@LIBRARY.add("Authorizer..group(string) -> GroupCheck")
def group(authorizer: Authorizer, name: str) -> GroupCheck:
    return GroupCheck(authorizer.decide, replace(authorizer.check, group=name))


@LIBRARY.add("Authorizer..serviceAccount(string, string) -> Authorizer")
def service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if len(name) > _LONGEST_SUBDOMAIN or not _SUBDOMAIN.match(name):
        raise EvaluationError("Invalid service account name")
    if len(namespace) > _LONGEST_LABEL or not _LABEL.match(namespace):
        raise EvaluationError("Invalid service account namespace")
    check = replace(authorizer.check, service_account=(namespace, name))
    return Authorizer(authorizer.decide, check)


@LIBRARY.add("GroupCheck..resource(string) -> ResourceCheck")
def resource(target: GroupCheck, name: str) -> ResourceCheck:
    if not name.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(target.decide, replace(target.check, resource=name))


@LIBRARY.add("ResourceCheck..subresource(string) -> ResourceCheck")
def subresource(target: ResourceCheck, text: str) -> ResourceCheck:
    return ResourceCheck(target.decide, replace(target.check, subresource=text))


@LIBRARY.add("ResourceCheck..namespace(string) -> ResourceCheck")
def namespace(target: ResourceCheck, text: str) -> ResourceCheck:
    return ResourceCheck(target.decide, replace(target.check, namespace=text))


@LIBRARY.add("ResourceCheck..name(string) -> ResourceCheck")
def name(target: ResourceCheck, text: str) -> ResourceCheck:
    return ResourceCheck(target.decide, replace(target.check, name=text))


@LIBRARY.add(
    "ResourceCheck..fieldSelector(string) -> ResourceCheck",
    "ResourceCheck..labelSelector(string) -> ResourceCheck",
    cost=Cost.SECOND,
)
def selector(target: ResourceCheck, text: str) -> ResourceCheck:
    # RBAC, upstream's as well as ours, does not look at selectors.
    return target


@LIBRARY.add(
    "PathCheck..check(string) -> Decision",
    "ResourceCheck..check(string) -> Decision",
    cost=Cost.AUTHORIZE,
)
def check(target: PathCheck | ResourceCheck, verb: str) -> Decision:
    return Decision(*target.decide(replace(target.check, verb=verb)))


@LIBRARY.add("Decision..allowed() -> bool")
def allowed(decision: Decision) -> bool:
    return decision.allowed


@LIBRARY.add("Decision..reason() -> string")
def reason(decision: Decision) -> str:
    return decision.reason


@LIBRARY.add("Decision..errored() -> bool")
def errored(decision: Decision) -> bool:
    # RBAC always decides.
    return False


@LIBRARY.add("Decision..error() -> string")
def error(decision: Decision) -> str:
    return ""
