"""Asked about every write: may such an object be in this namespace, and as what?

A namespace that says nothing costs a look at a dict. What it says is read once per version of the
Namespace, and so is what a PriorityClass says.
"""

from typing import Final

import msgspec

from onejob.api.admission.pod_security import (
    label_errors,
    namespace_warnings,
    pod_refusal,
    pod_warning,
    policy_of,
    runs_something_else,
)
from onejob.api.admission.priority import PRIORITY_CLASSES, Priorities
from onejob.api.admission.templates import HAVE_TEMPLATES, template_of
from onejob.api.strategy import Document
from onejob.objects.meta import NAMESPACES, PODS, Key
from onejob.planning.pod_security.labels import PREFIX, Policy
from onejob.store.base import Store
from onejob.wire.errors import Forbidden, Invalid
from onejob.wire.kinds import Kind
from onejob.wire.requests import Target

#: A Namespace without these bytes says nothing that is read here.
_MARK: Final = PREFIX.encode()


class NamespaceRules(msgspec.Struct, frozen=True):
    """What one version of a Namespace says about what comes into it."""

    revision: int
    pod_security: Policy


class Admission:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: dict[str, NamespaceRules] = {}
        self._priorities = Priorities(store)

    def confines_pods(self, namespace: str, pod: bytes) -> bool:
        """Whether there is anything to be said about such a Pod that is created there."""
        return self._rules_of(namespace) is not None or self._priorities.concern(pod)

    def review_create(self, kind: Kind, namespace: str, doc: Document) -> list[str]:
        """A new object with its defaults, found valid. A Pod gets its priority. Returns warnings,
        raises Forbidden or Invalid."""
        resource = kind.resource
        if resource == PODS:
            if refusal := self._priorities.admit(doc):
                raise refused(kind, doc["metadata"].get("name", ""), refusal)
        elif resource == PRIORITY_CLASSES:
            self._review_class(kind, doc, is_new=True)
        if resource == NAMESPACES:
            if errors := label_errors(doc, None):
                raise Invalid(kind.kind, kind.group, doc["metadata"].get("name", ""), errors)
            return []
        if resource != PODS and resource not in HAVE_TEMPLATES:
            return []
        rules = self._rules_of(namespace)
        return [] if rules is None else _review_pods(rules, kind, doc)

    def review_update(self, target: Target, new: Document, old: Document) -> list[str]:
        kind = target.kind
        resource = kind.resource
        if resource == NAMESPACES:
            if target.subresource:
                return []
            if errors := label_errors(new, old):
                raise Invalid(kind.kind, kind.group, target.name, errors)
            return list(namespace_warnings(self._store, new, old))
        if resource == PRIORITY_CLASSES:
            self._review_class(kind, new, is_new=False)
        if target.subresource or (resource != PODS and resource not in HAVE_TEMPLATES):
            return []
        rules = self._rules_of(target.namespace)
        if rules is None or (resource == PODS and not runs_something_else(new, old)):
            return []
        return _review_pods(rules, kind, new)

    def _review_class(self, kind: Kind, doc: Document, *, is_new: bool) -> None:
        if refusal := self._priorities.second_default(doc, is_new=is_new):
            raise refused(kind, doc["metadata"].get("name", ""), refusal)

    def _rules_of(self, namespace: str) -> NamespaceRules | None:
        stored = self._store.newest(Key(NAMESPACES, "", namespace))
        if stored is None or _MARK not in stored.value:
            return None
        rules = self._rules.get(namespace)
        if rules is None or rules.revision != stored.revision:
            document = msgspec.json.decode(stored.value)
            rules = NamespaceRules(stored.revision, policy_of(document))
            self._rules[namespace] = rules
        return rules


def _review_pods(rules: NamespaceRules, kind: Kind, doc: Document) -> list[str]:
    policy = rules.pod_security
    if kind.resource == PODS:
        if refusal := pod_refusal(policy, doc):
            raise refused(kind, doc["metadata"].get("name", ""), refusal)
        found = pod_warning(policy, doc)
    else:
        template = template_of(kind.resource, doc)
        found = "" if template is None else pod_warning(policy, template)
    return [found] if found else []


def refused(kind: Kind, name: str, why: str) -> Forbidden:
    details = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {why}', details=details)
