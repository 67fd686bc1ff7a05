"""Stages of a request: the application as a function of a request, without connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from onejob.api.access.authorization import Attributes, Decision
from onejob.api.decoding.query import parse_query
from onejob.api.http.app import ApiApp
from onejob.api.http.operations import operation_of
from onejob.api.http.requests import ClientGone, Request
from onejob.api.http.responses import Response
from onejob.api.http.routing import PageMethodNotAllowed, Router
from onejob.clock import SystemClock
from onejob.metrics import Metrics
from onejob.wire.errors import ApiError
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User
from tests.api.http.exec_sessions_support import EXEC, Programs, pod
from tests.api.http.http_support import JOBS, added, job
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import TOKEN, make_app

PODS = "/api/v1/namespaces/default/pods"


def request(target: str, method: str = "GET", token: str = TOKEN, **fields: Any) -> Request:
    """Return a request; names of headers are written with underscores."""
    path, _, query = target.partition("?")
    names = ("stream", "upgrade", "subprotocols", "on_authenticated")
    options = {name: fields.pop(name) for name in names if name in fields}
    headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    return Request(method, path, query.encode(), headers, dict(headers), **options)


def with_app(
    test: Callable[[ApiApp, ScriptedService, Metrics], Awaitable[None]], **extra: Any
) -> None:
    async def run() -> None:
        service, metrics = ScriptedService({"pi": job("pi"), "p": pod()}), Metrics()
        app = make_app(service, metrics, SystemClock(), **extra)
        async with asyncio.timeout(60):
            await test(app, service, metrics)
        assert len(app.flow_control.seats) == 0, "a seat was not released"

    asyncio.run(run())


def end(response: Response) -> None:
    assert response.on_end is not None
    response.on_end()


class Unread:
    """Body that must not be read."""

    async def receive(self) -> tuple[bytes, bool]:
        raise AssertionError("the body was read")


class Gone:
    """Body of a client that disconnects."""

    async def receive(self) -> tuple[bytes, bool]:
        raise ClientGone


class Nothing:
    """Authorizer that grants nothing."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        return Decision(False)

    def rules(self, user: User, namespace: str) -> tuple[()]:
        return ()


# --- operations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "method", "upgrade", "verb", "required"),
    [
        (f"{JOBS}/pi", "GET", "", "get", ["get jobs pi"]),
        (JOBS, "GET", "", "list", ["list jobs "]),
        (f"{JOBS}?fieldSelector=metadata.name%3Dpi", "GET", "", "list", ["list jobs pi"]),
        (f"{JOBS}?watch=true", "GET", "", "watch", ["watch jobs "]),
        (f"{JOBS}?watch=true", "HEAD", "", "list", ["list jobs "]),
        (f"{JOBS}?watch=true", "GET", "websocket", "watch", ["watch jobs "]),
        (JOBS, "POST", "", "create", ["create jobs "]),
        (f"{PODS}/p/log", "GET", "websocket", "get", ["get pods/log p"]),
        (EXEC, "GET", "websocket", "get", ["get pods/exec p", "create pods/exec p"]),
        (EXEC, "POST", "spdy/3.1", "create", ["create pods/exec p"]),
        (EXEC, "GET", "", "get", ["get pods/exec p", "create pods/exec p"]),
        ("/apis/batch", "GET", "", "get", ["get /apis/batch"]),
        ("/metrics", "GET", "", "get", ["get /metrics"]),
        ("/healthz", "GET", "", "get", []),
        ("/ui/api/queue", "POST", "", "post", []),
    ],
)
def test_operation_has_a_verb_and_required_permissions(
    target: str, method: str, upgrade: str, verb: str, required: list[str]
) -> None:
    sent = request(target, method, upgrade=upgrade)
    path = Router(KindRegistry()).locate(sent.raw_path)
    operation = operation_of(sent, path, parse_query(sent.query_string))
    shown = [
        f"{wanted.verb} {wanted.path}" if wanted.path
        else f"{wanted.verb} {'/'.join(filter(None, (wanted.resource, wanted.subresource)))} "
        f"{wanted.name}"
        for wanted in operation.required
    ]  # fmt: skip
    assert (operation.verb, shown) == (verb, required)


@pytest.mark.parametrize(
    ("target", "method", "upgrade", "error"),
    [
        ("/metrics", "POST", "", PageMethodNotAllowed),
        (f"{JOBS}/pi", "POST", "", ApiError),
        (f"{JOBS}?timeout=soon", "GET", "", ApiError),
        ("/metrics", "GET", "websocket", ApiError),
        (f"{JOBS}/pi", "GET", "websocket", ApiError),
        (f"{JOBS}?watch=true", "GET", "spdy/3.1", ApiError),
    ],
)
def test_operation_that_does_not_exist(
    target: str, method: str, upgrade: str, error: type[Exception]
) -> None:
    sent = request(target, method, upgrade=upgrade)
    path = Router(KindRegistry()).locate(sent.raw_path)
    with pytest.raises(error):
        operation_of(sent, path, parse_query(sent.query_string))


