"""The API over HTTP: an ASGI application, without a framework.

One request: who is it, where does it go, may it; then an endpoint answers, and the answer is
sent. Every failure is a `Status` document; what nobody foresaw is logged and answered with 500.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onejob.api.answers import (
    GZIP_FROM_BYTES,
    Answer,
    Header,
    compressed,
    compressed_stream,
    error_answer,
    json_answer,
    text_answer,
)
from onejob.api.authentication import (
    ANONYMOUS,
    Authenticator,
    Credentials,
    identify,
    read_bearer_token,
)
from onejob.api.authorization import Attributes, Authorizer, require
from onejob.api.endpoints import Endpoints
from onejob.api.errors import ApiError, InternalError, Unauthorized
from onejob.api.incoming import ClientGone, Receive, Request
from onejob.api.query import flag, parse_query
from onejob.api.requests import User
from onejob.api.routing import (
    GroupPath,
    PageNotFound,
    Place,
    ServerPath,
    Target,
    locate,
    verb_for,
)
from onejob.api.server_pages import (
    Check,
    OpenApi,
    discovery_answer,
    health_answer,
    openapi_answer,
    version_document,
)
from onejob.metrics import Metrics

if TYPE_CHECKING:
    from onejob.api.service import Service

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

#: Pages that say nothing about anybody, and are needed before one can log in.
_PUBLIC_PAGES: Final = frozenset(("version", "healthz", "livez", "readyz"))


class ApiApp:
    """Serves a `Service`. `close_streams` ends all watches and followed logs."""

    def __init__(
        self,
        service: "Service",
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        openapi: OpenApi,
        release: str,
        rng: Random,
        metrics: Metrics,
        checks: Mapping[str, Check] | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._openapi = openapi
        self._version = version_document(release)
        self._metrics = metrics
        self._clock = service.clock
        self._checks = {"ping": lambda: "", **(checks or {})}
        self._endpoints = Endpoints(service, authorizer=authorizer, rng=rng)
        self._closing: asyncio.Future[None] | None = None
        self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        started = _Started(self._clock.monotonic())
        try:
            answer = await self._answer(scope, headers, receive, started)
        except ClientGone:
            return
        labels = started.labels(scope["method"])
        self._metrics.count("apiserver_request_total", *labels, str(answer.code))
        if not answer.endless:
            await self._send(answer, headers, scope["method"], receive, send)
            took = self._clock.monotonic() - started.at
            self._metrics.observe("apiserver_request_duration_seconds", took, *labels)
            return
        open_streams = ("apiserver_longrunning_requests", labels[0], labels[3])
        self._metrics.count(*open_streams)
        try:
            await self._send(answer, headers, scope["method"], receive, send)
        finally:
            self._metrics.count(*open_streams, by=-1)

    def close_streams(self) -> None:
        """End every stream that has no end of its own, and all that would begin from now on."""
        self._closed = True
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    # --- one request ----------------------------------------------------------------------

    async def _answer(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        started: "_Started",
    ) -> Answer:
        method: str = scope["method"]
        try:
            place = locate(scope["raw_path"].decode("ascii", "replace"))
            user = self._identify(scope, headers, place)
            query = parse_query(scope["query_string"])
            request = Request(method, query, headers, user, receive)
            match place:
                case Target():
                    return await self._resource(request, place, started)
                case GroupPath():
                    self._authorize_path(user, scope, method)
                    return discovery_answer(
                        place, request, headers.get(b"host", b"").decode("latin-1")
                    )
                case ServerPath():
                    return await self._page(request, place, scope)
        except PageNotFound:
            return text_answer("404 page not found\n", 404)
        except ApiError as error:
            return error_answer(error)
        except ClientGone:
            raise
        except Exception:
            log.exception("%s %s failed", method, scope["path"])
            return error_answer(InternalError("an error on the server was logged"))

    async def _resource(self, request: Request, target: Target, started: "_Started") -> Answer:
        verb = verb_for(request.method, target)
        if verb == "list" and request.method == "GET" and flag(request.query, "watch"):
            verb = "watch"
        started.verb, started.target = verb, target
        kind = target.kind
        attributes = Attributes(
            verb,
            kind.group,
            kind.version,
            kind.plural,
            target.subresource,
            target.namespace,
            target.name,
        )
        require(self._authorizer, request.user, attributes)
        return await self._endpoints.answer(request, target, verb)

    async def _page(self, request: Request, place: ServerPath, scope: Scope) -> Answer:
        if request.method not in ("GET", "HEAD"):
            return text_answer("405 method not allowed\n", 405)
        if place.page not in _PUBLIC_PAGES:
            self._authorize_path(request.user, scope, request.method)
        match place.page:
            case "version" if not place.rest:
                return json_answer(self._version)
            case "healthz" | "livez" | "readyz" if len(place.rest) <= 1:
                return health_answer(place.page, "".join(place.rest), self._checks, request)
            case "metrics" if not place.rest:
                return Answer(200, self._metrics.exposition().encode(), _PROMETHEUS)
            case "openapi":
                return openapi_answer(place.rest, request, self._openapi)
            case _:
                raise PageNotFound(place.page)

    def _identify(self, scope: Scope, headers: dict[bytes, bytes], place: Place) -> User:
        credentials = Credentials(
            read_bearer_token(headers.get(b"authorization", b"")),
            scope.get("state", {}).get("peer_subject", ()),
        )
        user = identify(self._authenticator, credentials)
        public = isinstance(place, ServerPath) and place.page in _PUBLIC_PAGES
        if user is ANONYMOUS and not public:
            raise Unauthorized("Unauthorized")
        return user

    def _authorize_path(self, user: User, scope: Scope, method: str) -> None:
        require(self._authorizer, user, Attributes(method.lower(), path=scope["path"]))

    # --- sending --------------------------------------------------------------------------

    async def _send(
        self,
        answer: Answer,
        request_headers: dict[bytes, bytes],
        method: str,
        receive: Receive,
        send: Send,
    ) -> None:
        body = answer.body
        headers: list[Header] = [(b"content-type", answer.content_type), *answer.headers]
        if not answer.endless and _accepts_gzip(request_headers):
            if not isinstance(body, bytes):
                body = compressed_stream(body)
                headers.append((b"content-encoding", b"gzip"))
            elif len(body) > GZIP_FROM_BYTES:
                body = compressed(body)
                headers.append((b"content-encoding", b"gzip"))
        if isinstance(body, bytes):
            if answer.code != 304:
                headers.append((b"content-length", b"%d" % len(body)))
            if answer.code == 413:
                headers.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": answer.code, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.start", "status": answer.code, "headers": headers})
        if method != "HEAD":
            await self._send_stream(body, receive, send, endless=answer.endless)
        await send({"type": "http.response.body", "body": b""})

    async def _send_stream(self, body: Any, receive: Receive, send: Send, *, endless: bool) -> None:
        """Send until the stream ends, the client goes away or the server stops."""
        pump = asyncio.ensure_future(_pump(body, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        waiting: set[asyncio.Future[Any]] = {pump, gone}
        if endless:
            waiting.add(self._end_of_streams())
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
            await asyncio.wait((pump, gone))
        if not pump.cancelled():
            pump.result()

    def _end_of_streams(self) -> "asyncio.Future[None]":
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            if self._closed:
                self._closing.set_result(None)
        return self._closing


class _Started:
    """How far a request got before it was answered: what metrics count it under."""

    __slots__ = ("at", "target", "verb")

    def __init__(self, at: float) -> None:
        self.at = at
        self.verb = ""
        self.target: Target | None = None

    def labels(self, method: str) -> tuple[str, str, str, str, str]:
        """verb, group, version, resource, subresource"""
        if self.target is None:
            return method if method in _METHODS else "OTHER", "", "", "", ""
        kind = self.target.kind
        return self.verb.upper(), kind.group, kind.version, kind.plural, self.target.subresource


async def _pump(body: Any, send: Send) -> None:
    async with aclosing(body) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _accepts_gzip(headers: dict[bytes, bytes]) -> bool:
    offered = headers.get(b"accept-encoding", b"")
    return b"gzip" in offered and b"gzip;q=0" not in offered.replace(b" ", b"")
