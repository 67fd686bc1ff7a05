"""Schemas of kinds that are added while a server runs."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onejob.api.schema.openapi_paths import META, REFERENCE
from onejob.api.schema.schema import Schema
from onejob.api.schema.shapes import Mismatch, ObjectShape, Path, json_type
from onejob.wire.kinds import Kind

OBJECT_META: Final = META + "ObjectMeta"
LIST_META: Final = META + "ListMeta"
_COMMON: Final = frozenset(("apiVersion", "kind", "metadata"))
#: Kind whose documentation of the common fields is used for all added kinds.
_EXAMPLE: Final = "io.k8s.api.core.v1.Pod"
_CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)


class OpenObjectShape(ObjectShape):
    """Object of which only some fields are known; all others are kept unchanged."""

    def check(self, value: Any, path: Path, problems: list[str]) -> Any:
        if value.__class__ is not dict:
            raise Mismatch(json_type(value), self.go_name)
        known = {name: value[name] for name in self.fields if name in value}
        super().check(known, path, problems)
        for name in self.fields:
            if name in known:
                value[name] = known[name]
            else:
                value.pop(name, None)
        return value


def definition_name(kind: Kind) -> str:
    """Return the definition name, with the group reversed as upstream does:
    `io.x-k8s.jobset.v1alpha2.JobSet`."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def type_fields(schema: Schema) -> dict[str, Any]:
    """Return the shapes of apiVersion, kind and metadata, which all kinds share."""
    common = schema.kind("v1", "ConfigMap").fields
    return {name: common[name] for name in ("apiVersion", "kind", "metadata")}


def open_shape(kind: Kind, schema: Schema) -> ObjectShape:
    """Return the shape of a kind without a schema."""
    shape = OpenObjectShape(definition_name(kind))
    shape.define(type_fields(schema), {})
    return shape


def open_definition(kind: Kind) -> dict[str, Any]:
    """Return the schema of a kind that accepts any fields."""
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": REFERENCE + OBJECT_META}]},
        },
        "x-kubernetes-preserve-unknown-fields": True,
        **group_version_kind(kind, kind.kind),
    }


def added_definitions(
    kinds: Iterable[Kind],
    added: Mapping[str, dict[str, Any]],
    documentation: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, Any]]:
    """Return the definitions of added kinds and of their lists, by name.

    `added` is `Schema.added`. The common fields get the same documentation as in built-in kinds.
    """
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        name = definition_name(kind)
        if name in added:
            found[name] = _described(added[name], documentation[_EXAMPLE])
            found[f"{name}List"] = _described(
                list_definition(kind), documentation[f"{_EXAMPLE}List"]
            )
    return found


def _described(definition: dict[str, Any], documentation: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition with descriptions of the common fields."""
    properties = {
        name: {**property_, "description": documentation[name]} if name in _COMMON else property_
        for name, property_ in definition.get("properties", {}).items()
    }
    return {**definition, "properties": properties} if properties else definition


def list_definition(kind: Kind) -> dict[str, Any]:
    """Return the definition of an added kind's list."""
    return {
        "description": f"{kind.list_kind} is a list of {kind.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {
                "type": "array",
                "description": f"List of {kind.plural}. More info: {_CONVENTIONS}",
                "items": {"allOf": [{"$ref": REFERENCE + definition_name(kind)}]},
            },
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": REFERENCE + LIST_META}]},
        },
        **group_version_kind(kind, kind.list_kind),
    }


def group_version_kind(kind: Kind, name: str) -> dict[str, Any]:
    gvk = {"group": kind.group, "version": kind.version, "kind": name}
    return {"x-kubernetes-group-version-kind": [gvk]}
