"""What a kind does unless it says otherwise. Kinds override what they decide differently."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from onejob.api.sections import Section, held, members, names, same_bytes, same_member
from onejob.api.strategies.metadata import NameRule, validate_metadata, validate_metadata_update
from onejob.api.strategies.printing import NAME_AND_AGE, age, name_of
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind
from onejob.wire.names import subdomain_errors

#: What a /status write may change.
_WRITABLE_WITH_STATUS = frozenset({"apiVersion", "kind", "metadata", "status"})


class BaseStrategy:
    """Metadata is validated, status is its own endpoint's, nothing else is looked at."""

    default_propagation: Literal["Background", "Orphan"] = "Background"
    unconditional_update: bool = True
    shows_as_stored: bool = True
    #: Whether finalizers may be named without a domain.
    any_finalizer: bool = False
    judges_spec_alone: bool = False
    keeps_documents: bool = False
    own_spec_field: str = ""

    def __init__(self, kind: Kind, name_rule: NameRule = subdomain_errors) -> None:
        self.kind = kind
        self.name_rule = name_rule
        self._has_status = kind.subresource("status") is not None

    def default(self, doc: Document, old: Document | None = None) -> None:
        pass

    def expansion(self, body: Any) -> int:
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

    def validate_new_spec(self, spec: Document) -> list[FieldError]:
        return []

    def validate_own_spec_field(self, value: str) -> list[FieldError]:
        return []

    def warnings_on_create(self, doc: Document) -> list[str]:
        return []

    def name_warnings(self, name: str) -> list[str]:
        return []

    def spec_warnings(self, spec: Document) -> list[str]:
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
    """Reviews and bindings: nothing is stored, so nothing needs a name."""

    def validate_create(self, doc: Document) -> list[FieldError]:
        return []


class SelectableStrategy(BaseStrategy):
    """A core kind with field selectors of its own."""

    #: Field selector labels beyond metadata.name and metadata.namespace.
    selectable: frozenset[str] = frozenset()

    def field_label_error(self, label: str) -> str | None:
        if label in ("metadata.name", "metadata.namespace") or label in self.selectable:
            return None
        return f"field label not supported: {label}"


def fill(target: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Sets what is unset; empty texts are unset, as Go has it."""
    for name, value in defaults.items():
        if target.get(name) in (None, ""):
            target[name] = value
    return target


def same_spec(new: Document, old: Document | None) -> bool:
    """Whether nothing in the spec was touched: what is stored was given its defaults and found
    valid when it came in. Costs next to nothing for sections that nobody has decoded."""
    return (
        old is not None
        and "spec" in old
        and (held(new, "spec") is held(old, "spec") or same_member(new, old, "spec"))
    )


def untouched_spec(new: Document, old: Document) -> bool:
    """Whether the spec is still the very section that was stored, which was valid then."""
    return isinstance(old, Section) and (
        held(new, "spec") is held(old, "spec") or same_bytes(new, old, "spec")
    )


def keep_status(new: Document, old: Document) -> None:
    """Writes to the main endpoint do not reach status."""
    if held(new, "status") is not held(old, "status"):
        keep_section(new, old, "status")


def keep_section(new: Document, old: Document, name: str) -> None:
    """As it is held: a section that nobody has read is not decoded for this."""
    if name in old:
        new[name] = held(old, name)
    elif name in new:
        del new[name]


def keep_all_but_status(new: Document, old: Document) -> None:
    """The order of fields stays too, so that a document changes no more than its status."""
    for field, value in members(old):
        if held(new, field) is not value and field not in _WRITABLE_WITH_STATUS:
            new[field] = value
    if not names(new) <= names(old):
        for field in names(new) - names(old) - _WRITABLE_WITH_STATUS:
            del new[field]


def keep_generation(new: Document, old: Document, *, changed: bool) -> None:
    """The server counts: one more whenever what is asked for changed."""
    metadata = new["metadata"]
    generation = old["metadata"].get("generation", 0) + changed
    if generation:
        metadata["generation"] = generation
    elif "generation" in metadata:
        del metadata["generation"]
