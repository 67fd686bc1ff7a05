"""Strategy of CustomResourceDefinitions: defaults, status, validation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import BaseStrategy, keep_generation, keep_status
from onejob.api.kinds.printing import NAME, column, name_of
from onejob.api.strategy import Document
from onejob.planning.custom_ttl import CUSTOM_TTL_ANNOTATION, BadRule, read_rule
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
#: Finalizer that keeps a definition until its objects are deleted.
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"

_COLUMNS: Final = [NAME, column("Created At", "When the object was created.", type="date")]


class DefinitionStrategy(BaseStrategy):
    """Strategy of CustomResourceDefinitions."""

    unconditional_update = False
    any_finalizer = True

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)

    def default(self, doc: Document, old: Document | None = None) -> None:
        spec = doc.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = names.get("kind", "")
        if kind:
            if not names.get("singular"):
                names["singular"] = kind.lower()
            if not names.get("listKind"):
                names["listKind"] = f"{kind}List"
        if not spec.get("preserveUnknownFields"):
            spec.pop("preserveUnknownFields", None)
        conversion = spec.setdefault("conversion", {})
        conversion.setdefault("strategy", "None")
        service = _client_of(conversion).get("service")
        if service:
            service.setdefault("port", 443)

    def prepare_create(self, doc: Document) -> None:
        spec = doc.get("spec") or {}
        versions = spec.get("versions") or ()
        stored = [version["name"] for version in versions if _is_stored(version)][:1]
        doc["status"] = {
            "conditions": [],
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored,
        }
        metadata = doc["metadata"]
        metadata["generation"] = 1
        finalizers = metadata.setdefault("finalizers", [])
        if CLEANUP not in finalizers:
            finalizers.append(CLEANUP)

    def validate_create(self, doc: Document) -> list[FieldError]:
        from onejob.api.crd.definition_checks import check_definition

        return [*super().validate_create(doc), *check_definition(doc)]

    def warnings_on_create(self, doc: Document) -> list[str]:
        from onejob.api.crd.definition_warnings import schema_warnings

        return [*schema_warnings(doc), *_ttl_warnings(doc)]

    def warnings_on_update(self, new: Document, old: Document) -> list[str]:
        from onejob.api.crd.definition_warnings import schema_warnings

        return [*schema_warnings(new, old), *_ttl_warnings(new)]

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        keep_generation(new, old, changed=new.get("spec") != old.get("spec"))
        status = dict(new.get("status") or {})
        stored = list(status.get("storedVersions") or ())
        added = [
            version["name"]
            for version in (new.get("spec") or {}).get("versions") or ()
            if _is_stored(version) and version["name"] not in stored
        ]
        if added:
            new["status"] = {**status, "storedVersions": [*stored, *added]}

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        from onejob.api.crd.definition_checks import check_definition

        errors = super().validate_update(new, old)
        if new.get("spec") == old.get("spec"):
            return errors
        return [*errors, *check_definition(new, old)]

    def columns(self) -> list[dict[str, Any]]:
        return _COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return [name_of(doc), doc["metadata"].get("creationTimestamp", "")]


def _ttl_warnings(doc: Document) -> list[str]:
    """Return warnings about an invalid TTL annotation.

    It is not part of the API, so it cannot be rejected.
    """
    text = (doc["metadata"].get("annotations") or {}).get(CUSTOM_TTL_ANNOTATION)
    if text is None:
        return []
    try:
        read_rule(text)
    except BadRule as error:
        return [f"{error}; finished objects will not be deleted"]
    return []


def _is_stored(version: Mapping[str, Any]) -> bool:
    return bool(version.get("storage") and version.get("name"))


def _client_of(conversion: Mapping[str, Any]) -> Mapping[str, Any]:
    client: Mapping[str, Any] = (conversion.get("webhook") or {}).get("clientConfig") or {}
    return client
