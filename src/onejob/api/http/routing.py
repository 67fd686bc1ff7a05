"""Request routing: map URL paths to kinds, objects and verbs. Pure functions.

A path is split on slashes and looked up in tables. Regular expressions are avoided because they
would make each request more expensive.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, TypeAlias
from urllib.parse import unquote

from onejob.api.short_cache import short_cache
from onejob.wire.errors import MethodNotAllowed, NotFound
from onejob.wire.kinds import BY_RESOURCE, Kind, Subresource
from onejob.wire.registry import KindRegistry


class PageNotFound(Exception):
    """Unknown path; answered in plain text, as upstream does."""


class PageMethodNotAllowed(Exception):
    """Write to a page about the server itself; answered in plain text."""


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """Path of a collection, object or subresource."""

    is_public: ClassVar[bool] = False
    is_dashboard_api: ClassVar[bool] = False

    kind: Kind
    #: "" for cluster-scoped kinds and for lists over all namespaces.
    namespace: str = ""
    #: "" for a collection.
    name: str = ""
    subresource: str = ""
    #: Rest of the path of a proxy, as sent, with its leading slash; "" for none.
    tail: str = ""
    #: Whether the path is one of the deprecated ones below `/watch/`, which support only GET.
    watch: bool = False

    @property
    def all_namespaces(self) -> bool:
        """Whether the path selects a namespaced kind in all namespaces."""
        return self.kind.namespaced and not self.namespace


@dataclass(frozen=True, slots=True)
class GroupPath:
    """Path of a discovery document: /api, /apis, /apis/GROUP, /apis/GROUP/VERSION."""

    is_public: ClassVar[bool] = False
    is_dashboard_api: ClassVar[bool] = False

    #: "" for the core group; None for all groups, at the roots /api and /apis.
    group: str | None
    version: str = ""
    legacy_root: bool = False


@dataclass(frozen=True, slots=True)
class ServerPath:
    """Path of a page about the server itself. `page` is the first path segment."""

    page: Literal[
        "version",
        "healthz",
        "livez",
        "readyz",
        "metrics",
        "openapi",
        "openid",
        ".well-known",
        "ui",
    ]
    rest: tuple[str, ...] = ()

    @property
    def is_public(self) -> bool:
        """Whether the page is served to anonymous users."""
        return self.page in _PUBLIC_PAGES

    @property
    def is_dashboard_api(self) -> bool:
        """Whether the path is part of the dashboard's API, which reads objects and handles
        login."""
        return self.page == "ui" and self.rest[:1] == ("api",)


RequestPath: TypeAlias = ResourcePath | GroupPath | ServerPath

_SERVER_PAGES: Final = frozenset(
    ("version", "healthz", "livez", "readyz", "metrics", "openapi", "openid", ".well-known", "ui")
)
#: They reveal nothing about users, and are needed before a login.
_PUBLIC_PAGES: Final = frozenset(("version", "healthz", "livez", "readyz", "ui"))
_NAMESPACES: Final = BY_RESOURCE["namespaces"]

_COLLECTION_VERBS: Final = {
    "GET": "list",
    "HEAD": "list",
    "POST": "create",
    "DELETE": "deletecollection",
}
_OBJECT_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_SUBRESOURCE_VERBS: Final = {**_OBJECT_VERBS, "POST": "create"}


class Router:
    """Router for the kinds that one server serves."""

    def __init__(self, kinds: KindRegistry) -> None:
        self._kinds = kinds
        kinds.subscribe(lambda change: self._forget())
        self._forget()

    def _forget(self) -> None:
        """Clear the cache of resolved paths; called when the kinds change."""
        self.locate = short_cache(4096)(self._locate)

    def _locate(self, raw_path: str) -> RequestPath:
        """Return the parsed path. Raises PageNotFound, or NotFound within a known group."""
        raw_path, tail = _split_proxy(raw_path)
        segments = tuple(unquote(segment) for segment in raw_path.strip("/").split("/"))
        root, rest = segments[0], segments[1:]
        if root == "api":
            if tail is not None and rest:
                return _proxied(self._in_group("", rest), tail)
            return self._in_group("", rest) if rest else GroupPath(None, legacy_root=True)
        if root == "apis":
            if not rest:
                return GroupPath(None)
            if rest[0] not in self._kinds.groups or not rest[0]:
                raise PageNotFound(raw_path)
            return self._in_group(rest[0], rest[1:]) if rest[1:] else GroupPath(rest[0])
        if root in _SERVER_PAGES:
            return ServerPath(root, rest)  # type: ignore[arg-type]
        raise PageNotFound(raw_path)

    def _in_group(self, group: str, rest: tuple[str, ...]) -> RequestPath:
        """Return the target of a path below a group. Raises NotFound."""
        version, rest = rest[0], rest[1:]
        if (group, version) not in self._kinds.group_versions:
            raise _no_such_resource()
        if not rest:
            return GroupPath(group, version)
        if rest[0] == "watch":
            return _watch_path(self._resource_path(group, version, rest[1:]))
        return self._resource_path(group, version, rest)

    def _resource_path(self, group: str, version: str, rest: tuple[str, ...]) -> ResourcePath:
        """Return the target of a path below a group and version. Raises NotFound."""
        if not rest:
            raise _no_such_resource()
        if rest[0] == "namespaces" and not group and _is_about_namespaces(rest[1:]):
            return _target(_NAMESPACES, "", rest[1:])
        if rest[0] == "namespaces" and len(rest) > 2:
            kind = self._kinds.by_path.get((group, version, rest[2]))
            if kind is None or not kind.namespaced or not rest[1]:
                raise _no_such_resource()
            return _target(kind, rest[1], rest[3:])
        kind = self._kinds.by_path.get((group, version, rest[0]))
        if kind is None or (kind.namespaced and len(rest) > 1):
            raise _no_such_resource()
        return _target(kind, "", rest[1:])


def _split_proxy(raw_path: str) -> tuple[str, str | None]:
    """Return the path of a proxy and the rest, which is passed on as it is; None for other paths.

    A proxy is `/api/v1/namespaces/NAMESPACE/RESOURCE/NAME/proxy`.
    """
    if "/proxy" not in raw_path:
        return raw_path, None
    parts = raw_path.split("/", 8)
    if parts[:2] != ["", "api"] or parts[3:4] != ["namespaces"] or parts[7:8] != ["proxy"]:
        return raw_path, None
    return "/".join(parts[:8]), f"/{parts[8]}" if len(parts) > 8 else ""


def _proxied(path: RequestPath, tail: str) -> RequestPath:
    return replace(path, tail=tail) if isinstance(path, ResourcePath) else path


def verb_for(method: str, target: ResourcePath) -> str:
    """Return the verb of a request; `list` includes `watch`. Raises MethodNotAllowed."""
    if target.watch:
        verb = "watch" if method == "GET" else None
        allowed: tuple[str, ...] = target.kind.verbs
    elif target.subresource:
        verb = _SUBRESOURCE_VERBS.get(method)
        allowed = _subresource(target).verbs
    elif target.name:
        verb = _OBJECT_VERBS.get(method)
        allowed = target.kind.verbs
    else:
        verb = _COLLECTION_VERBS.get(method)
        # Only reads span all namespaces: request bodies do not name a namespace to create in.
        allowed = ("list",) if target.all_namespaces else target.kind.verbs
        if target.all_namespaces and "list" not in target.kind.verbs:
            allowed = ()
    if verb is None or verb not in allowed:
        raise MethodNotAllowed("the server does not allow this method on the requested resource")
    return verb


def _watch_path(target: ResourcePath) -> ResourcePath:
    """Return the path as a watch. Raises NotFound if the kind cannot be watched."""
    if target.subresource or "watch" not in target.kind.verbs:
        raise _no_such_resource()
    return replace(target, watch=True)


def _is_about_namespaces(rest: tuple[str, ...]) -> bool:
    """Return whether the path names a Namespace rather than an object in one; `rest` follows
    `namespaces`."""
    return len(rest) < 2 or _NAMESPACES.subresource(rest[1]) is not None


def _target(kind: Kind, namespace: str, rest: tuple[str, ...]) -> ResourcePath:
    """Return the target by the segments after the plural. Raises NotFound."""
    name, subresource = (*rest, "", "")[:2]
    if len(rest) > 2 or (rest and not name) or (len(rest) == 2 and not subresource):
        raise _no_such_resource()
    target = ResourcePath(kind, namespace, name, subresource)
    if subresource:
        _subresource(target)
    return target


def _subresource(target: ResourcePath) -> Subresource:
    """Return the subresource of a target. Raises NotFound."""
    found = target.kind.subresource(target.subresource)
    if found is None:
        raise _no_such_resource()
    return found


def _no_such_resource() -> NotFound:
    return NotFound("the server could not find the requested resource")
