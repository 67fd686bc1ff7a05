"""Events in both API groups: core `v1` and `events.k8s.io/v1`.

They are stored in the core form; `to_core` and `from_core` convert.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import SelectableStrategy
from onejob.api.kinds.metadata import validate_metadata_update
from onejob.api.kinds.printing import EVENT_COLUMNS, event_cells
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, invalid, required

#: Core v1 field names by events.k8s.io/v1 field name. All other fields have the same name.
_RENAMED: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_RENAMED_BACK: Final = {core: other for other, core in _RENAMED.items()}

_INVOLVED: Final = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)


def to_core(doc: Document) -> Document:
    """Convert an events.k8s.io/v1 Event to core v1."""
    return {**{_RENAMED.get(field, field): v for field, v in doc.items()}, "apiVersion": "v1"}


def patch_to_core(patch: Any) -> Any:
    """Convert a patch of an events.k8s.io/v1 Event to one of core v1.

    In merge patches, fields are renamed as in documents; the operations of a JSON patch name their
    fields in pointers.
    """
    if isinstance(patch, dict):
        return to_core(patch)
    return [_operation_to_core(op) if isinstance(op, dict) else op for op in patch]


def _operation_to_core(operation: Document) -> Document:
    pointers = {
        name: _pointer_to_core(operation[name])
        for name in ("path", "from")
        if isinstance(operation.get(name), str)
    }
    return {**operation, **pointers}


def _pointer_to_core(pointer: str) -> str:
    root, *parts = pointer.split("/")
    if not parts:
        return pointer
    return "/".join((root, _RENAMED.get(parts[0], parts[0]), *parts[1:]))


def from_core(doc: Document) -> Document:
    """Convert a core v1 Event to events.k8s.io/v1."""
    renamed = {_RENAMED_BACK.get(field, field): value for field, value in doc.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


class EventStrategy(SelectableStrategy):
    """Strategy of Events in their stored form, for both API groups."""

    selectable = frozenset(
        {
            *(f"involvedObject.{field}" for field in _INVOLVED),
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    )

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + _validate_namespace(doc)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return [*validate_metadata_update(new, old), *_validate_namespace(new)]

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        involved = doc.get("involvedObject", {})
        reporter = doc.get("reportingComponent", "")
        fields = {f"involvedObject.{field}": involved.get(field, "") for field in _INVOLVED}
        fields["reason"] = doc.get("reason", "")
        fields["reportingComponent"] = reporter
        fields["source"] = doc.get("source", {}).get("component") or reporter
        fields["type"] = doc.get("type", "")
        return fields

    def columns(self) -> list[dict[str, Any]]:
        return EVENT_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return event_cells(doc, now)


class EventsV1Strategy(EventStrategy):
    """Strategy of Events in the form of events.k8s.io/v1, which is stricter about new ones."""

    selectable = frozenset(
        {
            *(f"regarding.{field}" for field in _INVOLVED),
            "reason",
            "reportingController",
            "type",
        }
    )

    def validate_create(self, doc: Document) -> list[FieldError]:
        return [*super().validate_create(to_core(doc)), *validate_new_event(doc)]

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_update(to_core(new), to_core(old))

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        return {
            field.replace("involvedObject.", "regarding.").replace(
                "reportingComponent", "reportingController"
            ): value
            for field, value in super().selectable_fields(to_core(doc)).items()
        }

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return event_cells(to_core(doc), now)


def validate_new_event(doc: Document) -> list[FieldError]:
    """Return the errors of a new Event by the additional rules of events.k8s.io/v1."""
    errors = [
        required(field)
        for field in ("eventTime", "reportingController", "reportingInstance", "action", "reason")
        if not doc.get(field)
    ]
    kind = doc.get("type", "")
    if kind not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {kind}"))
    return errors


def _validate_namespace(doc: Document) -> list[FieldError]:
    involved = doc.get("involvedObject", {}).get("namespace", "")
    namespace = doc["metadata"].get("namespace", "")
    # Events about cluster-scoped objects belong in a well-known namespace.
    allowed = (involved,) if involved else ("default", "kube-system")
    if namespace in allowed:
        return []
    return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
