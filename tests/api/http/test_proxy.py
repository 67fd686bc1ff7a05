"""pods/proxy and services/proxy, to servers that listen in this process."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from onejob.api.access.authorization import AllowAuthenticated, Attributes, Decision
from onejob.api.sessions.port_forwarding import Connection
from onejob.api.sessions.proxy import relaying
from onejob.client.base import Create
from onejob.objects.meta import PODS
from onejob.wire.errors import BadRequest
from onejob.wire.requests import User
from tests.build import a_pod, container
from tests.harness import HttpPlane, running_http

Document = dict[str, Any]
BASE = "/api/v1/namespaces/default"


class Ports:
    """Ports of Pods: those of local servers, under the numbers that Pods declare."""

    def __init__(self) -> None:
        self.local: dict[tuple[str, int], int] = {}
        self.asked: list[tuple[str, str, int]] = []

    async def connect(self, namespace: str, name: str, port: int) -> Connection:
        self.asked.append((namespace, name, port))
        if (name, port) not in self.local:
            raise BadRequest(f'no process of pod "{name}" listens on port {port}')
        return await asyncio.open_connection("127.0.0.1", self.local[name, port])


class Readers(AllowAuthenticated):
    """Authorizer that permits `get` only, and records what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        self.asked.append(
            (attributes.verb, f"{attributes.resource}/{attributes.subresource}", attributes.name)
        )
        return Decision(attributes.verb == "get", "")


class World:
    def __init__(self, plane: HttpPlane, ports: Ports, http: aiohttp.ClientSession) -> None:
        self.plane, self.ports, self.http = plane, ports, http

    async def ask(
        self, path: str, method: str = "GET", **options: Any
    ) -> tuple[int, bytes, aiohttp.ClientResponse]:
        options.setdefault("allow_redirects", False)
        async with self.http.request(method, f"{self.plane.server.url}{path}", **options) as found:
            return found.status, await found.read(), found

    async def problem(self, path: str, method: str = "GET") -> tuple[int, str]:
        code, body, _ = await self.ask(path, method)
        return code, json.loads(body)["message"]


@asynccontextmanager
async def a_world(folder: Path, handler: Any = None, **options: Any) -> AsyncIterator[World]:
    ports = Ports()
    async with running_http(folder, ports=ports, **options) as plane:
        declared = {"containerPort": 8080, "name": "web"}
        await plane.client.write(_create(a_pod("p", container(ports=[declared]))))
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler or _echo)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.local["p", 8080] = runner.addresses[0][1]
        headers = {"Authorization": f"Bearer {plane.token}"}
        context = ssl._create_unverified_context()
        connector = aiohttp.TCPConnector(ssl=context)
        try:
            async with aiohttp.ClientSession(
                headers=headers, connector=connector, requote_redirect_url=False
            ) as http:
                yield World(plane, ports, http)
        finally:
            await runner.cleanup()


def _create(document: Document, resource: str = PODS) -> Create:
    return Create(resource, "default", msgspec.json.encode(document))


async def _echo(request: web.Request) -> web.Response:
    shown = {
        "method": request.method,
        "target": request.raw_path,
        "body": (await request.read()).decode(),
        "headers": {name.lower(): value for name, value in request.headers.items()},
    }
    return web.json_response(shown, status=418, headers={"X-Own": "kept"})


