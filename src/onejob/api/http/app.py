"""ASGI application of the API, without a framework.

Request pipeline: route, authenticate, authorize, call the endpoint, send the response.

Errors:
    Every failure is a `Status` document. Unexpected exceptions are logged and answered with 500.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onejob import tracing
from onejob.api.access.authentication import (
    ANONYMOUS,
    Authenticator,
    Credentials,
    Impersonation,
    fairness_principal,
    identify,
    read_bearer_token,
    read_impersonation,
)
from onejob.api.access.authorization import (
    Attributes,
    Authorizer,
    needed_to_impersonate,
    require,
)
from onejob.api.access.service_accounts.accounts import ServiceAccounts
from onejob.api.decoding.query import Query, check_timeout, flag, parse_query, selected_name
from onejob.api.http.dashboard import Dashboard
from onejob.api.http.delivery import Delivery
from onejob.api.http.endpoints import Endpoints
from onejob.api.http.fairness import FairQueue
from onejob.api.http.long_running import LongRunningRequests, Recheck
from onejob.api.http.requests import ClientGone, Receive, Send, UserRequest
from onejob.api.http.responses import (
    Response,
    error_response,
    json_response,
    text_response,
)
from onejob.api.http.routing import (
    GroupPath,
    PageNotFound,
    RequestPath,
    ResourcePath,
    Router,
    ServerPath,
    verb_for,
)
from onejob.api.http.server_pages import (
    Check,
    DiscoveryPages,
    OpenApi,
    health_response,
    issuer_response,
    openapi_response,
    version_document,
)
from onejob.api.request_ids import RequestIds
from onejob.api.service import Service
from onejob.api.sessions.pod_streams import ExecSource, LogSource
from onejob.api.sessions.port_forwarding import PortSource
from onejob.api.sessions.upgrades import (
    SESSIONS,
    Session,
    Upgrades,
    log_protocol,
    log_stream,
    watch_protocol,
    watch_stream,
)
from onejob.api.unreadable import storage_read_error
from onejob.api.usage import UsageSource
from onejob.api.yielding import REQUESTER
from onejob.metrics import Metrics
from onejob.store.base import DamagedDocument
from onejob.tracing import Span
from onejob.wire.errors import ApiError, BadRequest, Forbidden, InternalError, Unauthorized
from onejob.wire.requests import User

if TYPE_CHECKING:
    from onejob.api.audit.recorder import AuditedRequest, Auditor

Scope: TypeAlias = MutableMapping[str, Any]

log = logging.getLogger(__name__)

_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

#: WebSocket close code when the user's access is revoked (RFC 6455, 7.4.1).
_POLICY_VIOLATION: Final = 1008
_LONGEST_LOGGED: Final = 500
_NO_UPGRADE: Final = "only exec, attach, portforward, log and watches can be upgraded"
_LOGGED: Final = "an error on the server was logged"
_SINGLE_HEADERS: Final = frozenset(
    (
        *(b"authorization", b"host", b"content-type", b"origin", b"sec-fetch-site"),
        *(b"impersonate-user", b"impersonate-uid", b"x-onejob-session"),
    )
)
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

#: Subresources that stay open for as long as the client reads.
_STREAMS: Final = frozenset(("log", "exec", "attach", "portforward"))
#: Public pages: they reveal nothing about users, and are needed before a login.
_PUBLIC_PAGES: Final = frozenset(("version", "healthz", "livez", "readyz", "ui"))


class ApiApp:
    """HTTP frontend of a `Service`. `close_streams` ends all watches and followed logs."""

    def __init__(
        self,
        service: Service,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        openapi: OpenApi,
        release: str,
        rng: Random,
        metrics: Metrics,
        checks: Mapping[str, Check] | None = None,
        logs: LogSource | None = None,
        sessions: ExecSource | None = None,
        usage: UsageSource | None = None,
        ports: PortSource | None = None,
        accounts: ServiceAccounts | None = None,
        dashboard: Dashboard | None = None,
        auditor: "Auditor | None" = None,
    ) -> None:
        self._authenticator = authenticator
        self._dashboard = dashboard
        self._authorizer = authorizer
        self._openapi = openapi
        self._version = version_document(release)
        self._metrics = metrics
        self._clock = service.clock
        self._checks = {"ping": lambda: "", **(checks or {})}
        self._accounts = accounts
        self._auditor = auditor
        self._endpoints = Endpoints(
            service,
            authorizer=authorizer,
            authenticator=authenticator,
            rng=rng,
            logs=logs,
            usage=usage,
            token_requests=accounts.requests if accounts is not None else None,
        )
        self._router = Router(service.kinds)
        self._discovery = DiscoveryPages(service.kinds)
        self._service = service
        self._upgrades = Upgrades(service, sessions, ports)
        self._delivery = Delivery()
        self._long_running = LongRunningRequests()
        self._ids = RequestIds(rng)
        self._tracer = tracing.current()
        self._logs_requests = log.isEnabledFor(logging.DEBUG)
        self.seats = FairQueue(service.clock.monotonic)
        metrics.requests_waited.read(lambda: self.seats.waited)
        metrics.requests_refused.read(lambda: self.seats.refused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        started = _Started(self._clock.monotonic(), self._ids.of(headers))
        if self._tracer is not None:
            started.span = self._tracer.request(headers.get(b"traceparent", b"").decode("latin-1"))
        if self._auditor is not None:
            started.audited = self._auditor.begin(scope, headers, started.request_id)
            receive = _audited_body(started.audited, receive)
        try:
            await self._serve(scope, headers, receive, send, started)
        finally:
            if started.seat:
                self._give_up_seat(started)
            if started.span is not None:
                _end_span(started.span, started, scope)

    async def _serve(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        started: "_Started",
    ) -> None:
        try:
            answer = await self._answer(scope, headers, receive, started)
        except ClientGone:
            return
        except asyncio.CancelledError:
            # Requests are cancelled only at shutdown, after their connections were closed.
            if self._delivery.closed:
                return
            raise
        started.code = answer.code
        verb, group, version, resource, subresource = started.labels(scope["method"])
        self._metrics.requests.inc(
            verb=verb,
            group=group,
            version=version,
            resource=resource,
            subresource=subresource,
            code=str(answer.code),
        )
        if answer.code >= 500 and not started.logged:
            _log_own_error(scope, answer, started.request_id)
        elif self._logs_requests:
            took = self._clock.monotonic() - started.at
            _log_request(scope, answer, started.request_id, took)
        if started.audited is not None:
            _record_response(started.audited, answer)
        if started.seat and (answer.endless or isinstance(answer.body, bytes)):
            # The work is done; a slow reader must not occupy the seat. Long lists keep theirs,
            # because they are rendered while they are sent.
            self._give_up_seat(started)
        if not answer.endless:
            await self._delivery.deliver(
                answer, headers, scope["method"], receive, send, started.request_id
            )
            took = self._clock.monotonic() - started.at
            self._metrics.request_duration.observe(
                took,
                verb=verb,
                group=group,
                version=version,
                resource=resource,
                subresource=subresource,
            )
            return
        open_streams = self._metrics.open_streams.series(verb=verb, resource=resource)
        open_streams.value += 1
        try:
            with self._long_running.recheck(lambda: self._recheck(scope, headers, started)) as end:
                await self._delivery.deliver(
                    answer, headers, scope["method"], receive, send, started.request_id, end
                )
        finally:
            open_streams.value -= 1
            if started.audited is not None:
                started.audited.complete(answer.code, None, b"")

    def _give_up_seat(self, started: "_Started") -> None:
        self.seats.leave(started.seat)
        started.seat = ""

    def close_streams(self) -> None:
        """End all endless streams, including streams that start later."""
        self._delivery.close_streams()

    # --- one request ----------------------------------------------------------------------

    async def _answer(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        started: "_Started",
    ) -> Response:
        method: str = scope["method"]
        try:
            path = self._router.locate(scope["raw_path"].decode("ascii", "replace"))
            user = self._identify(scope, headers, path, started.audited)
            if user is not ANONYMOUS and (note_user := scope.get("user_known")) is not None:
                note_user()
            if b"sec-fetch-site" in headers:
                _require_same_site(method, headers)
            if not _is_public(path) or (_reads_for_a_page(path) and user is not ANONYMOUS):
                holder = fairness_principal(user.name)
                if not self.seats.enter_at_once(holder):
                    await self.seats.enter(holder)
                started.seat = holder
                REQUESTER.set(holder)
            query = parse_query(scope["query_string"])
            request = UserRequest(method, query, headers, user, receive)
            match path:
                case ResourcePath():
                    return await self._resource(request, path, started)
                case GroupPath():
                    check_timeout(query)
                    self._authorize_path(user, scope, method)
                    address = headers.get(b"host", b"").decode("latin-1")
                    return self._discovery.answer(path, request, address)
                case ServerPath(page="ui") if self._dashboard is not None:
                    credentials = self._credentials(scope, headers)
                    request = msgspec.structs.replace(request, audit_as=started.stands_for)
                    return await self._dashboard.answer(request, path.rest, credentials)
                case ServerPath():
                    return await self._page(request, path, scope)
        except PageNotFound:
            return text_response("404 page not found\n", 404)
        except ApiError as error:
            return error_response(error)
        except DamagedDocument as error:
            return error_response(storage_read_error(error, self._service.kinds))
        except ClientGone:
            raise
        except Exception:
            request_id = started.request_id.decode()
            started.logged = True
            log.exception(
                "request %s: %s %s failed",
                *(request_id, method, _shown_path(scope)),
                extra={"request": request_id},
            )
            return error_response(InternalError(f"{_LOGGED}: request {request_id}"))

    async def _resource(
        self, request: UserRequest, target: ResourcePath, started: "_Started"
    ) -> Response:
        verb = verb_for(request.method, target)
        if verb == "list" and request.method == "GET" and flag(request.query, "watch"):
            verb = "watch"
        if request.query and verb != "watch" and target.subresource not in _STREAMS:
            check_timeout(request.query)
        started.verb, started.target = verb, target
        started.required = _required(target, verb, request.query)
        self._authorize(request.user, started.required)
        return await self._endpoints.answer(request, target, verb)

    async def _page(self, request: UserRequest, path: ServerPath, scope: Scope) -> Response:
        if request.method not in ("GET", "HEAD"):
            return text_response("405 method not allowed\n", 405)
        check_timeout(request.query)
        if path.page not in _PUBLIC_PAGES:
            self._authorize_path(request.user, scope, request.method)
        match path.page:
            case "version" if not path.rest:
                return json_response(self._version)
            case "healthz" | "livez" | "readyz" if len(path.rest) <= 1:
                return health_response(path.page, "".join(path.rest), self._checks, request)
            case "metrics" if not path.rest:
                return Response(200, self._metrics.exposition().encode(), _PROMETHEUS)
            case "openapi":
                return await openapi_response(path.rest, request, self._openapi)
            case "openid" | ".well-known" if self._accounts is not None:
                return issuer_response((path.page, *path.rest), self._accounts)
            case _:
                raise PageNotFound(path.page)

    def _identify(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        path: RequestPath,
        audited: "AuditedRequest | None",
    ) -> User:
        # Only the dashboard knows which objects it reads, so it completes the audit record later.
        deferred = _reads_for_a_page(path)
        try:
            if len(headers) < len(scope["headers"]):
                _require_single(scope["headers"])
            user = identify(self._authenticator, self._credentials(scope, headers))
            if user is ANONYMOUS and not _is_public(path):
                raise Unauthorized("Unauthorized")
            other = read_impersonation(scope["headers"])
        except ApiError:
            if audited is not None:
                audited.identified(None, None, _attributes(scope, path), deferred=deferred)
            raise
        if audited is not None:
            acts_as = None if other is None else other.as_user()
            audited.identified(user, acts_as, _attributes(scope, path), deferred=deferred)
        return user if other is None else self._impersonated(user, other)

    def _credentials(self, scope: Scope, headers: dict[bytes, bytes]) -> Credentials:
        if self._dashboard is not None:
            session = self._dashboard.session(headers)
            if session is not None:
                return session
        state = scope.get("state", {})
        return Credentials(
            read_bearer_token(headers.get(b"authorization", b"")),
            state.get("peer_subject", ()),
            state.get("peer_end", 0.0),
        )

    def _impersonated(self, user: User, other: Impersonation) -> User:
        """Return the impersonated user.

        Raises Forbidden unless `user` may impersonate the name, the uid and each group.
        """
        for wanted in needed_to_impersonate(other):
            require(self._authorizer, user, wanted)
        return other.as_user()

    def _authorize(self, user: User, required: Iterable[Attributes]) -> None:
        for attributes in required:
            require(self._authorizer, user, attributes)

    def _recheck(self, scope: Scope, headers: dict[bytes, bytes], started: "_Started") -> None:
        """Raise the error with which an open stream would be rejected if it started now."""
        path = self._router.locate(scope["raw_path"].decode("ascii", "replace"))
        user = self._identify(scope, headers, path, None)
        self._authorize(user, started.required)

    def _authorize_path(self, user: User, scope: Scope, method: str) -> None:
        require(self._authorizer, user, Attributes(method.lower(), path=scope["path"]))

    # --- sessions -------------------------------------------------------------------------

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        audited = None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = self._ids.of(headers)
        if self._auditor is not None:
            audited = self._auditor.begin(scope, headers, request_id)
        try:
            session, labels, recheck = await self._session(scope, headers, receive, audited)
        except PageNotFound:
            refusal = text_response("404 page not found\n", 404)
        except ApiError as error:
            refusal = error_response(error)
        except Exception:
            shown = request_id.decode()
            log.exception(
                "request %s: a session on %s failed",
                *(shown, _shown_path(scope)),
                extra={"request": shown},
            )
            refusal = error_response(InternalError(f"{_LOGGED}: request {shown}"))
        else:
            await self._run_session(session, labels, recheck, receive, send, audited)
            return
        if audited is not None:
            _record_response(audited, refusal)
        await _refuse_upgrade(send, refusal, request_id)

    async def _run_session(
        self,
        session: Session,
        labels: tuple[str, str],
        recheck: Recheck,
        receive: Receive,
        send: Send,
        audited: "AuditedRequest | None",
    ) -> None:
        if audited is not None:
            audited.started(101)
        try:
            await send({"type": "websocket.accept", "subprotocol": session.protocol or None})
        except BaseException:
            if session.abandon is not None:
                await session.abandon()
            raise
        verb, resource = labels
        open_streams = self._metrics.open_streams.series(verb=verb, resource=resource)
        open_streams.value += 1
        try:
            with self._long_running.recheck(recheck) as revoked:
                await _run_until(revoked, session, receive, send)
        finally:
            open_streams.value -= 1
            if audited is not None:
                audited.complete(101, None, b"")

    async def _session(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        audited: "AuditedRequest | None",
    ) -> tuple[Session, tuple[str, str], Recheck]:
        """Return the session, its verb and resource for metrics, and its recurring access check.

        Raises the errors with which a plain request is answered.
        """
        path = self._router.locate(scope["raw_path"].decode("ascii", "replace"))
        user = self._identify(scope, headers, path, audited)
        _require_same_origin(headers)
        query = parse_query(scope["query_string"])
        if not isinstance(path, ResourcePath):
            raise BadRequest(_NO_UPGRADE)
        if path.subresource in SESSIONS:
            verb = "create" if scope["method"] == "POST" else "get"
        elif scope["upgrade"] == b"websocket" and (
            path.subresource == "log" or _is_watch(path, query)
        ):
            verb = "get" if path.subresource else "watch"
        else:
            raise BadRequest(_NO_UPGRADE)
        required = _required(path, verb, query)
        self._authorize(user, required)

        def recheck() -> None:
            self._authorize(self._identify(scope, headers, path, None), required)

        request = UserRequest("GET", query, headers, user, receive)
        holder = fairness_principal(user.name)
        await self.seats.enter(holder)
        try:
            session = await self._opened(request, path, verb, scope["subprotocols"])
        finally:
            self.seats.leave(holder)
        return session, ("WATCH" if verb == "watch" else "CONNECT", path.kind.plural), recheck

    async def _opened(
        self, request: UserRequest, path: ResourcePath, verb: str, offered: Sequence[str]
    ) -> Session:
        if verb == "watch":
            protocol = watch_protocol(offered)
            return watch_stream(await self._endpoints.open_watch(request, path), protocol)
        if path.subresource == "log":
            protocol = log_protocol(offered)
            return log_stream(await self._endpoints.answer(request, path, "get"), protocol)
        return await self._upgrades.open(path, request.query, offered)


class _Started:
    """Progress of one request; supplies the labels of metrics, logs and traces."""

    __slots__ = (
        *("at", "audited", "code", "logged", "request_id", "required", "seat", "span"),
        *("target", "verb"),
    )

    def __init__(self, at: float, request_id: bytes) -> None:
        self.at = at
        self.request_id = request_id
        #: Status code of the response; 0 before it is known.
        self.code = 0
        #: Set only if requests are traced.
        self.span: Span | None = None
        #: Whether the failure has already been logged.
        self.logged = False
        self.verb = ""
        self.target: ResourcePath | None = None
        #: Attributes for which the user was authorized.
        self.required: tuple[Attributes, ...] = ()
        #: Audit record; None if there is no audit log.
        self.audited: AuditedRequest | None = None
        #: Holder of the occupied seat (see `fairness`); "" for none.
        self.seat = ""

    def stands_for(self, attributes: Attributes) -> None:
        """Record an API request that this dashboard request performs on the user's behalf."""
        self.required = (*self.required, attributes)
        if self.audited is not None:
            self.audited.stands_for(attributes)

    def labels(self, method: str) -> tuple[str, str, str, str, str]:
        """Return verb, group, version, resource and subresource."""
        if self.target is None:
            return method if method in _METHODS else "OTHER", "", "", "", ""
        kind = self.target.kind
        return self.verb.upper(), kind.group, kind.version, kind.plural, self.target.subresource


