"""Rules and selectors by which policies and webhooks choose requests, as upstream."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.strategy import Document
from onejob.objects.meta import NAMESPACES, Key, LabelSelector
from onejob.store.base import StagingStore
from onejob.wire.errors import NotFound
from onejob.wire.kinds import Kind
from onejob.wire.selectors import matcher_of


class Rule(Struct, frozen=True, rename="camel"):
    """Operations on resources. "*" stands for all; `pods/*` includes all subresources."""

    #: Names of objects; empty for all. Only policies have it.
    resource_names: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str = "*"

    def matches(
        self, operation: Operation, kind: Kind, subresource: str, name: str | None = None
    ) -> bool:
        """Return whether the rule selects the operation on this resource.

        `name` is the object's name; None matches all names.
        """
        return (
            _includes(self.operations, operation)
            and _includes(self.api_groups, kind.group)
            and _includes(self.api_versions, kind.version)
            and any(_is_resource(given, kind.plural, subresource) for given in self.resources)
            and (self.scope == "*" or (self.scope == "Namespaced") == kind.namespaced)
            and (not self.resource_names or name is None or name in self.resource_names)
        )


class Attempt(Struct, frozen=True):
    """What the rules of policies and webhooks are matched against."""

    operation: Operation
    kind: Kind
    subresource: str
    #: Other versions of the kind, in which the request may be evaluated as well.
    others: Sequence[Kind]
    #: Name of the object; None matches all names.
    name: str | None = None


def matching_version(rules: Sequence[Rule], attempt: Attempt, *, exact: bool) -> Kind | None:
    """Return the version in which the rules match; None if none does.

    The requested version comes first. Unless `exact`, others follow in the order of the rules.
    """
    operation, subresource, name = attempt.operation, attempt.subresource, attempt.name
    if any(rule.matches(operation, attempt.kind, subresource, name) for rule in rules):
        return attempt.kind
    if exact:
        return None
    return next(
        (
            other
            for rule in rules
            for other in attempt.others
            if rule.matches(operation, other, subresource, name)
        ),
        None,
    )


class Selectors(Struct, frozen=True):
    """Label selectors for the namespace and for the object of a request."""

    namespace: LabelSelector = field(default_factory=LabelSelector)
    object: LabelSelector = field(default_factory=LabelSelector)

    def matches(self, request: AdmissionRequest, store: StagingStore) -> bool:
        """Return whether both selectors match. Raises NotFound if the namespace does not exist."""
        return self._matches_object(request) and self._matches_namespace(request, store)

    def _matches_object(self, request: AdmissionRequest) -> bool:
        """Return whether the labels of the new or the old object match."""
        if _is_empty(self.object):
            return True
        matcher = matcher_of(self.object)
        documents = (request.object, request.old_object)
        # As upstream, objects that cannot have labels never match: those of exec, for example.
        return any(
            matcher.matches(labels_of(doc)) for doc in documents if doc and "metadata" in doc
        )

    def _matches_namespace(self, request: AdmissionRequest, store: StagingStore) -> bool:
        """Return whether the labels of the request's namespace match.

        A namespace is matched by its own labels; other objects outside namespaces always match.
        """
        if _is_empty(self.namespace):
            return True
        is_namespace = request.kind.storage == NAMESPACES
        if not is_namespace and not request.kind.namespaced:
            return True
        if is_namespace and not request.subresource and request.object is not None:
            labels = labels_of(request.object)
        else:
            name = request.name if is_namespace else request.namespace
            labels = labels_of(namespace_object(store, name))
        return matcher_of(self.namespace).matches(labels)


class MatchResources(Struct, frozen=True):
    """matchConstraints of a policy, or matchResources of a binding."""

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...]
    selectors: Selectors
    exact: bool

    def may_match(self, attempt: Attempt) -> bool:
        """Return whether requests may match; selectors, names and exclusions are not considered."""
        return not self.rules or matching_version(self.rules, attempt, exact=self.exact) is not None

    def version_for(
        self, request: AdmissionRequest, others: Sequence[Kind], store: StagingStore
    ) -> Kind | None:
        """Return the version in which a request matches; None if it does not.

        Raises NotFound if the namespace does not exist.
        """
        attempt = Attempt(
            request.operation, request.request_kind, request.subresource, others, request.name
        )
        if matching_version(self.excluded, attempt, exact=self.exact) is not None:
            return None
        version = request.request_kind
        if self.rules:
            found = matching_version(self.rules, attempt, exact=self.exact)
            if found is None:
                return None
            version = found
        return version if self.selectors.matches(request, store) else None


def read_match_resources(document: Mapping[str, Any]) -> MatchResources:
    return MatchResources(
        read_rules(document.get("resourceRules")),
        read_rules(document.get("excludeResourceRules")),
        read_selectors(document),
        document.get("matchPolicy") == "Exact",
    )


def read_selectors(document: Mapping[str, Any]) -> Selectors:
    return Selectors(
        read_selector(document.get("namespaceSelector")),
        read_selector(document.get("objectSelector")),
    )


def read_selector(document: Mapping[str, Any] | None) -> LabelSelector:
    return msgspec.convert(document or {}, LabelSelector)


def read_rules(documents: Sequence[Mapping[str, Any]] | None) -> tuple[Rule, ...]:
    return tuple(msgspec.convert(document, Rule) for document in documents or ())


def labels_of(document: Document) -> Mapping[str, str]:
    return (document.get("metadata") or {}).get("labels") or {}


def namespace_object(store: StagingStore, name: str) -> Document:
    """Return a Namespace. Raises NotFound."""
    stored = store.newest(Key(NAMESPACES, "", name))
    if stored is None:
        raise NotFound(f'namespaces "{name}" not found')
    document: Document = msgspec.json.decode(stored.value)
    return document


def _includes(given: Sequence[str], value: str) -> bool:
    """Return whether a list contains the value or `*`."""
    return "*" in given or value in given


def _is_resource(given: str, plural: str, subresource: str) -> bool:
    resource, _, sub = given.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)


def _is_empty(selector: LabelSelector) -> bool:
    return not selector.match_labels and not selector.match_expressions
