"""Audit policy (`audit.k8s.io/v1`): which requests are logged, and at which level. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from onejob.objects.meta import View
from onejob.wire.field_errors import FieldError, invalid, not_supported, required

LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")
RECEIVED: Final = "RequestReceived"
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
STAGES: Final = (RECEIVED, STARTED, COMPLETE, "Panic")


class GroupResources(View, frozen=True):
    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class AuditRule(View, frozen=True):
    level: str = ""
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs", default=())
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None


class AuditPolicy(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    rules: tuple[AuditRule, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False


class AuditAttributes(msgspec.Struct, frozen=True):
    """Attributes of a request that audit rules match."""

    user: str
    groups: Sequence[str]
    verb: str
    #: Empty for a non-resource path.
    resource: str = ""
    subresource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Recording(msgspec.Struct, frozen=True):
    """Audit settings of one request; `level` is an index into LEVELS."""

    level: int = 0
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False
    #: Bodies are logged for resources only, at any level: other paths have no documents, and some
    #: carry sign-in codes.
    of_resource: bool = True

    @property
    def has_request(self) -> bool:
        return self.level >= 2 and self.of_resource

    @property
    def has_response(self) -> bool:
        return self.level >= 3 and self.of_resource


NOTHING: Final = Recording()


class BadPolicy(ValueError):
    """Invalid audit policy; the message has the reason."""


def read_policy(document: Any) -> AuditPolicy:
    """Parse and validate a policy. Raises `BadPolicy`."""
    try:
        policy = msgspec.convert(document, AuditPolicy)
    except msgspec.ValidationError as error:
        raise BadPolicy(str(error)) from None
    if policy.api_version != "audit.k8s.io/v1" or policy.kind != "Policy":
        raise BadPolicy("it must have apiVersion: audit.k8s.io/v1 and kind: Policy")
    if not policy.rules:
        raise BadPolicy("it has no rules")
    errors = list(_stage_errors(policy.omit_stages, "omitStages"))
    for index, rule in enumerate(policy.rules):
        errors += _rule_errors(rule, f"rules[{index}]")
    if errors:
        raise BadPolicy("; ".join(map(str, errors)))
    return policy


def _rule_errors(rule: AuditRule, path: str) -> Iterator[FieldError]:
    if not rule.level:
        yield required(f"{path}.level")
    elif rule.level not in LEVELS:
        yield not_supported(f"{path}.level", rule.level, list(LEVELS))
    for index, url in enumerate(rule.non_resource_urls):
        place = f"{path}.nonResourceURLs[{index}]"
        if url != "*" and not url.startswith("/"):
            yield invalid(place, url, "non-resource URL rules must begin with a '/' character")
        if "*" in url[:-1]:
            text = "non-resource URL wildcards '*' must be the final character of the rule"
            yield invalid(place, url, text)
    for each in rule.resources:
        if each.resource_names and not each.resources:
            text = "using resourceNames requires at least one resource"
            yield invalid(f"{path}.resources.resourceNames", list(each.resource_names), text)
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        text = "rules cannot apply to both regular resources and non-resource URLs"
        yield invalid(f"{path}.nonResourceURLs", list(rule.non_resource_urls), text)
    yield from _stage_errors(rule.omit_stages, f"{path}.omitStages")


def _stage_errors(stages: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, stage in enumerate(stages):
        if stage not in STAGES:
            yield invalid(f"{path}[{index}]", stage, f"allowed stages are {','.join(STAGES)}")


def recording_of(policy: AuditPolicy, question: AuditAttributes) -> Recording:
    """Return the settings of the first matching rule; without a match nothing is logged."""
    for rule in policy.rules:
        if _matches(rule, question):
            omits = rule.omit_managed_fields
            return Recording(
                LEVELS.index(rule.level),
                frozenset((*policy.omit_stages, *rule.omit_stages)),
                policy.omit_managed_fields if omits is None else omits,
                bool(question.resource),
            )
    return NOTHING


def _matches(rule: AuditRule, question: AuditAttributes) -> bool:
    """Return whether the rule selects the request."""
    if rule.users and question.user not in rule.users:
        return False
    if rule.user_groups and not any(group in rule.user_groups for group in question.groups):
        return False
    if rule.verbs and question.verb not in rule.verbs:
        return False
    if rule.namespaces or rule.resources:
        return bool(question.resource) and _matches_resource(rule, question)
    if rule.non_resource_urls:
        return not question.resource and any(
            _matches_path(spec, question.path) for spec in rule.non_resource_urls
        )
    return True


def _matches_path(spec: str, path: str) -> bool:
    """Return whether a non-resource URL, or a prefix that ends in `*`, includes the path."""
    return spec in ("*", path) or (spec.endswith("*") and path.startswith(spec[:-1]))


def _matches_resource(rule: AuditRule, question: AuditAttributes) -> bool:
    """Return whether the rule selects the request's namespace and resource."""
    if rule.namespaces and question.namespace not in rule.namespaces:
        return False
    if not rule.resources:
        return True
    return any(_is_one_of(each, question) for each in rule.resources)


def _is_one_of(those: GroupResources, question: AuditAttributes) -> bool:
    if those.group not in (question.group, "*"):
        return False
    if not those.resources:
        return True
    if those.resource_names and question.name not in those.resource_names:
        return False
    resource, subresource = question.resource, question.subresource
    wanted = {"*", f"{resource}/{subresource}" if subresource else resource, f"{resource}/*"}
    if subresource:
        wanted.add(f"*/{subresource}")
    return not wanted.isdisjoint(those.resources)
