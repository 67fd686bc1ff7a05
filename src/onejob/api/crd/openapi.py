"""OpenAPI definition of a custom resource: its schema plus the common object fields."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.api.crd.structural import EMBEDDED, INT_OR_STRING
from onejob.api.schema.added_kinds import OBJECT_META, group_version_kind
from onejob.api.schema.openapi_paths import REFERENCE
from onejob.wire.kinds import Kind

_CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
_TEXT: Final = {"type": "string"}
_METADATA: Final = {"allOf": [{"$ref": REFERENCE + OBJECT_META}]}
#: The same fields in embedded objects, with upstream's different descriptions.
_EMBEDDED: Final = {
    "apiVersion": {
        "type": "string",
        "description": "apiVersion defines the versioned schema of this representation of an "
        f"object. More info: {_CONVENTIONS}#resources",
    },
    "kind": {
        "type": "string",
        "description": "kind is a string value representing the type of this object. In "
        f"CamelCase. More info: {_CONVENTIONS}#types-kinds",
    },
    "metadata": {
        "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
        **_METADATA,
    },
}


def open_api_definition(kind: Kind, version: Mapping[str, Any]) -> dict[str, Any]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    definition = _published_schema(schema)
    properties = {
        **definition.get("properties", {}),
        # Descriptions are added on publication.
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": _METADATA,
    }
    return {
        **definition,
        "type": "object",
        "properties": dict(sorted(properties.items())),
        **group_version_kind(kind, kind.kind),
    }


def _published_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as published in OpenAPI."""
    shown: dict[str, Any] = {}
    for field, value in schema.items():
        match field:
            case "properties":
                shown[field] = {name: _published_schema(below) for name, below in value.items()}
            case "items" | "additionalProperties" if isinstance(value, Mapping):
                shown[field] = _published_schema(value)
            case _:
                shown[field] = value
    if schema.get(INT_OR_STRING):
        shown.pop("type", None)
        shown.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if schema.get(EMBEDDED):
        shown["properties"] = {**shown.get("properties", {}), **_EMBEDDED}
        given = shown.get("required", [])
        shown["required"] = given + [name for name in ("kind", "apiVersion") if name not in given]
    return shown
