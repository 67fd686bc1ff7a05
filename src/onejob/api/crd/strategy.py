"""Strategy of custom resources, derived from their CRD."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onejob.api.crd.columns import Columns, JsonPath, parse_path, printed
from onejob.api.crd.defaulting import added_bytes, apply_defaults, most_added_to_an_object
from onejob.api.crd.pruning import drop_nulls, prune
from onejob.api.crd.structural import Node
from onejob.api.crd.values import UNRELATED, Validator, check_lists, within
from onejob.api.kinds.base import BaseStrategy, keep_all_but_status, keep_generation
from onejob.api.schema.shapes import Path
from onejob.api.strategy import Document
from onejob.api.writing.context import MAX_OBJECT_BYTES
from onejob.wire.errors import Forbidden, RequestTooLarge
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind

if TYPE_CHECKING:
    from onejob.api.crd.rules import RuleSet

_STANDARD_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_STATUS: Final[Path] = (None, "status")


class CustomStrategy(BaseStrategy):
    """Strategy of one version of a custom kind."""

    unconditional_update = False
    any_finalizer = True

    def __init__(
        self, kind: Kind, version: Mapping[str, Any], *, terminating: bool = False
    ) -> None:
        super().__init__(kind)
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        self.node = Node(schema)
        self._validator = Validator(self.node)
        self._columns = Columns(version.get("additionalPrinterColumns") or ())
        self._terminating = terminating
        self._warning = _deprecation(kind, version)
        self._selectable: dict[str, JsonPath] = {
            field["jsonPath"].removeprefix("."): parse_path(field["jsonPath"])
            for field in version.get("selectableFields") or ()
        }
        #: False if stored objects may lack fields or defaults of the current schema.
        self.shows_as_stored = True

    @cached_property
    def _rules(self) -> "RuleSet | None":
        """CEL rules of the schema; None if it has none."""
        if not self.node.has_rules:
            return None
        from onejob.api.crd.rules import RuleSet

        return RuleSet(self.node, root=True)

    def default(self, doc: Document, old: Document | None = None) -> None:
        """Fill in the defaults of the schema. Raises RequestTooLarge before any change."""
        drop_nulls(doc, self.node)
        added = added_bytes(doc, self.node)
        if added > MAX_OBJECT_BYTES:
            raise RequestTooLarge(
                f"Request entity too large: the defaults of its schema add {added} bytes to the "
                f"object, the limit is {MAX_OBJECT_BYTES}"
            )
        apply_defaults(doc, self.node)

    def bytes_added_by_defaults(self, body: Any) -> int:
        if isinstance(body, dict):
            # An object, or a patch with the structure of one.
            return added_bytes(body, self.node)
        return _count_objects(body) * self._max_default_bytes_per_object

    @cached_property
    def _max_default_bytes_per_object(self) -> int:
        """Upper bound of the bytes that defaults add to an object."""
        return most_added_to_an_object(self.node)

    def prepare_create(self, doc: Document) -> None:
        if self._terminating:
            name = doc["metadata"].get("name", "")
            raise Forbidden(
                f'{self.kind.resource} "{name}" is forbidden: create not allowed while custom '
                "resource definition is terminating",
                details={"name": name, "group": self.kind.group, "kind": self.kind.plural},
            )
        super().prepare_create(doc)
        doc["metadata"]["generation"] = 1

    def value_errors(self, doc: Document) -> list[FieldError]:
        """Return the schema violations of an object, without CEL rules and metadata checks."""
        errors: list[FieldError] = []
        self._validator.check(_judged(doc), UNRELATED, None, errors)
        return errors

    def validate_create(self, doc: Document) -> list[FieldError]:
        errors = super().validate_create(doc)
        self._validator.check(_judged(doc), UNRELATED, None, errors)
        check_lists(doc, self.node, None, errors)
        self._check_rules(doc, UNRELATED, errors)
        return errors

    def prepare_update(self, new: Document, old: Document) -> None:
        super().prepare_update(new, old)
        changed = _without_metadata(new) != _without_metadata(old)
        keep_generation(new, old, changed=changed)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = super().validate_update(new, old)
        self._validator.check(_judged(new), _judged(old), None, errors)
        self._check_new_lists(new, old, errors)
        self._check_rules(new, old, errors)
        return errors

    def prepare_status_update(self, new: Document, old: Document) -> None:
        keep_all_but_status(new, old)
        managed = new["metadata"].get("managedFields")
        new["metadata"] = dict(old["metadata"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = super().validate_status_update(new, old)
        node = self.node.property("status")
        if node is not None and "status" in new:
            before = old.get("status", UNRELATED)
            found: list[FieldError] = []
            Validator(node).check(new["status"], before, None, found)
            errors += [within(error, "status") for error in found]
            if new["status"] != old.get("status"):
                check_lists(new["status"], node, _STATUS, errors)
        self._check_rules(new, old, errors)
        return errors

    def _check_new_lists(self, new: Document, old: Document, errors: list[FieldError]) -> None:
        """Append errors about duplicate list items, unless `old` has duplicates as well."""
        before: list[FieldError] = []
        found: list[FieldError] = []
        check_lists(new, self.node, None, found)
        if found:
            check_lists(old, self.node, None, before)
            if not before:
                errors += found

    def _check_rules(self, doc: Document, old: Any, errors: list[FieldError]) -> None:
        if self._rules is not None:
            from onejob.api.crd.rules import check_rules

            check_rules(self._rules, doc, old, errors)

    def warnings_on_create(self, doc: Document) -> list[str]:
        return [*self._warning, *_finalizer_warnings(doc["metadata"].get("finalizers", ()), ())]

    def warnings_on_update(self, new: Document, old: Document) -> list[str]:
        before = old["metadata"].get("finalizers", ())
        added = _finalizer_warnings(new["metadata"].get("finalizers", ()), before)
        return [*self._warning, *added]

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        found = {name: path.first(doc) for name, path in self._selectable.items()}
        return {name: "" if value is None else printed(value) for name, value in found.items()}

    def field_label_error(self, label: str) -> str | None:
        known = ("metadata.name", "metadata.namespace", *self._selectable)
        return None if label in known else f"field label not supported: {label}"

    def shown(self, document: bytes) -> bytes:
        """Return the document by the current schema.

        It may have been stored under an earlier schema or in another version.
        """
        doc: Document = msgspec.json.decode(document)
        kept = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        doc = {**kept, **{name: value for name, value in doc.items() if name not in kept}}
        prune(doc, self.node, None, [], root=True)
        # If newer defaults would make an object too large, omit them; otherwise one object would
        # make the whole list unreadable.
        with suppress(RequestTooLarge):
            self.default(doc)
        return msgspec.json.encode(doc)

    def columns(self) -> list[dict[str, Any]]:
        return self._columns.definitions

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return self._columns.cells(doc, now)


def _judged(doc: Document) -> Document:
    """Return the part of the document that the schema validates.

    Metadata is reduced to its names, because other rules apply to the rest.
    """
    metadata = doc["metadata"]
    names = {name: metadata[name] for name in ("name", "generateName") if name in metadata}
    return {**doc, "metadata": names}


def _count_objects(value: Any) -> int:
    """Return the number of JSON objects in a value, including itself."""
    if isinstance(value, dict):
        return 1 + sum(map(_count_objects, value.values()))
    return sum(map(_count_objects, value)) if isinstance(value, list) else 0


def _without_metadata(doc: Document) -> Document:
    return {name: value for name, value in doc.items() if name != "metadata"}


def _deprecation(kind: Kind, version: Mapping[str, Any]) -> Sequence[str]:
    """Return the warning about a deprecated version, if it is one."""
    if not version.get("deprecated"):
        return ()
    text = version.get("deprecationWarning")
    return (text or f"{kind.api_version} {kind.kind} is deprecated",)


def _finalizer_warnings(finalizers: Sequence[str], before: Sequence[str]) -> list[str]:
    """Return warnings about added finalizers without a path."""
    warnings = []
    for name in finalizers:
        if name in before or "/" in name or name in _STANDARD_FINALIZERS:
            continue
        path = " including a path (/)" if "." in name else ""
        warnings.append(
            f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} to '
            "avoid accidental conflicts with other finalizer writers"
        )
    return warnings
