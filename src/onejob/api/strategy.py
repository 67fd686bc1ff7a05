"""What each kind decides about its own documents; the verbs in `service` are the same for all.

Documents are plain dicts here, already normalised: null dropped, unknown fields pruned, types
checked against the schema. Strategies change `doc`/`new` in place and never touch `old`.
Implementations live in `onejob.api.strategies`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

Document: TypeAlias = dict[str, Any]

#: (user, kind, namespace, new, old) before a write: raises Forbidden if the user may not make
#: such an object, although the verb is allowed, or notes in it whose it is. `old` is None for a new
#: object.
Guard: TypeAlias = Callable[[User, Kind, str, Document, Document | None], None]


class Strategy(Protocol):
    #: What a DELETE without a policy does to dependents.
    default_propagation: Literal["Background", "Orphan"]
    #: Whether a PUT without resourceVersion is accepted.
    unconditional_update: bool
    #: Whether documents leave as they are stored, which costs nothing.
    shows_as_stored: bool
    #: Whether the rules about the spec read nothing else of the document, and nothing but these
    #: and the rules of metadata judges an update of the main endpoint. Then what becomes of a new
    #: object's spec can be remembered (`writing/created_spec.py`), and a write that leaves the spec
    #: alone needs none of them.
    judges_spec_alone: bool
    #: Whether no rule changes in place what a new document shares with the stored one, other than
    #: in metadata. Then a document is kept for the next write (`writing/recent_documents.py`);
    #: others are split anew, so that what is shared is encoded.
    keeps_documents: bool
    #: A field of the spec that is each object's own, judged by `validate_own_spec_field` alone.
    own_spec_field: str

    def default(self, doc: Document, old: Document | None = None) -> None:
        """Fill in defaults; idempotent. Runs on every create and update, before validation. What
        is the same in `old` was given its defaults when it came in."""

    def expansion(self, body: Any) -> int:
        """Return how many bytes `default` may add to a body or patch. Writes that become large by
        it are worked on by another thread, as large ones are."""

    def prepare_create(self, doc: Document) -> None:
        """Set what the server owns: status, generation, generated selectors. metadata.uid,
        name, namespace and creationTimestamp are already set."""

    def validate_create(self, doc: Document) -> list[FieldError]: ...

    def validate_new_metadata(self, doc: Document) -> list[FieldError]:
        """The part of `validate_create` that is about metadata."""

    def validate_new_spec(self, spec: Document) -> list[FieldError]:
        """The part of `validate_create` that is about the spec. Only asked of kinds that judge it
        alone."""

    def validate_own_spec_field(self, value: str) -> list[FieldError]: ...

    def name_warnings(self, name: str) -> list[str]:
        """The part of `warnings_on_create` that is about the name."""

    def spec_warnings(self, spec: Document) -> list[str]: ...

    def warnings_on_create(self, doc: Document) -> list[str]: ...

    def prepare_update(self, new: Document, old: Document) -> None:
        """Keep status from `old`, drop gated fields, bump generation."""

    def validate_update(self, new: Document, old: Document) -> list[FieldError]: ...

    def validate_changed_metadata(self, new: Document, old: Document) -> list[FieldError]:
        """The part of `validate_update` that is about metadata."""

    def warnings_on_update(self, new: Document, old: Document) -> list[str]: ...

    def prepare_status_update(self, new: Document, old: Document) -> None:
        """Keep everything but status (and metadata) from `old`."""

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]: ...

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        """Field selector label -> value, beyond metadata.name and metadata.namespace."""

    def field_label_error(self, label: str) -> str | None:
        """The text of the 400 for an unsupported field label; None if it is supported."""

    def deletion_grace_seconds(self, doc: Document, requested: int | None) -> int:
        """How long a deleted object stays with deletionTimestamp set; 0 for all but Pods."""

    def shown(self, document: bytes) -> bytes:
        """A stored document as clients see it. Only called if not `shows_as_stored`."""

    def columns(self) -> list[dict[str, Any]]:
        """Table columnDefinitions (name, type, format, description, priority)."""

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        """One Table row's cells, in the order of `columns`."""

    def row_conditions(self, doc: Document) -> list[dict[str, str]]:
        """Conditions of the Table row itself, which tell clients that the object has ended."""
