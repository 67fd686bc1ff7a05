"""The OpenAPI v3 documents, one per group version, put together from the schema when asked for.

kubectl reads them to explain fields, to learn that the server validates fields, and to know
how lists merge when it computes a patch.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import msgspec

from onejob.api.kinds import KINDS, Kind, Subresource
from onejob.api.schema import Schema, load_definitions

_REFERENCE: Final = "#/components/schemas/"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_DELETE_OPTIONS: Final = _META + "DeleteOptions"
_STATUS: Final = _META + "Status"
_PATCH: Final = _META + "Patch"

_PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)

#: Beyond what the generated data says of these: how the wire writes them.
_SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    _PATCH: {
        "description": "A patch of the object, in the form that the content type names.",
        "type": "object",
    },
}

_OPTIONS: Final = {
    "dryRun": ("string", "`All` runs every step of the request but stores nothing."),
    "fieldManager": ("string", "Who makes the changes; owner of the changed fields."),
    "fieldValidation": (
        "string",
        "What to do with unknown and duplicate fields: Ignore drops them silently, Warn (the "
        "default) drops them with a warning, Strict refuses the request.",
    ),
    "force": ("boolean", "Whether an apply takes over fields that others own."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end."),
    "propagationPolicy": ("string", "What becomes of dependents: Orphan, Background, Foreground."),
    "labelSelector": ("string", "Only objects whose labels match."),
    "fieldSelector": ("string", "Only objects whose fields match."),
    "limit": ("integer", "At most so many objects; `continue` in the answer leads on."),
    "continue": ("string", "Where an earlier answer ended."),
    "resourceVersion": ("string", "How new the answer must be; for a watch, where to start."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant: Exact or NotOlderThan."),
    "allowWatchBookmarks": ("boolean", "Whether a watch may send BOOKMARK events."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with the objects that exist."),
    "timeoutSeconds": ("integer", "How long a watch may last."),
    "watch": ("boolean", "Answer with changes as they happen instead of a list."),
}
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_LIST: Final = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit",
    "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_DELETE: Final = ("dryRun", "gracePeriodSeconds", "propagationPolicy")

#: Verb -> (method, action, on a collection)
_OPERATIONS: Final = {
    "list": ("get", "list", True),
    "create": ("post", "post", True),
    "deletecollection": ("delete", "deletecollection", True),
    "get": ("get", "get", False),
    "update": ("put", "put", False),
    "patch": ("patch", "patch", False),
    "delete": ("delete", "delete", False),
}
_QUERIES: Final = {
    "list": _LIST,
    "create": _WRITE,
    "deletecollection": (*_LIST, *_DELETE),
    "get": (),
    "update": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": _DELETE,
}


class OpenApiDocuments:
    """Every document is made once; nothing is made before somebody asks."""

    def __init__(self, schema: Schema) -> None:
        self._release = schema.release
        self._made: dict[str, tuple[bytes, str]] = {}
        #: Groups share most definitions (Pods are everywhere), so each is encoded once.
        self._encoded: dict[str, msgspec.Raw] = {}

    def root(self) -> bytes:
        """`/openapi/v3`: where each group version's document is, with its hash."""
        paths = {}
        for path in self._kinds_by_path:
            made = self.document(path)
            assert made is not None, f"no document for {path}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={made[1]}"}
        return msgspec.json.encode({"paths": paths})

    def document(self, path: str) -> tuple[bytes, str] | None:
        """The document of a group version (`api/v1`, `apis/batch/v1`) and its hash."""
        if path not in self._kinds_by_path:
            return None
        if path not in self._made:
            body = msgspec.json.encode(self._group_document(path))
            self._made[path] = (body, hashlib.sha256(body).hexdigest().upper())
            if len(self._made) == len(self._kinds_by_path):
                # Nothing is left to be made of these.
                del self._sources
                self._encoded.clear()
        return self._made[path]

    @cached_property
    def _kinds_by_path(self) -> dict[str, list[Kind]]:
        found: dict[str, list[Kind]] = {}
        for kind in KINDS:
            found.setdefault(_group_path(kind), []).append(kind)
        return found

    @cached_property
    def _sources(self) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
        return load_definitions()

    def _group_document(self, path: str) -> dict[str, Any]:
        definitions, _ = self._sources
        names = _names_by_kind(definitions)
        paths: dict[str, Any] = {}
        for kind in self._kinds_by_path[path]:
            paths |= _paths_of(kind, names)
        needed = _closure((name for name in _names_in(paths) if name in definitions), definitions)
        schemas: dict[str, Any] = {name: self._schema(name) for name in sorted(needed)}
        schemas[_PATCH] = _SPECIAL[_PATCH]
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": self._release},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _schema(self, name: str) -> msgspec.Raw:
        if name not in self._encoded:
            definitions, documentation = self._sources
            described = _definition(definitions[name], documentation[name])
            described |= _SPECIAL.get(name, {})
            self._encoded[name] = msgspec.Raw(msgspec.json.encode(described))
        return self._encoded[name]


