"""HTTP requests for the operations of a `Client`. Pure functions: values in, values out."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from onejob.client.base import Bind, Create, Delete, Evict, Op, Patch, Replace, Selection
from onejob.objects.meta import Key
from onejob.wire.kinds import BY_RESOURCE

_AS_FIELD_MANAGER: Final = "?fieldManager=onejob"
_JSON: Final = "application/json"
_PATCH_TYPES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """HTTP request of one operation."""

    method: str
    #: Path and query, percent-encoded.
    target: str
    body: bytes = b""
    content_type: str = ""


def get_request(key: Key) -> HttpRequest:
    return HttpRequest("GET", _path(key.resource, key.namespace, key.name))


def list_request(what: Selection, limit: int, token: str) -> HttpRequest:
    return HttpRequest(
        "GET",
        _path(what.resource, what.namespace)
        + _query(
            labelSelector=what.labels,
            fieldSelector=what.fields,
            limit=str(limit) if limit else "",
            **{"continue": token},
        ),
    )


def watch_request(what: Selection, after: int, timeout_seconds: int) -> HttpRequest:
    return HttpRequest(
        "GET",
        _path(what.resource, what.namespace)
        + _query(
            watch="true",
            labelSelector=what.labels,
            fieldSelector=what.fields,
            resourceVersion=str(after),
            allowWatchBookmarks="true",
            timeoutSeconds=str(timeout_seconds),
        ),
    )


def write_request(op: Op) -> HttpRequest:
    match op:
        case Create(resource, namespace, document):
            target = _path(resource, namespace) + _AS_FIELD_MANAGER
            return HttpRequest("POST", target, document, _JSON)
        case Replace(key, document, subresource):
            target = _path(*_object_id(key), subresource) + _AS_FIELD_MANAGER
            return HttpRequest("PUT", target, document, _JSON)
        case Patch():
            target = _path(*_object_id(op.key), op.subresource) + _AS_FIELD_MANAGER
            return HttpRequest("PATCH", target, op.body, content_type_of(op))
        case Delete():
            return HttpRequest("DELETE", _path(*_object_id(op.key)), body_of(op), _JSON)
        case Bind():
            return HttpRequest("POST", _path(*_object_id(op.key), "binding"), body_of(op), _JSON)
        case Evict():
            return HttpRequest("POST", _path(*_object_id(op.key), "eviction"), body_of(op), _JSON)


def body_of(op: Op) -> bytes:
    """Return the request body of an operation."""
    match op:
        case Create() | Replace():
            return op.document
        case Patch():
            return op.body
        case Delete():
            return _delete_options(op)
        case Bind():
            return _binding(op)
        case Evict():
            return _eviction(op)


def content_type_of(op: Op) -> str:
    return _PATCH_TYPES[op.type] if isinstance(op, Patch) else _JSON


def _delete_options(op: Delete) -> bytes:
    """Return the encoded DeleteOptions."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if op.propagation:
        options["propagationPolicy"] = op.propagation
    if op.grace_seconds is not None:
        options["gracePeriodSeconds"] = op.grace_seconds
    preconditions = {}
    if op.uid:
        preconditions["uid"] = op.uid
    if op.resource_version:
        preconditions["resourceVersion"] = op.resource_version
    if preconditions:
        options["preconditions"] = preconditions
    return msgspec.json.encode(options)


def _binding(op: Bind) -> bytes:
    """Return the encoded Binding."""
    metadata = {"name": op.key.name, "namespace": op.key.namespace}
    if op.uid:
        metadata["uid"] = op.uid
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": op.node},
    }
    return msgspec.json.encode(binding)


def _eviction(op: Evict) -> bytes:
    """Return the encoded Eviction."""
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": op.key.name, "namespace": op.key.namespace},
    }
    if op.grace_seconds is not None:
        eviction["deleteOptions"] = {"gracePeriodSeconds": op.grace_seconds}
    return msgspec.json.encode(eviction)


def _object_id(key: Key) -> tuple[str, str, str]:
    return key.resource, key.namespace, key.name


def _path(resource: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """Return the path of an object, a collection or a subresource."""
    path = _collection(resource, namespace)
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


# Called for every request, with few distinct arguments.
@lru_cache(maxsize=1024)
def _collection(resource: str, namespace: str) -> str:
    """Return the path of a collection, from a cache."""
    kind = BY_RESOURCE[resource]
    path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if namespace and kind.namespaced:
        path += f"/namespaces/{quote(namespace, safe='')}"
    return f"{path}/{kind.plural}"


def _query(**parameters: str) -> str:
    """Return the non-empty parameters as a query, with its `?`; "" if there are none."""
    given = {name: value for name, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""
