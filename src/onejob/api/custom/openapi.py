"""What OpenAPI says about a custom resource: its schema, and what all objects have."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.api.custom.structural import EMBEDDED, INT_OR_STRING
from onejob.api.schema.added_kinds import OBJECT_META, group_version_kind
from onejob.api.schema.openapi_paths import REFERENCE
from onejob.wire.kinds import Kind

_API_VERSION: Final = {
    "type": "string",
    "description": "The version of the schema that this object is written in.",
}
_KIND: Final = {"type": "string", "description": "The kind of the object."}
_METADATA: Final = {
    "description": "What all objects have: names, labels, owners.",
    "allOf": [{"$ref": REFERENCE + OBJECT_META}],
}


def open_api_definition(kind: Kind, version: Mapping[str, Any]) -> dict[str, Any]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    definition = _shown(schema)
    properties = {
        **definition.get("properties", {}),
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": _METADATA,
    }
    return {
        **definition,
        "type": "object",
        "properties": dict(sorted(properties.items())),
        **group_version_kind(kind, kind.kind),
    }


def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field, value in schema.items():
        match field:
            case "properties":
                shown[field] = {name: _shown(below) for name, below in value.items()}
            case "items" | "additionalProperties" if isinstance(value, Mapping):
                shown[field] = _shown(value)
            case _:
                shown[field] = value
    if schema.get(INT_OR_STRING):
        shown.pop("type", None)
        shown.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if schema.get(EMBEDDED):
        properties = {
            "apiVersion": _API_VERSION, "kind": _KIND, "metadata": _METADATA,
            **shown.get("properties", {}),
        }  # fmt: skip
        shown["properties"] = {**properties, "metadata": _METADATA}
    return shown
