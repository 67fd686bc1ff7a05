"""Operations: the verb of a request and the permissions that it requires. Pure functions."""

from typing import Final

import msgspec
from msgspec import Struct

from onejob.api.access.authorization import Attributes
from onejob.api.decoding.query import Query, check_timeout, flag, parse_query, selected_name
from onejob.api.http.requests import Request
from onejob.api.http.routing import (
    GroupPath,
    PageMethodNotAllowed,
    RequestPath,
    ResourcePath,
    ServerPath,
    verb_for,
)
from onejob.api.sessions.upgrades import SESSIONS
from onejob.wire.errors import ApiError, BadRequest

_NO_UPGRADE: Final = "only exec, attach, portforward, proxy, log and watches can be upgraded"
#: Subresources that stay open for as long as the client reads.
_STREAMS: Final = frozenset(("log", "exec", "attach", "portforward", "proxy"))


class Operation(Struct, frozen=True):
    path: RequestPath
    #: RBAC verb of a resource request, otherwise the method in lower case.
    verb: str
    #: Attributes for each of which the user must be authorized.
    required: tuple[Attributes, ...] = ()

    @property
    def namespace(self) -> str:
        """Namespace of the resource; "" for none."""
        return self.path.namespace if isinstance(self.path, ResourcePath) else ""


def operation_of(request: Request, path: RequestPath, query: Query) -> Operation:
    """Return the operation that a request performs on a path.

    Raises PageMethodNotAllowed, MethodNotAllowed, or BadRequest for an invalid timeout or upgrade.
    """
    if request.upgrade:
        return _session(request, path, query)
    method = request.method
    if isinstance(path, ResourcePath):
        verb = verb_for(method, path)
        if verb == "list" and method == "GET" and flag(query, "watch"):
            verb = "watch"
        if query and verb != "watch" and path.subresource not in _STREAMS:
            check_timeout(query)
        wanted = _required_attributes(path, verb, query)
        is_session = path.subresource in SESSIONS
        return Operation(path, verb, _for_session(wanted) if is_session else (wanted,))
    if isinstance(path, GroupPath):
        check_timeout(query)
        return _path_operation(request, path)
    if path.page == "ui":
        # The dashboard checks and authorizes its requests itself.
        return Operation(path, method.lower())
    return _page_operation(request, path, query)


def attributes_of(request: Request, path: RequestPath) -> Attributes:
    """Return the attributes of a request for the audit log, even if it will be rejected."""
    method = request.method
    if not isinstance(path, ResourcePath):
        return Attributes(method.lower(), path=request.path)
    query: Query = {}
    try:
        verb = verb_for(method, path)
        query = parse_query(request.query_string)
        if verb == "list" and flag(query, "watch"):
            verb = "watch"
    except ApiError:
        verb = method.lower()
    return _required_attributes(path, verb, query)


def _page_operation(request: Request, path: ServerPath, query: Query) -> Operation:
    """Return the operation of a request to a page of the server."""
    if request.method not in ("GET", "HEAD"):
        raise PageMethodNotAllowed(request.method)
    check_timeout(query)
    if path.is_public:
        return Operation(path, request.method.lower())
    return _path_operation(request, path)


def _path_operation(request: Request, path: RequestPath) -> Operation:
    """Return the operation of a request that is authorized by its URL path."""
    verb = request.method.lower()
    return Operation(path, verb, (Attributes(verb, path=request.path),))


def _session(request: Request, path: RequestPath, query: Query) -> Operation:
    """Return the operation of a request for an upgrade."""
    if not isinstance(path, ResourcePath):
        raise BadRequest(_NO_UPGRADE)
    if path.subresource in SESSIONS:
        verb = "create" if request.method == "POST" else "get"
        return Operation(path, verb, _for_session(_required_attributes(path, verb, query)))
    streams = path.subresource in ("log", "proxy") or _is_watch(path, query)
    if request.upgrade == "websocket" and streams:
        verb = "get" if path.subresource else "watch"
        return Operation(path, verb, (_required_attributes(path, verb, query),))
    raise BadRequest(_NO_UPGRADE)


def _is_watch(path: ResourcePath, query: Query) -> bool:
    if path.watch:
        return True
    return not path.name and not path.subresource and flag(query, "watch")


def _for_session(wanted: Attributes) -> tuple[Attributes, ...]:
    """Return the attributes required for exec, attach and portforward.

    A WebSocket starts with a GET. As upstream since 1.35, sessions require `create`, so that
    read-only users cannot run commands.
    """
    if wanted.verb == "create":
        return (wanted,)
    return wanted, msgspec.structs.replace(wanted, verb="create")


def _required_attributes(path: ResourcePath, verb: str, query: Query) -> Attributes:
    """Return the attributes to authorize for a request to a resource."""
    kind = path.kind
    name = path.name
    if not name and "fieldSelector" in query and verb in ("list", "watch"):
        name = selected_name(query)
    return Attributes(
        verb, kind.group, kind.version, kind.plural, path.subresource, path.namespace, name
    )
