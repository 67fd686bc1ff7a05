"""CEL types from an OpenAPI structural schema, and the escaping of property names."""

import re
from collections.abc import Mapping
from typing import Any

from onejob.cel.types import BOOL, DOUBLE, INT, STRING, Field, Type

#: Maximum request size in bytes, from which unbounded sizes are estimated.
MAX_REQUEST = 3 * 1024 * 1024

RESERVED = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for",
        "function", "if", "import", "let", "loop", "package", "namespace", "return", "var",
        "void", "while",
    }
)  # fmt: skip
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__|[-./]")
_ESCAPABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*\Z")

#: Minimum and maximum length in bytes of the JSON string of a format.
_TIMES = {
    "duration": ("duration", 3, 32),
    "date": ("timestamp", 12, 12),
    "date-time": ("timestamp", 21, 32),
}


def escape(name: str) -> str | None:
    """Return the property's name as a CEL identifier, or None if it cannot be escaped."""
    if name in RESERVED:
        return f"__{name}__"
    if not _ESCAPABLE.match(name):
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name)


def declare(
    schema: Mapping[str, Any],
    *,
    resource_root: bool = False,
    name: str = "selfType",
    metadata: Type | None = None,
) -> Type | None:
    """Return the type of values of this schema; None if expressions cannot access them.

    `resource_root` adds the fields of every object: apiVersion, kind, metadata.name and
    generateName. `metadata` is the type of metadata, if they have all of its fields. `name` is the
    name of the type; those of inner types begin with it.
    """
    return _declare(schema, resource_root or _is_embedded(schema), name, metadata)


def max_cardinality(declared: Type) -> int:
    """Return the maximum number of values of this type in one request."""
    return MAX_REQUEST // (declared.min_bytes + 1)


def _is_embedded(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _declare(
    schema: Mapping[str, Any], resource_root: bool, path: str, metadata: Type | None
) -> Type | None:
    if schema.get("x-kubernetes-int-or-string"):
        length = schema.get("maxLength")
        size = MAX_REQUEST - 2 if length is None else max(length, 0) * 4
        return Type("dyn", max_size=size, min_bytes=1)
    match schema.get("type"):
        case "array":
            return _array(schema, path, metadata)
        case "object":
            return _object(schema, resource_root, path, metadata)
        case "string":
            return _string(schema)
        case "boolean":
            return BOOL
        case "number":
            return DOUBLE
        case "integer":
            return INT
        case _:
            return None


def _array(schema: Mapping[str, Any], path: str, metadata: Type | None) -> Type | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    element = _declare(items, _is_embedded(items), f"{path}.@idx", metadata)
    if element is None:
        return None
    size = schema.get("maxItems")
    if size is None:
        size = (MAX_REQUEST - 2) // (element.min_bytes + 1)
    return Type(
        "list",
        (element,),
        max_size=max(size, 0),
        min_bytes=2,
        list_type=schema.get("x-kubernetes-list-type") or "",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
    )


def _object(
    schema: Mapping[str, Any], resource_root: bool, path: str, metadata: Type | None
) -> Type | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping) and not resource_root:
        value = _declare(additional, _is_embedded(additional), f"{path}.@elem", metadata)
        if value is None:
            return None
        size = schema.get("maxProperties")
        if size is None:
            size = (MAX_REQUEST - 2) // (value.min_bytes + 6)
        return Type("map", (STRING, value), max_size=max(size, 0), min_bytes=2)
    properties = dict(schema.get("properties") or {})
    if resource_root:
        _add_object_meta(properties)
    required = set(schema.get("required") or ())
    fields = {}
    min_bytes = 2
    for name, inner in properties.items():
        if resource_root and metadata is not None and name == "metadata":
            declared: Type | None = metadata
        else:
            declared = _declare(inner, _is_embedded(inner), f"{path}.{name}", metadata)
        if declared is None:
            continue
        escaped = escape(name)
        if escaped is not None:
            fields[escaped] = Field(name, declared)
        if name in required and inner.get("default") is None:
            min_bytes += len(name.encode()) + declared.min_bytes + 4
    return Type("object", name=path, fields=fields, min_bytes=min_bytes)


def _add_object_meta(properties: dict[str, Any]) -> None:
    text = {"type": "string"}
    known = properties.get("metadata") or {}
    names = {"name": text, "generateName": text}
    properties["kind"] = properties["apiVersion"] = text
    properties["metadata"] = {
        "type": "object",
        "properties": {**(known.get("properties") or {}), **names},
    }


def _string(schema: Mapping[str, Any]) -> Type:
    kind = schema.get("format")
    length = schema.get("maxLength")
    if kind in _TIMES:
        name, shortest, longest = _TIMES[kind]
        return Type(name, max_size=longest, min_bytes=shortest)
    if kind == "byte":
        size = MAX_REQUEST - 2 if length is None else max(length, 0)
        return Type("bytes", max_size=size, min_bytes=2)
    if length is not None:
        # A character takes up to four bytes.
        return Type("string", max_size=max(length, 0) * 4, min_bytes=2)
    choices = schema.get("enum")
    if choices:
        longest = max((len(each.encode()) for each in choices if isinstance(each, str)), default=0)
        return Type("string", max_size=longest, min_bytes=2)
    return Type("string", max_size=MAX_REQUEST - 2, min_bytes=2)
