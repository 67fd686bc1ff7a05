"""Strategy interface: defaulting, validation and presentation rules of one kind.

The verbs in `service` are the same for all kinds and call these hooks, as the registry strategies
of Kubernetes are called. Implementations live in `onejob.api.kinds`.

Guarantees:
    Documents are plain dicts and already normalised: nulls dropped, unknown fields pruned, types
        checked against the schema.

Requirements:
    Strategies modify `doc` or `new` in place and never modify `old`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

Document: TypeAlias = dict[str, Any]

#: Authorization hook (user, kind, namespace, new, old) that runs before a write. It raises
#: Forbidden if the user may not create this particular object although the verb is allowed, or
#: records the requesting user in `new`. `old` is None for a new object.
Guard: TypeAlias = Callable[[User, Kind, str, Document, Document | None], None]


class Strategy(Protocol):
    """Rules of one kind: defaulting, preparation, validation and presentation.

    The module docstring has the guarantees and requirements. The hooks of a write run in the order
    default, prepare, validate, warn. Validation hooks return their errors instead of raising them;
    the caller collects all of them in one Invalid.
    """

    #: Treatment of dependents by a DELETE that specifies no propagation policy.
    default_propagation: Literal["Background", "Orphan"]
    #: Whether a PUT without resourceVersion is accepted.
    unconditional_update: bool
    #: Whether documents are returned to clients exactly as stored, which saves re-encoding.
    shows_as_stored: bool
    #: Whether the rules for the spec read no other part of the document, and an update of the main
    #: endpoint is subject to no rules other than these and those for metadata. If so, a write that
    #: does not change the spec skips the rules for it.
    judges_spec_alone: bool
    #: Whether no rule modifies in place, outside metadata, the parts that a new document shares
    #: with the stored one. If not, the new document gets copies of them.
    shares_sections: bool
    #: Whether status writes of onejob's own writers are subject to no rules.
    status_without_rules: bool

    def default(self, doc: Document, old: Document | None = None) -> None:
        """Fill in defaults. Must be idempotent.

        Runs on every create and update, before validation. Parts that are equal in `old` already
        have their defaults.
        """

    def bytes_added_by_defaults(self, body: Any) -> int:
        """Return the number of bytes that `default` may add to a body or patch.

        Writes that become large through defaults run in the worker thread, like other large writes.
        """

    def prepare_create(self, doc: Document) -> None:
        """Set the server-owned fields: status, generation, generated selectors.

        metadata.uid, name, namespace and creationTimestamp are already set.
        """

    def validate_create(self, doc: Document) -> list[FieldError]: ...

    def warnings_on_create(self, doc: Document) -> list[str]: ...

    def prepare_update(self, new: Document, old: Document) -> None:
        """Copy status from `old`, drop fields of disabled feature gates, bump generation."""

    def validate_update(self, new: Document, old: Document) -> list[FieldError]: ...

    def validate_changed_metadata(self, new: Document, old: Document) -> list[FieldError]:
        """Return the errors of `validate_update` that concern metadata."""

    def warnings_on_update(self, new: Document, old: Document) -> list[str]: ...

    def prepare_status_update(self, new: Document, old: Document) -> None:
        """Copy everything except status and metadata from `old`."""

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]: ...

    def prepare_approval(self, new: Document, old: Document) -> None:
        """Copy everything except conditions from `old`: for the subresource `approval`."""

    def validate_approval(self, new: Document, old: Document) -> list[FieldError]: ...

    def prepare_ephemeral_containers(self, new: Document, old: Document) -> None:
        """Copy everything except ephemeral containers from `old`, like `prepare_resize`."""

    def validate_ephemeral_containers(self, new: Document, old: Document) -> list[FieldError]: ...

    def prepare_resize(self, new: Document, old: Document) -> None:
        """Copy everything except resources from `old`: for the subresource `resize`.

        Called before the changes are attributed to their manager.
        """

    def validate_resize(self, new: Document, old: Document) -> list[FieldError]: ...

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        """Return field selector values by label, beyond metadata.name and metadata.namespace."""

    def field_label_error(self, label: str) -> str | None:
        """Return the message of the 400 for an unsupported field label; None if it is supported."""

    def deletion_grace_seconds(self, doc: Document, requested: int | None) -> int:
        """Return the seconds for which a deleted object remains with deletionTimestamp set.

        0 for all kinds except Pods. `requested` is None if the client named no grace period.
        """

    def shown(self, document: bytes) -> bytes:
        """Return the client's view of a stored document. Called only if not `shows_as_stored`."""

    def columns(self) -> list[dict[str, Any]]:
        """Return the Table columnDefinitions (name, type, format, description, priority)."""

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        """Return the cells of one Table row, in the order of `columns`."""

    def row_conditions(self, doc: Document) -> list[dict[str, str]]:
        """Return the conditions of the Table row, which mark a completed object for clients."""
