"""Review APIs: SelfSubjectReview, SubjectAccessReview, TokenReview and variants. Not stored."""

from typing import Any

import msgspec

from onejob.api.access.authentication import (
    API_AUDIENCES,
    NO_AUTHENTICATOR,
    Authenticator,
    Credentials,
    RejectedToken,
)
from onejob.api.access.authorization import Attributes, Authorizer, Decision
from onejob.api.strategy import Document
from onejob.planning.rbac.rules import PolicyRule
from onejob.wire.errors import BadRequest, Invalid
from onejob.wire.field_errors import FieldError, invalid, required
from onejob.wire.kinds import Kind
from onejob.wire.requests import User


def review(
    kind: Kind,
    namespace: str,
    body: Document,
    user: User,
    authorizer: Authorizer,
    authenticator: Authenticator = NO_AUTHENTICATOR,
) -> Document:
    """Return the review with its status filled in. Raises BadRequest, Invalid."""
    given = body.get("kind") or kind.kind
    if given != kind.kind:
        raise BadRequest(
            f"{given} in version {body.get('apiVersion', '')!r} cannot be handled as a {kind.kind}"
        )
    spec = _mapping(body.get("spec"))
    match kind.kind:
        case "SelfSubjectReview":
            status: Document = {"userInfo": user_info(user)}
        case "SelfSubjectRulesReview":
            status = _rules(spec, user, authorizer)
        case "SelfSubjectAccessReview":
            status = _review_access(kind, spec, user, authorizer)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            status = _review_access(
                kind, _in_namespace(kind, namespace, spec), _subject(kind, spec), authorizer
            )
        case "TokenReview":
            status = _token(spec, authenticator)
        case _:
            raise BadRequest(f"{kind.kind} is not a review")
    metadata = {"creationTimestamp": None, **_mapping(body.get("metadata"))}
    answer = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    if kind.kind != "SelfSubjectReview":
        answer["spec"] = spec
    return {**answer, "status": status}


def user_info(user: User) -> Document:
    """Return a user as a UserInfo document."""
    info: Document = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def _token(spec: Document, authenticator: Authenticator) -> Document:
    """Return the status of a TokenReview. Raises BadRequest."""
    token = _text(spec, "token")
    if not token:
        raise BadRequest("token is required for TokenReview in authentication")
    audiences = spec.get("audiences") or API_AUDIENCES
    if not isinstance(audiences, list | tuple) or not all(isinstance(a, str) for a in audiences):
        raise BadRequest("cannot unmarshal a review: audiences must be strings")
    user, problem = None, ""
    # Authenticate once per audience: the response lists the audiences that the token is valid for.
    accepted = []
    for audience in dict.fromkeys(audiences):
        try:
            found = authenticator.authenticate(Credentials(token, audiences=(audience,)))
        except RejectedToken as error:
            problem = str(error)
            continue
        if found is not None:
            user = found
            accepted.append(audience)
    if user is None:
        return {"user": {}, "error": problem} if problem else {"user": {}}
    return {"authenticated": True, "user": user_info(user), "audiences": accepted}


def _rules(spec: Document, user: User, authorizer: Authorizer) -> Document:
    """Return the status of a SelfSubjectRulesReview. Raises BadRequest."""
    namespace = _text(spec, "namespace")
    if not namespace:
        raise BadRequest("no namespace on request")
    rules = authorizer.rules(user, namespace)
    return {
        "resourceRules": [_rule_document(rule) for rule in rules if rule.resources],
        "nonResourceRules": [_rule_document(rule) for rule in rules if rule.non_resource_urls],
        "incomplete": False,
    }


def _rule_document(rule: PolicyRule) -> Document:
    """Return the rule as a JSON document."""
    document: Document = msgspec.json.decode(msgspec.json.encode(rule))
    return document


def _review_access(kind: Kind, spec: Document, user: User, authorizer: Authorizer) -> Document:
    """Return the status of an access review of the user. Raises Invalid, BadRequest."""
    resource = spec.get("resourceAttributes")
    path = spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        raise Invalid(
            kind.kind,
            kind.group,
            "",
            [
                invalid(
                    "spec.resourceAttributes"
                    if resource is not None
                    else "spec.nonResourceAttributes",
                    None,
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )
            ],
        )
    wanted = _attributes(_mapping(resource)) if resource is not None else _path(_mapping(path))
    return _status(authorizer.authorize(user, wanted))


def _status(decision: Decision) -> Document:
    """Return a decision as the status of an access review."""
    status: Document = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def _attributes(given: Document) -> Attributes:
    """Return the attributes of a request for a resource. Raises BadRequest for a field that is no
    text."""
    return Attributes(
        verb=_text(given, "verb"),
        group=_text(given, "group"),
        version=_text(given, "version"),
        resource=_text(given, "resource"),
        subresource=_text(given, "subresource"),
        namespace=_text(given, "namespace"),
        name=_text(given, "name"),
    )


def _path(given: Document) -> Attributes:
    """Return the attributes of a request for a path. Raises BadRequest for a field that is no
    text."""
    return Attributes(verb=_text(given, "verb"), path=_text(given, "path"))


def _subject(kind: Kind, spec: Document) -> User:
    """Return the user that a SubjectAccessReview is about. Raises Invalid if it names neither user
    nor group."""
    groups = spec.get("groups") or ()
    user = _text(spec, "user")
    if not user and not groups:
        errors: list[FieldError] = [
            required("spec.user", "at least one of user or group must be specified")
        ]
        raise Invalid(kind.kind, kind.group, "", errors)
    if not isinstance(groups, list | tuple):
        raise BadRequest("spec.groups must be a list")
    return User(user, uid=_text(spec, "uid"), groups=tuple(map(str, groups)))


def _in_namespace(kind: Kind, namespace: str, spec: Document) -> Document:
    """Return the spec of a review. Raises Invalid if a LocalSubjectAccessReview is about another
    namespace."""
    resource = spec.get("resourceAttributes")
    if kind.kind != "LocalSubjectAccessReview" or resource is None:
        return spec
    given = _text(_mapping(resource), "namespace")
    if given != namespace:
        raise Invalid(
            kind.kind,
            kind.group,
            "",
            [invalid("spec.resourceAttributes.namespace", given, "must match metadata.namespace")],
        )
    return spec


def _mapping(value: Any) -> Document:
    """Return an object; an empty one for null. Raises BadRequest for another type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest("cannot unmarshal a review: expected an object")
    return value


def _text(given: Document, field: str) -> str:
    """Return a text field, "" if it is absent. Raises BadRequest for another type."""
    value = given.get(field) or ""
    if not isinstance(value, str):
        raise BadRequest(f"cannot unmarshal a review: {field} must be a string")
    return value
