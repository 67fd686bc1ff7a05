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

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str = "*"

    def matches(self, operation: Operation, kind: Kind, subresource: str) -> bool:
        """Return whether the rule selects the operation on this resource."""
        return (
            _includes(self.operations, operation)
            and _includes(self.api_groups, kind.group)
            and _includes(self.api_versions, kind.version)
            and any(_is_resource(given, kind.plural, subresource) for given in self.resources)
            and (self.scope == "*" or (self.scope == "Namespaced") == kind.namespaced)
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
        return any(matcher.matches(labels_of(doc)) for doc in documents if doc is not None)

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