def _is_public(path: RequestPath) -> bool:
    return isinstance(path, ServerPath) and path.page in _PUBLIC_PAGES


def _reads_for_a_page(path: RequestPath) -> bool:
    """Return whether the path is part of the dashboard's API, which reads objects and handles
    login."""
    return isinstance(path, ServerPath) and (path.page, *path.rest[:1]) == ("ui", "api")


def _is_watch(path: ResourcePath, query: Query) -> bool:
    if path.watch:
        return True
    return not path.name and not path.subresource and flag(query, "watch")


def _wanted(target: ResourcePath, verb: str, query: Query) -> Attributes:
    kind = target.kind
    name = target.name
    if not name and "fieldSelector" in query and verb in ("list", "watch"):
        name = selected_name(query)
    return Attributes(
        verb,
        kind.group,
        kind.version,
        kind.plural,
        target.subresource,
        target.namespace,
        name,
    )


def _required(target: ResourcePath, verb: str, query: Query) -> tuple[Attributes, ...]:
    wanted = _wanted(target, verb, query)
    if target.subresource in SESSIONS and verb != "create":
        # A WebSocket starts with a GET. As upstream since 1.35, sessions require `create`, so that
        # read-only users cannot run commands.
        return wanted, _wanted(target, "create", query)
    return (wanted,)