# --- rejections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("upgrade", ["", "websocket"])
@pytest.mark.parametrize(
    ("fields", "extra", "code"),
    [
        ({"token": ""}, {}, 401),
        ({"token": "wrong"}, {}, 401),
        ({"impersonate_group": "a"}, {}, 400),
        ({}, {"authorizer": Nothing()}, 403),
    ],
)
def test_rejected_request_is_not_executed(
    upgrade: str, fields: dict[str, str], extra: dict[str, Any], code: int
) -> None:
    """Neither is its body read."""

    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        method, target = ("GET", EXEC) if upgrade else ("POST", JOBS)
        sent = request(target, method, stream=Unread(), upgrade=upgrade, **fields)
        response = await app(sent)
        end(response)
        assert isinstance(response.body, bytes)
        assert (response.code, json.loads(response.body)["code"]) == (code, code)
        assert response.session is None
        assert service.seen == []

    with_app(test, sessions=Programs(), **extra)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("POST", {"sec_fetch_site": "cross-site"}),
        ("GET", {"origin": "https://other.example", "host": "here", "upgrade": "websocket"}),
    ],
)
def test_browser_of_another_site_is_rejected_without_a_token(
    method: str, fields: dict[str, str]
) -> None:
    class Certificate:
        def authenticate(self, credentials: object) -> User:
            return User("bob", groups=("system:authenticated",))

    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        target = JOBS if method == "POST" else EXEC
        response = await app(request(target, method, token="", stream=Unread(), **fields))
        end(response)
        assert response.code == 403

    with_app(test, authenticator=Certificate(), sessions=Programs())


def test_connection_learns_of_an_authenticated_user() -> None:
    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        known: list[str] = []
        for target, token in (("/healthz", ""), ("/healthz", TOKEN), (JOBS, "wrong")):
            sent = request(target, token=token, on_authenticated=lambda: known.append("known"))
            end(await app(sent))
        assert known == ["known"]

    with_app(test)


# --- the end of a response ------------------------------------------------------------------------


def test_seat_is_held_until_a_long_list_is_sent() -> None:
    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        service.documents = {f"j{n}": job(f"j{n}", 1000) for n in range(2000)}
        response = await app(request(JOBS))
        assert isinstance(response.body, AsyncIterator)
        assert len(app.flow_control.seats) == 1
        async for _ in response.body:
            pass
        end(response)

    with_app(test)


@pytest.mark.parametrize("target", [f"{JOBS}/pi", f"{JOBS}?watch=true"])
def test_seat_is_released_before_other_responses_are_sent(target: str) -> None:
    """A slow reader must not occupy it."""

    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        service.events = [[added("a")]]
        response = await app(request(target))
        assert len(app.flow_control.seats) == 0
        end(response)

    with_app(test)


def test_request_of_a_client_that_disconnects_is_not_counted() -> None:
    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        with pytest.raises(ClientGone):
            await app(request(JOBS, "POST", stream=Gone()))
        assert "apiserver_request_total{" not in metrics.exposition()

    with_app(test)


@pytest.mark.parametrize("upgrade", ["", "websocket"])
def test_stream_is_counted_until_it_has_ended(upgrade: str) -> None:
    series = 'apiserver_longrunning_requests{verb="WATCH",resource="jobs"}'

    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        service.events = [[added("a")]]
        response = await app(request(f"{JOBS}?watch=true", upgrade=upgrade))
        assert f"{series} 1" in metrics.exposition()
        end(response)
        assert f"{series} 1" not in metrics.exposition()

    with_app(test)


def test_shutdown_ends_streams_but_leaves_sessions_to_their_connections() -> None:
    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        service.events = [[added("a")]]
        watch = await app(request(f"{JOBS}?watch=true"))
        session = await app(request(f"{JOBS}?watch=true", upgrade="websocket"))
        app.close_streams()
        later = await app(request(f"{JOBS}?watch=true"))
        ends = [[end.done() for end in each.ends] for each in (watch, session, later)]
        assert ends == [[False, True], [False], [False, True]]
        for response in (watch, session, later):
            end(response)

    with_app(test)


def test_request_id_of_the_client_is_kept() -> None:
    async def test(app: ApiApp, service: ScriptedService, metrics: Metrics) -> None:
        response = await app(request(JOBS, audit_id="mine"))
        end(response)
        assert dict(response.headers)[b"audit-id"] == b"mine"

    with_app(test)