def _group_path(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _names_by_kind(definitions: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, definition in definitions.items()
        for gvk in definition.get("x-kubernetes-group-version-kind", ())
    }


def _paths_of(kind: Kind, names: dict[tuple[str, str, str], str]) -> dict[str, Any]:
    collection = f"/{_group_path(kind)}/{kind.plural}"
    paths: dict[str, Any] = {}
    if kind.namespaced:
        namespaced = f"/{_group_path(kind)}/namespaces/{{namespace}}/{kind.plural}"
        if "list" in kind.verbs:
            paths[collection] = _operations(kind, ("list",), names, collection=True)
        collection = namespaced
    on_collection = _operations(kind, kind.verbs, names, collection=True)
    on_object = _operations(kind, kind.verbs, names, collection=False)
    if on_collection:
        paths[collection] = on_collection | _path_parameters(kind, named=False)
    if on_object:
        paths[collection + "/{name}"] = on_object | _path_parameters(kind, named=True)
    for sub in kind.subresources:
        operations = _subresource_operations(kind, sub, names)
        if operations:
            path = f"{collection}/{{name}}/{sub.name}"
            paths[path] = operations | _path_parameters(kind, named=True)
    return paths


def _path_parameters(kind: Kind, *, named: bool) -> dict[str, Any]:
    names = (["name"] if named else []) + (["namespace"] if kind.namespaced else [])
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    return {"parameters": parameters} if parameters else {}


def _operations(
    kind: Kind, verbs: Iterable[str], names: dict[tuple[str, str, str], str], *, collection: bool
) -> dict[str, Any]:
    name = names[kind.group, kind.version, kind.kind]
    list_name = names.get((kind.group, kind.version, kind.kind + "List"), name)
    operations: dict[str, Any] = {}
    for verb in verbs:
        method, action, on_collection = _OPERATIONS.get(verb, ("", "", False))
        if method and on_collection == collection:
            answer = {"list": list_name, "delete": _STATUS, "deletecollection": _STATUS}
            operations[method] = _operation(
                verb, action, (kind.group, kind.version, kind.kind), name, answer.get(verb, name)
            )
    return operations


def _subresource_operations(
    kind: Kind, sub: Subresource, names: dict[tuple[str, str, str], str]
) -> dict[str, Any]:
    """Streams (log, exec, attach) have no documents to describe and are left out."""
    gvk = (sub.group, sub.version or "v1", sub.kind) if sub.kind else (
        kind.group, kind.version, kind.kind
    )  # fmt: skip
    if gvk not in names or sub.name == "log":
        return {}
    operations = {}
    for verb in sub.verbs:
        method, action, _ = _OPERATIONS[verb]
        operations[method] = _operation(verb, action, gvk, names[gvk], names[gvk])
    return operations


def _operation(
    verb: str, action: str, gvk: tuple[str, str, str], body: str, answer: str
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": {"$ref": _REFERENCE + answer}}},
            }
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": dict(
            zip(("group", "version", "kind"), gvk, strict=True)
        ),
    }
    queries = _QUERIES[verb]
    if queries:
        operation["parameters"] = [_query(name) for name in queries]
    if verb in ("create", "update"):
        operation["requestBody"] = _body(body, ("application/json",))
    elif verb == "patch":
        operation["requestBody"] = _body(_PATCH, _PATCH_TYPES)
    elif verb in ("delete", "deletecollection"):
        operation["requestBody"] = _body(_DELETE_OPTIONS, ("application/json",))
    return operation


def _body(name: str, content_types: tuple[str, ...]) -> dict[str, Any]:
    schema = {"schema": {"$ref": _REFERENCE + name}}
    return {"content": dict.fromkeys(content_types, schema)}


def _query(name: str) -> dict[str, Any]:
    type_, description = _OPTIONS[name]
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": type_, "uniqueItems": True},
    }


def _definition(definition: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    described = _described(definition, texts.get("", ""))
    if "properties" in definition:
        described["properties"] = {
            name: _described(field, texts.get(name, ""))
            for name, field in definition["properties"].items()
        }
    return described


def _described(schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    described: dict[str, Any] = {"description": description} if description else {}
    for key, value in schema.items():
        match key:
            case "$ref":
                # Beside a reference nothing else would count, so it is wrapped.
                described["allOf"] = [{"$ref": _REFERENCE + value}]
            case "items" | "additionalProperties":
                described[key] = _described(value)
            case "properties" | "x-onejob-alias-of":
                continue
            case _:
                described[key] = value
    return described


def _closure(roots: Iterable[str], definitions: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_names_in(definitions[name]))
    return found


def _names_in(value: Any) -> Iterator[str]:
    """Every definition that something refers to."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_REFERENCE)
        for item in value.values():
            yield from _names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names_in(item)