def _attributes(scope: Scope, path: RequestPath) -> Attributes:
    """Return the attributes of a request for the audit log, even if it will be rejected."""
    method: str = scope.get("method", "GET")
    if not isinstance(path, ResourcePath):
        return Attributes(method.lower(), path=scope["path"])
    query: Query = {}
    try:
        verb = verb_for(method, path)
        query = parse_query(scope["query_string"])
        if verb == "list" and flag(query, "watch"):
            verb = "watch"
    except ApiError:
        verb = method.lower()
    return _wanted(path, verb, query)


def _audited_body(audited: "AuditedRequest", receive: Receive) -> Receive:
    async def received() -> Mapping[str, Any]:
        message = await receive()
        if audited.wants_body and message["type"] == "http.request":
            audited.body(message.get("body", b""))
        return message

    return received


def _record_response(audited: "AuditedRequest", answer: Response) -> None:
    """Record the response in the audit log, before it is sent."""
    if answer.endless:
        audited.started(answer.code)
    else:
        body = answer.body if isinstance(answer.body, bytes) else None
        audited.complete(answer.code, body, answer.content_type)


def _end_span(span: Span, started: _Started, scope: Scope) -> None:
    verb, *_, resource, subresource = started.labels(scope["method"])
    what = "/".join(part for part in (resource, subresource) if part)
    attributes: dict[str, str | int] = {
        "http.request.method": scope["method"],
        "url.path": _shown_path(scope),
        "http.response.status_code": started.code,
        "onejob.request_id": started.request_id.decode(),
    }
    if started.target is not None and started.target.namespace:
        attributes["k8s.namespace.name"] = started.target.namespace
    failure = f"answered with {started.code}" if started.code >= 500 else ""
    span.end(f"{verb} {what}".strip(), attributes, failure=failure)


