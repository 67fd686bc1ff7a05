"""OpenAPI v3 paths and operations of a kind.

The v2 document is converted from them.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from onejob.wire.kinds import Kind, Subresource

REFERENCE: Final = "#/components/schemas/"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
PATCH: Final = META + "Patch"
WATCH_EVENT: Final = META + "WatchEvent"
_DELETE_OPTIONS: Final = META + "DeleteOptions"
_STATUS: Final = META + "Status"

#: Definition names by (group, version, kind).
Names: TypeAlias = dict[tuple[str, str, str], str]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)

_OPTIONS: Final = {
    "dryRun": ("string", "`All` runs every step of the request but stores nothing."),
    "fieldManager": ("string", "Who makes the changes; owner of the changed fields."),
    "fieldValidation": (
        "string",
        "How to handle unknown and duplicate fields: Ignore drops them silently, Warn (the "
        "default) drops them with a warning, Strict rejects the request.",
    ),
    "force": ("boolean", "Whether an apply takes over fields that others own."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end."),
    "propagationPolicy": ("string", "How to handle dependents: Orphan, Background, Foreground."),
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
    "container": ("string", "Which container; may be left out if the Pod has only one."),
    "command": ("string", "The command and its arguments, one parameter each."),
    "stdin": ("boolean", "Whether the caller sends input."),
    "stdout": ("boolean", "Whether the caller wants the output."),
    "stderr": ("boolean", "Whether the caller wants the errors."),
    "tty": ("boolean", "Whether the session has a terminal."),
    "follow": ("boolean", "Follow the log."),
    "previous": ("boolean", "The log of the instance before the last restart."),
    "timestamps": ("boolean", "Begin each line with the time it was written."),
    "tailLines": ("integer", "At most so many lines from the end."),
    "limitBytes": ("integer", "At most so many bytes."),
    "sinceSeconds": ("integer", "Only lines of the last so many seconds."),
    "sinceTime": ("string", "Only lines since this time."),
    "ports": ("integer", "The port to forward to; clients of the WebSocket protocol name it here."),
}
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_LIST: Final = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit",
    "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_DELETE: Final = ("dryRun", "gracePeriodSeconds", "propagationPolicy")

#: (method, action, whether on a collection) by verb.
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
#: Prefixes of operation ids that differ from the verb.
_VERB_NAMES: Final = {
    "get": "read",
    "update": "replace",
    "deletecollection": "delete",
}
#: Query parameters of subresources that transfer bytes instead of documents.
_STREAMS: Final = {
    "log": (
        "container", "follow", "limitBytes", "previous", "sinceSeconds", "sinceTime",
        "tailLines", "timestamps",
    ),
    "exec": ("command", "container", "stderr", "stdin", "stdout", "tty"),
    "attach": ("container", "stderr", "stdin", "stdout", "tty"),
    "portforward": ("ports",),
}  # fmt: skip


def group_path(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def names_by_kind(definitions: dict[str, Any]) -> Names:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, definition in definitions.items()
        for gvk in definition.get("x-kubernetes-group-version-kind", ())
    }


def paths_of(kind: Kind, names: Names) -> dict[str, Any]:
    """Return the paths of a kind and its subresources."""
    root = f"/{group_path(kind)}"
    in_namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{root}{in_namespace}/{kind.plural}"
    paths: dict[str, Any] = {}
    if kind.namespaced and "list" in kind.verbs:
        everywhere = _operations(kind, ("list",), names, collection=True)
        everywhere["get"]["operationId"] = f"list{_title(kind)}{kind.kind}ForAllNamespaces"
        paths[f"{root}/{kind.plural}"] = everywhere
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
    if "watch" in kind.verbs:
        paths |= _deprecated_watches(kind, root, in_namespace)
    return paths


def _path_parameters(kind: Kind, *, named: bool) -> dict[str, Any]:
    names = (["name"] if named else []) + (["namespace"] if kind.namespaced else [])
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    return {"parameters": parameters} if parameters else {}


def _operations(
    kind: Kind, verbs: Iterable[str], names: Names, *, collection: bool
) -> dict[str, Any]:
    """Return the operations of a path by HTTP method."""
    gvk = (kind.group, kind.version, kind.kind)
    name = names[gvk]
    list_name = names.get((kind.group, kind.version, kind.list_kind), name)
    operations: dict[str, Any] = {}
    for verb in verbs:
        method, action, on_collection = _OPERATIONS.get(verb, ("", "", False))
        if method and on_collection == collection:
            answer = {"list": list_name, "delete": _STATUS, "deletecollection": _STATUS}
            operations[method] = {
                "operationId": _operation_id(verb, kind),
                **_operation(verb, action, gvk, name, answer.get(verb, name)),
            }
    return operations


def _subresource_operations(kind: Kind, sub: Subresource, names: Names) -> dict[str, Any]:
    gvk = (sub.group, sub.version or "v1", sub.kind) if sub.kind else (
        kind.group, kind.version, kind.kind
    )  # fmt: skip
    if sub.name in _STREAMS:
        return _stream_operations(kind, sub, gvk)
    if gvk not in names:
        return {}
    operations = {}
    for verb in sub.verbs:
        method, action, _ = _OPERATIONS[verb]
        operations[method] = {
            "operationId": _operation_id(verb, kind, sub.name),
            **_operation(verb, action, gvk, names[gvk], names[gvk]),
        }
    return operations


def _stream_operations(kind: Kind, sub: Subresource, gvk: tuple[str, str, str]) -> dict[str, Any]:
    """Return the operations of byte streams: the log as text, and sessions after an upgrade."""
    operations = {}
    for verb in sub.verbs:
        method, action, _ = _OPERATIONS[verb]
        operation_id = _operation_id(verb, kind, sub.name)
        if sub.name != "log":
            action = "connect"
            place = f"{_title(kind)}{method.capitalize()}Namespaced{kind.kind}"
            operation_id = f"connect{place}{sub.name.capitalize()}"
        operations[method] = {
            "operationId": operation_id,
            "parameters": [_query(name) for name in _STREAMS[sub.name]],
            "responses": _responses({"type": "string"}, _TEXT),
            **_action_extensions(action, gvk),
        }
    return operations


def _deprecated_watches(kind: Kind, root: str, in_namespace: str) -> dict[str, Any]:
    """Return the deprecated paths below `/watch/`, which `?watch=1` has replaced."""
    collection = f"{root}/watch{in_namespace}/{kind.plural}"
    namespaced = "Namespaced" if kind.namespaced else ""
    title = _title(kind)
    paths = {}
    if kind.namespaced:
        everywhere = f"watch{title}{kind.kind}ListForAllNamespaces"
        paths[f"{root}/watch/{kind.plural}"] = _watch(kind, everywhere, "watchlist")
    paths[collection] = _watch(
        kind, f"watch{title}{namespaced}{kind.kind}List", "watchlist"
    ) | _path_parameters(kind, named=False)
    paths[collection + "/{name}"] = _watch(
        kind, f"watch{title}{namespaced}{kind.kind}", "watch"
    ) | _path_parameters(kind, named=True)
    return paths


def _watch(kind: Kind, operation_id: str, action: str) -> dict[str, Any]:
    """Return the deprecated watch operation of a kind."""
    operation = {
        "operationId": operation_id,
        "description": "Deprecated: use the `watch` parameter of a list.",
        "parameters": [_query(name) for name in _LIST],
        "responses": _responses({"$ref": REFERENCE + WATCH_EVENT}, _JSON),
        **_action_extensions(action, (kind.group, kind.version, kind.kind)),
    }
    return {"get": operation}


def _title(kind: Kind) -> str:
    """Return group and version as they occur in operation ids: `BatchV1`."""
    group = kind.group.partition(".")[0] or "core"
    return f"{group.capitalize()}{kind.version.capitalize()}"


def _operation_id(verb: str, kind: Kind, subresource: str = "") -> str:
    scope = "Namespaced" if kind.namespaced else ""
    if verb == "deletecollection":
        scope = f"Collection{scope}"
    begins = _VERB_NAMES.get(verb, verb)
    return f"{begins}{_title(kind)}{scope}{kind.kind}{subresource.capitalize()}"


def _operation(
    verb: str, action: str, gvk: tuple[str, str, str], body: str, answer: str
) -> dict[str, Any]:
    """Return an operation."""
    operation: dict[str, Any] = {
        "responses": _responses({"$ref": REFERENCE + answer}, _JSON),
        **_action_extensions(action, gvk),
    }
    queries = _QUERIES[verb]
    if queries:
        operation["parameters"] = [_query(name) for name in queries]
    if verb in ("create", "update"):
        operation["requestBody"] = _body(body, (_JSON,))
    elif verb == "patch":
        operation["requestBody"] = _body(PATCH, _PATCH_TYPES)
    elif verb in ("delete", "deletecollection"):
        operation["requestBody"] = _body(_DELETE_OPTIONS, (_JSON,))
    return operation


def _action_extensions(action: str, gvk: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": dict(
            zip(("group", "version", "kind"), gvk, strict=True)
        ),
    }


def _responses(schema: dict[str, Any], content_type: str) -> dict[str, Any]:
    """Return the responses of an operation."""
    return {"200": {"description": "OK", "content": {content_type: {"schema": schema}}}}


def _body(name: str, content_types: tuple[str, ...]) -> dict[str, Any]:
    """Return the request body of an operation."""
    schema = {"schema": {"$ref": REFERENCE + name}}
    return {"content": dict.fromkeys(content_types, schema)}


def _query(name: str) -> dict[str, Any]:
    """Return the description of a query parameter."""
    type_, description = _OPTIONS[name]
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": type_, "uniqueItems": True},
    }
