"""Strategies of RBAC roles and bindings: defaults, validation and printer columns, as upstream.

`planning/rbac` evaluates them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import BaseStrategy
from onejob.api.kinds.printing import AGE, NAME, age, column, name_of
from onejob.api.strategy import Document
from onejob.planning.rbac.policy import GROUP
from onejob.wire.field_errors import FieldError, invalid, not_supported, required
from onejob.wire.kinds import Kind
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import path_segment_errors, subdomain_errors

_ROLE_COLUMNS: Final = [NAME, column("Created At", "When the role was created.")]
_BINDING_COLUMNS: Final = [
    NAME,
    column("Role", "The role that is bound."),
    AGE,
    column("Users", "Users that are bound.", wide=True),
    column("Groups", "Groups that are bound.", wide=True),
    column("ServiceAccounts", "Service accounts that are bound.", wide=True),
]


class RoleStrategy(BaseStrategy):
    """Strategy of Roles and ClusterRoles."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind, name_rule=path_segment_errors)

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + self._validate(doc)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return self._validate(new) + super().validate_update(new, old)

    def _validate(self, doc: Document) -> list[FieldError]:
        """Return the errors of the rules."""
        errors: list[FieldError] = []
        for index, rule in enumerate(doc.get("rules") or ()):
            errors += _validate_rule(rule, f"rules[{index}]", namespaced=self.kind.namespaced)
        if "aggregationRule" in doc:
            errors += _validate_aggregation(doc["aggregationRule"])
        return errors

    def columns(self) -> list[dict[str, Any]]:
        return _ROLE_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return [name_of(doc), doc["metadata"].get("creationTimestamp", "")]


class BindingStrategy(BaseStrategy):
    """Strategy of RoleBindings and ClusterRoleBindings."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind, name_rule=path_segment_errors)

    def default(self, doc: Document, old: Document | None = None) -> None:
        ref = doc.setdefault("roleRef", {})
        if isinstance(ref, dict) and not ref.get("apiGroup"):
            ref["apiGroup"] = GROUP
        for subject in doc.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = GROUP

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + self._validate(doc)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = self._validate(new) + super().validate_update(new, old)
        if new.get("roleRef") != old.get("roleRef"):
            errors.append(invalid("roleRef", new.get("roleRef"), "field is immutable"))
        return errors

    def _validate(self, doc: Document) -> list[FieldError]:
        """Return the errors of the roleRef and the subjects."""
        ref = doc.get("roleRef") or {}
        errors: list[FieldError] = []
        if ref.get("apiGroup") != GROUP:
            errors.append(not_supported("roleRef.apiGroup", ref.get("apiGroup", ""), [GROUP]))
        kinds = ["Role", "ClusterRole"] if self.kind.namespaced else ["ClusterRole"]
        if ref.get("kind") not in kinds:
            errors.append(not_supported("roleRef.kind", ref.get("kind", ""), kinds))
        name = ref.get("name", "")
        if not name:
            errors.append(required("roleRef.name"))
        errors += [invalid("roleRef.name", name, text) for text in path_segment_errors(name)]
        for index, subject in enumerate(doc.get("subjects") or ()):
            path = f"subjects[{index}]"
            errors += _validate_subject(subject, path, namespaced=self.kind.namespaced)
        return errors

    def columns(self) -> list[dict[str, Any]]:
        return _BINDING_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        ref = doc.get("roleRef", {})
        by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
        for subject in doc.get("subjects") or ():
            name = subject.get("name", "")
            if subject.get("kind") == "ServiceAccount" and subject.get("namespace"):
                name = f"{subject['namespace']}/{name}"
            by_kind.setdefault(subject.get("kind", ""), []).append(name)
        role = f"{ref.get('kind', '')}/{ref.get('name', '')}"
        shown = (", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount"))
        return [name_of(doc), role, age(doc, now), *shown]


def _validate_rule(rule: Mapping[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    urls: Sequence[str] = rule.get("nonResourceURLs") or ()
    if urls:
        field = f"{path}.nonResourceURLs"
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid(field, urls, text))
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(field, urls, text))
        return errors
    if not rule.get("apiGroups"):
        text = "resource rules must supply at least one api group"
        errors.append(required(f"{path}.apiGroups", text))
    if not rule.get("resources"):
        text = "resource rules must supply at least one resource"
        errors.append(required(f"{path}.resources", text))
    return errors


def _validate_aggregation(aggregation: Mapping[str, Any]) -> list[FieldError]:
    path = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        return [required(path, text)]
    return [
        error
        for index, selector in enumerate(selectors)
        for error in validate_label_selector(selector, f"{path}[{index}]")
    ]


def _validate_subject(
    subject: Mapping[str, Any], path: str, *, namespaced: bool
) -> list[FieldError]:
    name, group = subject.get("name", ""), subject.get("apiGroup", "")
    errors = [] if name else [required(f"{path}.name")]
    match subject.get("kind"):
        case "ServiceAccount":
            if name:
                errors += [invalid(f"{path}.name", name, text) for text in subdomain_errors(name)]
            if group:
                errors.append(not_supported(f"{path}.apiGroup", group, [""]))
            if not namespaced and not subject.get("namespace"):
                errors.append(required(f"{path}.namespace"))
        case "User" | "Group":
            if group != GROUP:
                errors.append(not_supported(f"{path}.apiGroup", group, [GROUP]))
        case other:
            kinds = ["ServiceAccount", "User", "Group"]
            errors.append(not_supported(f"{path}.kind", other or "", kinds))
    return errors