async def test_a_request_is_passed_on_as_it_is_without_credentials(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        path = f"{BASE}/pods/p/proxy/a%2Fb/../c/?timeout=x&q=%20"
        headers = {"X-Mine": "passed", "Cookie": "session=secret", "Impersonate-User": ""}
        del headers["Impersonate-User"]
        code, body, response = await world.ask(
            path, "POST", data=b"hello", headers=headers, allow_redirects=False
        )
        shown = json.loads(body)
        assert (code, shown["method"], shown["body"]) == (418, "POST", "hello")
        assert shown["target"].endswith("?timeout=x&q=%20")
        assert shown["headers"]["x-mine"] == "passed"
        assert shown["headers"]["x-forwarded-uri"].startswith(f"{BASE}/pods/p/proxy/")
        assert not {"authorization", "cookie"} & shown["headers"].keys()
        assert world.plane.token not in body.decode()
        assert response.headers["X-Own"] == "kept"
        assert response.headers["Content-Security-Policy"].startswith("sandbox ")


@pytest.mark.parametrize("name", ["p", "p:8080", "http:p:8080", "http%3Ap%3A8080", ":p:8080"])
async def test_scheme_and_port_are_optional(tmp_path: Path, name: str) -> None:
    async with a_world(tmp_path) as world:
        code, body, _ = await world.ask(f"{BASE}/pods/{name}/proxy/")
        assert (code, json.loads(body)["target"]) == (418, "/")
        assert world.ports.asked == [("default", "p", 8080)]


async def test_the_root_is_a_redirect_to_its_folder(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        code, _, response = await world.ask(f"{BASE}/pods/p/proxy?a=b")
        assert (code, response.headers["Location"]) == (301, f"{BASE}/pods/p/proxy/?a=b")
        assert world.ports.asked == []


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("absent", 404, 'pods "absent" not found'),
        ("p:1", 503, 'error trying to reach service: no process of pod "p" listens on port 1'),
        ("p:0", 400, 'invalid port "0"'),
        ("p:web", 400, 'invalid port "web"'),
        ("ftp:p:21", 400, 'invalid pod request "ftp:p:21"'),
        ("a:b:c:d", 400, 'invalid pod request "a:b:c:d"'),
        ("p:", 400, 'invalid pod request "p:"'),
    ],
)
async def test_a_request_to_anything_but_a_port_of_the_pod_is_refused(
    tmp_path: Path, name: str, code: int, message: str
) -> None:
    async with a_world(tmp_path) as world:
        assert await world.problem(f"{BASE}/pods/{name}/proxy/") == (code, message)


async def test_each_method_requires_its_verb_on_the_subresource(tmp_path: Path) -> None:
    readers = Readers()
    async with a_world(tmp_path, authorizer=readers) as world:
        readers.asked.clear()
        assert (await world.ask(f"{BASE}/pods/p:8080/proxy/"))[0] == 418
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        for method, verb in verbs.items():
            code, message = await world.problem(f"{BASE}/pods/p:8080/proxy/x", method)
            assert code == 403
            assert f'cannot {verb} resource "pods/proxy"' in message
        code, _ = await world.problem(f"{BASE}/pods/p:8080/proxy/x", "OPTIONS")
        assert code == 405
        wanted = [(verb, "pods/proxy", "p:8080") for verb in ("get", *verbs.values())]
        assert readers.asked == wanted
        assert world.ports.asked == [("default", "p", 8080)]


async def test_a_redirect_stays_below_the_proxy_and_cookies_of_pods_are_dropped(
    tmp_path: Path,
) -> None:
    async def login(request: web.Request) -> web.Response:
        headers = {"Location": "/home", "Set-Cookie": "session=x", "Clear-Site-Data": "*"}
        return web.Response(status=302, headers=headers)

    async with a_world(tmp_path, login) as world:
        code, _, response = await world.ask(f"{BASE}/pods/p/proxy/login")
        assert (code, response.headers["Location"]) == (302, f"{BASE}/pods/p/proxy/home")
        assert not {"Set-Cookie", "Clear-Site-Data"} & set(response.headers)