def _log_own_error(scope: Scope, answer: Response, request_id: bytes) -> None:
    """Log a server-side error with the request that caused it."""
    message = ""
    if isinstance(answer.body, bytes):
        message = answer.body[:_LONGEST_LOGGED].decode("utf-8", "replace")
    shown = request_id.decode()
    log.warning(
        "request %s: %s %s was answered with %d: %s",
        *(shown, scope["method"], _shown_path(scope), answer.code, message),
        extra={"request": shown},
    )


def _log_request(scope: Scope, answer: Response, request_id: bytes, took: float) -> None:
    shown = request_id.decode()
    log.debug(
        "request %s: %s %s: %d after %.1f ms",
        *(shown, scope["method"], _shown_path(scope), answer.code, took * 1000),
        extra={"request": shown},
    )


def _shown_path(scope: Scope) -> str:
    """Return the path without the query, which may contain a token."""
    path: str = scope["raw_path"].decode("ascii", "replace")
    return path.partition("?")[0]


def _require_single(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise BadRequest if a header that determines identity or target occurs twice.

    This server and a proxy in front of it might each use a different one.
    """
    given = [name for name, _ in headers if name in _SINGLE_HEADERS]
    for name in given:
        if given.count(name) > 1:
            raise BadRequest(f"the header {name.decode().title()} is given more than once")


def _require_same_site(method: str, headers: dict[bytes, bytes]) -> None:
    """Raise Forbidden for a cross-site write from a browser (CSRF protection).

    The browser attaches the user's client certificate or session cookie automatically, and sends a
    body without a content type without a CORS preflight. Only browsers send Sec-Fetch-Site; a
    user's own dashboard between browser and server may forward it together with a token.
    """
    if method in ("GET", "HEAD", "OPTIONS") or _has_token(headers):
        return
    if headers[b"sec-fetch-site"] not in (b"same-origin", b"none"):
        raise Forbidden("nothing is written for other sites")


def _require_same_origin(headers: dict[bytes, bytes]) -> None:
    """Raise Forbidden for a cross-site WebSocket from a browser.

    The browser attaches the user's client certificate or session cookie automatically, but never a
    token. Other clients may send any Origin: Go's golang.org/x/net/websocket always does.
    """
    origin = headers.get(b"origin")
    if origin is None or _has_token(headers):
        return
    if origin.partition(b"://")[2] != headers.get(b"host"):
        raise Forbidden("sessions are not opened for other sites")


async def _run_until(
    revoked: "asyncio.Future[None]", session: Session, receive: Receive, send: Send
) -> None:
    """Run a session until it ends or its user's access is revoked."""
    running = asyncio.ensure_future(session.run(receive, send))
    try:
        await asyncio.wait((running, revoked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))
    if running.cancelled():
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        running.result()


def _has_token(headers: dict[bytes, bytes]) -> bool:
    return bool(read_bearer_token(headers.get(b"authorization", b"")))


async def _refuse_upgrade(send: Send, answer: Response, request_id: bytes) -> None:
    named = (b"audit-id", request_id)
    headers = [(b"content-type", answer.content_type), named, *answer.headers]
    start = {"type": "websocket.http.response.start", "status": answer.code, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": answer.body})
