"""OpenAPI v2 ("Swagger") document of all served kinds.

Requested by kubectl before 1.27 and by clients that generate themselves from it. It contains the
same operations and definitions as the v3 documents, in the older format.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.api.schema.added_kinds import added_definitions
from onejob.api.schema.describing import described, described_definition
from onejob.api.schema.gnostic import encode_document
from onejob.api.schema.openapi_paths import PATCH, REFERENCE, WATCH_EVENT, names_by_kind, paths_of
from onejob.api.schema.schema import load_definitions
from onejob.wire.kinds import WORKLOAD_KINDS, Kind

_REFERENCE: Final = "#/definitions/"
_METHODS: Final = ("get", "put", "post", "delete", "patch")
_MACHINERY: Final = "io.k8s.apimachinery.pkg."
#: Definitions of kinds that only servers with a feature gate serve.
_OF_WORKLOADS: Final = "io.k8s.api.scheduling.v1beta1."

#: Definitions that differ in v2 from the generated data, or that the data lacks.
_SPECIAL: Final[dict[str, dict[str, Any]]] = {
    _MACHINERY + "util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    _MACHINERY + "api.resource.Quantity": {"type": "string"},
    PATCH: {
        "description": "A patch of the object, in the form that the content type names.",
        "type": "object",
    },
    WATCH_EVENT: {
        "description": "A change of an object that is watched.",
        "type": "object",
        "required": ["type", "object"],
        "properties": {"object": {"type": "object"}, "type": {"type": "string"}},
    },
}


def version_2_document(
    release: str, kinds: Sequence[Kind], added: Mapping[str, dict[str, Any]], *, protobuf: bool
) -> tuple[bytes, str]:
    """Return the document as JSON or as gnostic's protobuf, and its hash.

    `added` is `Schema.added` at the time when `kinds` were served.
    """
    document = build_document(release, kinds, added)
    body = encode_document(document) if protobuf else msgspec.json.encode(document)
    return body, hashlib.sha256(body).hexdigest().upper()


def build_document(
    release: str, kinds: Sequence[Kind], added: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    definitions, documentation = load_definitions()
    if not set(WORKLOAD_KINDS) <= set(kinds):
        definitions = {
            name: definition
            for name, definition in definitions.items()
            if not name.startswith(_OF_WORKLOADS)
        }
    own = added_definitions(kinds, added, documentation)
    own_described = {name: _added_definition(definition) for name, definition in own.items()}
    names = names_by_kind(definitions | own)
    paths: dict[str, Any] = {}
    for kind in kinds:
        for path, item in paths_of(kind, names).items():
            paths[path] = _path_item(item)
    described = {
        name: described_definition(definition, documentation[name], _reference_to)
        for name, definition in definitions.items()
        if name not in _SPECIAL
    }
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": release},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted((described | _SPECIAL | own_described).items())),
        "securityDefinitions": {
            "BearerToken": {
                "description": "Bearer Token authentication",
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
            }
        },
        "security": [{"BearerToken": []}],
    }


def _path_item(item: dict[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {
        method: _operation(item[method]) for method in _METHODS if method in item
    }
    if "parameters" in item:
        converted["parameters"] = [_parameter(parameter) for parameter in item["parameters"]]
    return converted


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    """Convert an operation: v2 lists the body among the parameters, and content types apart from
    the schemas."""
    converted = dict(operation)
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    body = converted.pop("requestBody", None)
    if body is not None:
        converted["consumes"] = list(body["content"])
        [schema] = {entry["schema"]["$ref"] for entry in body["content"].values()}
        parameters.insert(
            0,
            {
                "name": "body",
                "in": "body",
                "required": True,
                "schema": described({"$ref": schema}, _reference_to),
            },
        )
    if parameters:
        converted["parameters"] = parameters
    converted["responses"] = {}
    for code, response in operation["responses"].items():
        [(content_type, content)] = response["content"].items()
        converted["produces"] = [content_type]
        converted["responses"][code] = {
            "description": response["description"],
            "schema": described(content["schema"], _reference_to),
        }
    return converted


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """Convert a parameter: v2 has the members of its schema directly in the parameter."""
    converted = {key: value for key, value in parameter.items() if key != "schema"}
    return {**converted, **parameter["schema"]}


def _reference_to(name: str) -> dict[str, Any]:
    return {"$ref": _REFERENCE + name.removeprefix(REFERENCE)}


def _in_version_2(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert a definition from v3.

    v3 wraps references and has a different prefix for them. Keywords that v2 lacks are dropped, as
    is everything that kubectl cannot read next to nullable values and unknown fields (upstream:
    ToStructuralOpenAPIV2).
    """
    converted: dict[str, Any] = {}
    for key, value in schema.items():
        match key, value:
            case "allOf", [{"$ref": str(reference)}]:
                converted |= _reference_to(reference)
            case "properties", _:
                converted[key] = {name: _in_version_2(below) for name, below in value.items()}
            case "items" | "additionalProperties", dict():
                converted[key] = _in_version_2(value)
            case "allOf" | "anyOf" | "oneOf" | "not" | "nullable", _:
                continue
            case _:
                converted[key] = value
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if schema.get("nullable") or open_ended:
        converted.pop("items", None)
        converted.pop("properties", None)
    untyped_array = schema.get("type") == "array" and "items" not in converted
    open_object = schema.get("type") == "object" and open_ended
    if schema.get("nullable") or untyped_array or open_object:
        # In v2, a null would have the wrong type.
        converted.pop("type", None)
    _relax_required(schema, converted)
    return converted


def _relax_required(schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
    """Remove nullable fields from `required`, because v2 cannot express null."""
    properties = converted.get("properties") or {}
    nullable = {name for name in properties if schema["properties"][name].get("nullable")}
    values = schema.get("additionalProperties")
    all_nullable = isinstance(values, Mapping) and values.get("nullable")
    required = [
        name for name in schema.get("required") or () if name not in nullable and not all_nullable
    ]
    if required:
        converted["required"] = required
    else:
        converted.pop("required", None)


def _added_definition(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("x-kubernetes-preserve-unknown-fields") is True:
        # kubectl would reject every field that is not listed, so list none.
        return {key: schema[key] for key in ("type", "x-kubernetes-group-version-kind")}
    return _in_version_2(schema)
