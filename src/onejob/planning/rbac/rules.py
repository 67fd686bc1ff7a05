"""RBAC rules: matching of requests, and coverage of rules by other rules."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from onejob.objects.meta import View

EVERYTHING = "*"


class PolicyRule(View, frozen=True, kw_only=False):
    """One rule of a Role or ClusterRole."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs", default=())

    def __str__(self) -> str:
        """Return the format of upstream's error messages."""
        fields = (
            ("APIGroups", self.api_groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.non_resource_urls),
            ("ResourceNames", self.resource_names),
            ("Verbs", self.verbs),
        )
        texts = (f"{name}:{_quoted(values)}" for name, values in fields if values)
        return "{" + ", ".join(texts) + "}"


def _quoted(values: Sequence[str]) -> str:
    """Return the values in the notation of Go."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


class AccessAttributes(View, frozen=True, kw_only=False):
    """Attributes of an access request, for a resource or a non-resource path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    #: Path of a non-resource request; "" otherwise.
    path: str = ""


def allows(rule: PolicyRule, question: AccessAttributes) -> bool:
    """Return whether the rule permits the request, including its object name."""
    return allows_some(rule, question) and allows_name(rule, question.name)


def allows_some(rule: PolicyRule, question: AccessAttributes) -> bool:
    """Return whether the rule allows the request for at least one name."""
    if not _includes(rule.verbs, question.verb):
        return False
    if question.path:
        return any(_url_within(url, question.path) for url in rule.non_resource_urls)
    return _includes(rule.api_groups, question.group) and _resource_within(
        rule.resources, question.resource, question.subresource
    )


def allows_name(rule: PolicyRule, name: str) -> bool:
    return not rule.resource_names or name in rule.resource_names


def not_covered(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the parts of `wanted` that no rule of `owned` allows.

    Basis of the privilege-escalation check: a user with the rights `owned` must not be able to
    grant these parts to any subject.
    """
    return [
        part
        for rule in wanted
        for part in _parts(rule)
        if not any(_covers(own, part) for own in owned)
    ]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Yield the rule split by verb, group, resource and name, or by verb and URL."""
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                if not rule.resource_names:
                    yield PolicyRule((verb,), (group,), (resource,))
                for name in rule.resource_names:
                    yield PolicyRule((verb,), (group,), (resource,), (name,))
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), non_resource_urls=(url,))


def _covers(own: PolicyRule, part: PolicyRule) -> bool:
    """Return whether `own` allows `part`, a result of `_parts`.

    Only a wildcard covers a wildcard.
    """
    if not _includes(own.verbs, part.verbs[0]):
        return False
    if part.non_resource_urls:
        return any(_url_within(url, part.non_resource_urls[0]) for url in own.non_resource_urls)
    resource, _, subresource = part.resources[0].partition("/")
    named = not own.resource_names or (
        bool(part.resource_names) and part.resource_names[0] in own.resource_names
    )
    return (
        named
        and _includes(own.api_groups, part.api_groups[0])
        and _resource_within(own.resources, resource, subresource)
    )


def merged(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return fewer, equivalent rules for display, with the verbs of one resource combined."""
    together: dict[PolicyRule, list[str]] = {}
    for rule in rules:
        key = PolicyRule(
            (), rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls
        )
        verbs = together.setdefault(key, [])
        verbs.extend(verb for verb in rule.verbs if verb not in verbs)
    return [
        PolicyRule(
            tuple(verbs), key.api_groups, key.resources, key.resource_names, key.non_resource_urls
        )
        for key, verbs in together.items()
    ]


def _includes(values: Sequence[str], wanted: str) -> bool:
    """Return whether the values contain the wanted one or `*`."""
    return EVERYTHING in values or wanted in values


def _resource_within(resources: Sequence[str], resource: str, subresource: str) -> bool:
    """Return whether the resources include the resource or its subresource."""
    if EVERYTHING in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def _url_within(url: str, path: str) -> bool:
    """Return whether a URL, or a prefix that ends in `*`, includes the path."""
    return url == path or (url.endswith(EVERYTHING) and path.startswith(url.rstrip(EVERYTHING)))