async def test_a_response_is_streamed_while_the_pod_writes_it(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def tick(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await go_on.wait()
        await response.write(b"two")
        return response

    async with a_world(tmp_path, tick) as world:
        url = f"{world.plane.server.url}{BASE}/pods/p/proxy/"
        async with asyncio.timeout(60), world.http.get(url) as response:
            assert await response.content.readexactly(3) == b"one"
            go_on.set()
            assert await response.content.read() == b"two"


async def test_a_head_request_has_no_body_and_ends(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        async with asyncio.timeout(60):
            code, body, _ = await world.ask(f"{BASE}/pods/p/proxy/", "HEAD")
        assert (code, body) == (418, b"")


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "it closed the connection without an HTTP response"),
        (b"SSH-2.0-OpenSSH\r\n", ""),
        (b"HTTP/1.1 799 What\r\n\r\n", "its response has the unknown status code 799"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000, "without an HTTP response"),
    ],
)
async def test_a_pod_that_sends_no_http_is_unavailable(
    tmp_path: Path, sent: bytes, message: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    async with a_world(tmp_path) as world:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            world.ports.local["p", 1] = server.sockets[0].getsockname()[1]
            code, text = await world.problem(f"{BASE}/pods/p:1/proxy/")
        assert code == 503
        assert text.startswith("error trying to reach service: ")
        assert message in text


async def test_a_silent_pod_is_given_up_and_connections_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "MAX_CONNECTIONS", 1)
    silent = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        silent.set()
        await asyncio.Event().wait()
        return web.Response()

    async with a_world(tmp_path, wait) as world:
        path = f"{BASE}/pods/p/proxy/"
        first = asyncio.create_task(world.problem(path))
        await silent.wait()
        code, message = await world.problem(path)
        assert (code, message.startswith("too many requests are being proxied")) == (429, True)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        monkeypatch.setattr(relaying, "_HEAD_SECONDS", 0.05)
        monkeypatch.setattr(relaying, "MAX_CONNECTIONS", 2)
        code, message = await world.problem(path)
        assert (code, message.partition(": ")[2]) == (503, "it did not respond in time")


def a_service(name: str = "s") -> Document:
    ports = [{"port": 80, "name": "web", "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": ports, "selector": {"app": "p"}},
    }


def a_slice(*endpoints: Document) -> Document:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
    }


@pytest.mark.parametrize("name", ["s:web", "s:80", "http:s:80"])
async def test_a_service_is_proxied_to_a_ready_pod_behind_it(tmp_path: Path, name: str) -> None:
    target = {"kind": "Pod", "name": "p", "namespace": "default"}
    other = {"kind": "Pod", "name": "starting", "namespace": "default"}
    endpoints = (
        {"addresses": ["127.0.0.1"], "conditions": {"ready": False}, "targetRef": other},
        {"addresses": ["127.0.0.1"], "targetRef": target},
    )
    async with a_world(tmp_path) as world:
        await world.plane.client.write(_create(a_service(), "services"))
        slices = _create(a_slice(*endpoints), "endpointslices.discovery.k8s.io")
        await world.plane.client.write(slices)
        assert (await world.ask(f"{BASE}/services/{name}/proxy/x"))[0] == 418
        assert world.ports.asked == [("default", "p", 8080)]


async def test_a_service_leads_to_nothing_but_pods(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.plane.client.write(_create(a_service(), "services"))
        gone = (503, 'no endpoints available for service "s"')
        assert await world.problem(f"{BASE}/services/s:web/proxy/") == gone
        foreign = a_slice({"addresses": ["169.254.169.254"]})
        await world.plane.client.write(_create(foreign, "endpointslices.discovery.k8s.io"))
        assert await world.problem(f"{BASE}/services/s:web/proxy/") == gone
        missing = (503, 'no service port 81 found for service "s"')
        assert await world.problem(f"{BASE}/services/s:81/proxy/") == missing
        assert world.ports.asked == []


async def _chat(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=("chat",))
    await socket.prepare(request)
    await socket.send_str(request.raw_path)
    async for message in socket:
        if message.data == "bye":
            break
        if message.type is aiohttp.WSMsgType.TEXT:
            await socket.send_str(message.data.upper())
        else:
            await socket.send_bytes(message.data[::-1])
    await socket.close(code=4000)
    return socket


async def test_a_web_socket_is_relayed_in_both_directions(tmp_path: Path) -> None:
    async with a_world(tmp_path, _chat) as world:
        url = f"{world.plane.server.url}{BASE}/pods/p/proxy/talk?room=1"
        async with (
            asyncio.timeout(60),
            world.http.ws_connect(url, protocols=("other", "chat")) as socket,
        ):
            assert socket.protocol == "chat"
            assert await socket.receive_str() == "/talk?room=1"
            await socket.send_str("hello")
            assert await socket.receive_str() == "HELLO"
            await socket.send_bytes(b"abc" * 100_000)
            assert await socket.receive_bytes() == b"cba" * 100_000
            await socket.send_str("bye")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 4000


async def test_a_web_socket_to_a_pod_that_has_none_is_refused(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        url = f"{world.plane.server.url}{BASE}/pods/p/proxy/"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await world.http.ws_connect(url)
        assert refused.value.status == 503
