"""JSON Schema of manifests, for editors: draft 7, which their YAML language servers support."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from onejob.api.schema.describing import described_definition
from onejob.api.schema.schema import load_definitions
from onejob.wire.kinds import Kind

_REFERENCE: Final = "#/definitions/"
#: Types whose JSON representation is not what their definition states.
_SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["integer", "string"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}


def json_schema(kinds: Sequence[Kind]) -> dict[str, Any]:
    """Return the schema of manifests of these kinds; unknown fields violate it."""
    definitions, texts = load_definitions()
    names = {
        kind: name
        for name, definition in definitions.items()
        for named in definition.get("x-kubernetes-group-version-kind", ())
        for kind in kinds
        if (named["group"], named["version"], named["kind"])
        == (kind.group, kind.version, kind.kind)
    }
    found: dict[str, Any] = {}
    for name in _closure(names.values(), definitions):
        described = described_definition(definitions[name], texts[name], _refer)
        found[name] = _SPECIAL.get(name) or _plain(described)
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": _title(kinds)}
    choice = [_of_kind(kind, names[kind]) for kind in kinds]
    named = {
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"enum": list(dict.fromkeys(kind.api_version for kind in kinds))},
            "kind": {"enum": list(dict.fromkeys(kind.kind for kind in kinds))},
        },
    }
    return {**head, **named, "allOf": choice, "definitions": found}


def _title(kinds: Sequence[Kind]) -> str:
    """Return the title of the schema."""
    return f"{kinds[0].kind} of onejob" if len(kinds) == 1 else "Manifests of onejob"


def _of_kind(kind: Kind, name: str) -> dict[str, Any]:
    """Return a condition instead of an alternative: errors then refer to fields, not to kinds."""
    named = {"apiVersion": {"const": kind.api_version}, "kind": {"const": kind.kind}}
    condition = {"required": ["apiVersion", "kind"], "properties": named}
    return {"if": condition, "then": _refer(name)}


def _refer(name: str) -> dict[str, Any]:
    """Return a reference to a definition."""
    # Members beside a `$ref` are ignored in draft 7.
    return {"allOf": [{"$ref": _REFERENCE + name}]}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove what is no JSON Schema, and refuse unknown fields."""
    result: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "properties":
                result[key] = {name: _plain(field) for name, field in value.items()}
                result["additionalProperties"] = False
            case "items" | "additionalProperties":
                result[key] = _plain(value)
            case "format" if value not in ("date-time", "byte"):
                continue
            case _:
                if not key.startswith("x-"):
                    result[key] = value
    return result


def _closure(roots: Iterable[str], definitions: dict[str, Any]) -> list[str]:
    """Return the names of the definitions that the roots refer to, directly or not, sorted."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_references(definitions[name]))
    return sorted(found)


def _references(value: Any) -> Iterator[str]:
    """Yield all references in a schema."""
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        for item in value.values():
            yield from _references(item)
