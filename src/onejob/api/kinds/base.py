"""Default strategy implementation. Kinds override the hooks in which they differ."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from onejob.api.kinds.metadata import NameRule, validate_metadata, validate_metadata_update
from onejob.api.kinds.printing import NAME_AND_AGE, age, name_of
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind
from onejob.wire.names import subdomain_errors

#: Fields that a /status write may change.
_WRITABLE_WITH_STATUS = frozenset({"apiVersion", "kind", "metadata", "status"})


class BaseStrategy:
    """Base strategy: validates metadata, reserves status for its own endpoint, and has no other
    rules."""

    default_propagation: Literal["Background", "Orphan"] = "Background"
    unconditional_update: bool = True
    shows_as_stored: bool = True
    #: Whether finalizer names may lack a domain.
    any_finalizer: bool = False
    judges_spec_alone: bool = False
    shares_sections: bool = False
    status_without_rules: bool = False

    def __init__(self, kind: Kind, name_rule: NameRule = subdomain_errors) -> None:
        self.kind = kind
        self.name_rule = name_rule
        self._has_status = kind.subresource("status") is not None

    def default(self, doc: Document, old: Document | None = None) -> None:
        pass

    def bytes_added_by_defaults(self, body: Any) -> int:
        """Return 0: defaults of built-in kinds are a few bytes."""
        return 0

    def prepare_create(self, doc: Document) -> None:
        if self._has_status:
            doc.pop("status", None)

    def validate_create(self, doc: Document) -> list[FieldError]:
        return self.validate_new_metadata(doc)

    def validate_new_metadata(self, doc: Document) -> list[FieldError]:
        return validate_metadata(
            doc["metadata"],
            self.name_rule,
            namespaced=self.kind.namespaced,
            any_finalizer=self.any_finalizer,
        )

    def warnings_on_create(self, doc: Document) -> list[str]:
        return []

    def prepare_update(self, new: Document, old: Document) -> None:
        if self._has_status:
            keep_status(new, old)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return validate_metadata_update(new, old, any_finalizer=self.any_finalizer)

    def validate_changed_metadata(self, new: Document, old: Document) -> list[FieldError]:
        return validate_metadata_update(new, old, any_finalizer=self.any_finalizer)

    def warnings_on_update(self, new: Document, old: Document) -> list[str]:
        return []

    def prepare_status_update(self, new: Document, old: Document) -> None:
        keep_all_but_status(new, old)

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]:
        return validate_metadata_update(new, old, any_finalizer=self.any_finalizer)

    def prepare_approval(self, new: Document, old: Document) -> None:
        raise NotImplementedError(f"{self.kind.resource} has no subresource approval")

    def validate_approval(self, new: Document, old: Document) -> list[FieldError]:
        raise NotImplementedError(f"{self.kind.resource} has no subresource approval")

    def prepare_ephemeral_containers(self, new: Document, old: Document) -> None:
        raise NotImplementedError(f"{self.kind.resource} has no ephemeral containers")

    def validate_ephemeral_containers(self, new: Document, old: Document) -> list[FieldError]:
        raise NotImplementedError(f"{self.kind.resource} has no ephemeral containers")

    def prepare_resize(self, new: Document, old: Document) -> None:
        raise NotImplementedError(f"{self.kind.resource} has no subresource resize")

    def validate_resize(self, new: Document, old: Document) -> list[FieldError]:
        raise NotImplementedError(f"{self.kind.resource} has no subresource resize")

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        return {}

    def field_label_error(self, label: str) -> str | None:
        if label in ("metadata.name", "metadata.namespace"):
            return None
        return (
            f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )

    def deletion_grace_seconds(self, doc: Document, requested: int | None) -> int:
        return 0

    def shown(self, document: bytes) -> bytes:
        return document

    def columns(self) -> list[dict[str, Any]]:
        return NAME_AND_AGE

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return [name_of(doc), age(doc, now)]

    def row_conditions(self, doc: Document) -> list[dict[str, str]]:
        return []


class UnnamedStrategy(BaseStrategy):
    """Strategy of reviews and bindings, which are not stored and therefore need no name."""

    def validate_create(self, doc: Document) -> list[FieldError]:
        return []


class SelectableStrategy(BaseStrategy):
    """Strategy of a core kind with additional field selectors."""

    #: Field selector labels beyond metadata.name and metadata.namespace.
    selectable: frozenset[str] = frozenset()

    def field_label_error(self, label: str) -> str | None:
        if label in ("metadata.name", "metadata.namespace") or label in self.selectable:
            return None
        return f"field label not supported: {label}"


def fill(target: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Set the fields that are unset, in place, and return the object. Empty strings count as unset,
    as in Go."""
    for name, value in defaults.items():
        if target.get(name) in (None, ""):
            target[name] = value
    return target


def same_spec(new: Document, old: Document | None) -> bool:
    """Return whether the spec is unchanged, and therefore already defaulted and validated."""
    return old is not None and "spec" in old and new.get("spec") == old["spec"]


def untouched_spec(new: Document, old: Document) -> bool:
    """Return whether the spec is the stored one, which was validated when it was stored."""
    return new.get("spec") is old.get("spec")


def keep_status(new: Document, old: Document) -> None:
    """Copy status from `old`: writes to the main endpoint do not change it."""
    keep_section(new, old, "status")


def keep_section(new: Document, old: Document, name: str) -> None:
    """Copy a section from `old`."""
    if name in old:
        new[name] = old[name]
    elif name in new:
        del new[name]


def keep_all_but_status(new: Document, old: Document) -> None:
    """Copy all fields except status and metadata from `old`.

    Keeps their order, so that the document differs only in its status.
    """
    for field, value in old.items():
        if field not in _WRITABLE_WITH_STATUS:
            new[field] = value
    for field in new.keys() - old.keys() - _WRITABLE_WITH_STATUS:
        del new[field]


def keep_generation(new: Document, old: Document, *, changed: bool) -> None:
    """Set metadata.generation, which the server owns: the old value, plus one if `changed`."""
    metadata = new["metadata"]
    generation = old["metadata"].get("generation", 0) + changed
    if generation:
        metadata["generation"] = generation
    elif "generation" in metadata:
        del metadata["generation"]
