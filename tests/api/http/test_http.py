"""The API on a real TLS socket: behaviour of the transport, independent of the verbs."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from onejob.metrics import RequestLabels
from onejob.wire.errors import BadRequest, Expired, InternalError, Timeout
from onejob.wire.requests import NOWHERE, DeleteOptions, LogOptions, User, WatchEvent
from tests.api.http.client_certificate import make_client_certificate
from tests.api.http.http_support import JOBS, added, job
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import (
    TOKEN,
    MovedClock,
    Wire,
    closed,
    read_chunk,
    read_head,
    read_reply,
    request_bytes,
    with_server,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


# --- authentication -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz", "/readyz/ping"])
def test_health_and_version_need_no_login(tmp_path: Path, path: str) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", path, token="")).code == 200

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/apis/batch/v1", JOBS, "/metrics", "/openapi/v3", f"{JOBS}?watch=1"]
)
@pytest.mark.parametrize("token", ["", "wrong"])
def test_everything_else_does(tmp_path: Path, path: str, token: str) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", path, token=token)
        assert reply.code == 401
        assert reply.json()["reason"] == "Unauthorized"
        assert reply.json()["kind"] == "Status"

    with_server(ScriptedService(), tmp_path, test)


def test_a_client_certificate_is_a_login(tmp_path: Path) -> None:
    service = ScriptedService()

    async def test(wire: Wire) -> None:
        wire.certificate = make_client_certificate(wire.certificates, tmp_path)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        reply = await wire.call(
            "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, token=""
        )
        assert reply.code == 201
        assert reply.json()["status"]["userInfo"] == {
            "username": "alice",
            "groups": ["team-a", "system:authenticated"],
        }

    with_server(service, tmp_path, test)


WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def test_a_certificate_that_expires_ends_with_the_next_request_of_its_connection(
    tmp_path: Path,
) -> None:
    clock = MovedClock()

    async def test(wire: Wire) -> None:
        end = clock.now() + timedelta(hours=1)
        wire.certificate = make_client_certificate(wire.certificates, tmp_path, end)
        reader, writer = await wire.connect()
        try:
            for ahead, code in ((timedelta(), 201), (timedelta(hours=2), 401)):
                clock.ahead = ahead
                writer.write(request_bytes("POST", WHO, {}, token=""))
                assert (await read_reply(reader)).code == code
        finally:
            writer.close()
            await closed(writer)

    with_server(ScriptedService(), tmp_path, test, login_clock=clock)


def test_administrator_may_impersonate_users(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        headers = {"impersonate_user": "bob", "impersonate_group": "team-a"}
        info = (await wire.call("POST", WHO, {}, **headers)).json()["status"]["userInfo"]
        assert info == {"username": "bob", "groups": ["team-a", "system:authenticated"]}
        assert (await wire.call("POST", WHO, {}, impersonate_group="team-a")).code == 400
        assert (await wire.call("GET", "/version", token="", impersonate_user="bob")).code == 403

    with_server(ScriptedService(), tmp_path, test)


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", "/apis/batch/v1/nope", 404, "NotFound"),
        ("GET", f"{JOBS}/nope", 404, "NotFound"),
        ("PUT", JOBS, 405, "MethodNotAllowed"),
        ("BREW", JOBS, 400, ""),
        ("PROPFIND", JOBS, 405, "MethodNotAllowed"),
        ("GET", f"{JOBS}?limit=x", 400, "BadRequest"),
        ("GET", f"{JOBS}?sendInitialEvents=true", 422, "Invalid"),
        ("POST", f"{JOBS}?dryRun=Most", 422, "Invalid"),
        ("GET", "/api/v1/namespaces/default/pods/p/exec", 404, "NotFound"),
    ],
)
def test_failures_are_statuses(
    tmp_path: Path, method: str, path: str, code: int, reason: str
) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call(method, path)
        assert reply.code == code
        if reason:
            status = reply.json()
            assert (status["kind"], status["apiVersion"]) == ("Status", "v1")
            assert (status["reason"], status["code"]) == (reason, code)

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize("path", ["/", "/nope", "/apis/nope", "/apis/nope/v1/x", "/openapi/v1"])
def test_a_path_outside_every_group_is_plain_text(tmp_path: Path, path: str) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", path)
        assert (reply.code, reply.body) == (404, b"404 page not found\n")
        assert reply.header("content-type").startswith("text/plain")

    with_server(ScriptedService(), tmp_path, test)


def test_resources_and_methods_that_do_not_exist_have_empty_details(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", "/apis/batch/v1/nope")).json()["details"] == {}
        assert (await wire.call("PATCH", JOBS)).json()["details"] == {}

    with_server(ScriptedService(), tmp_path, test)


def test_unexpected_exception_is_logged_and_not_exposed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = ScriptedService()
    service.failure = RuntimeError("the secret inside")

    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", JOBS)
        assert reply.code == 500
        assert reply.json()["reason"] == "InternalError"
        assert b"secret" not in reply.body

    with_server(service, tmp_path, test)
    assert "the secret inside" in caplog.text


def test_overloaded_server_sends_retry_after(tmp_path: Path) -> None:
    service = ScriptedService()
    service.failure = Timeout("later", retry_after_seconds=3)

    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", JOBS)
        assert (reply.code, reply.header("retry-after")) == (504, "3")

    with_server(service, tmp_path, test)


def test_anything_but_known_bodies_is_unsupported(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("POST", JOBS, b"{}", content_type="text/csv")
        assert (reply.code, reply.json()["reason"]) == (415, "UnsupportedMediaType")
        reply = await wire.call("PATCH", f"{JOBS}/a", b"{}", content_type="application/json")
        assert (reply.code, reply.json()["reason"]) == (415, "UnsupportedMediaType")

    with_server(ScriptedService(), tmp_path, test)


def test_a_form_we_do_not_have_is_not_acceptable(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", JOBS, accept="text/html")
        assert (reply.code, reply.json()["reason"]) == (406, "NotAcceptable")
        reply = await wire.call("GET", JOBS, accept=PARTIAL)
        assert reply.code == 406

    with_server(ScriptedService(), tmp_path, test)


# --- bodies -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3 * 1024 * 1024 + 1, 5 * 1024 * 1024])
def test_a_body_that_is_too_large_is_refused_with_a_reason(tmp_path: Path, size: int) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("POST", JOBS, b" " * size, content_type="application/json")
        assert reply.code == 413
        assert reply.json()["reason"] == "RequestEntityTooLarge"
        assert reply.json()["message"] == "Request entity too large: limit is 3145728"

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize("length", ["3145729", "0" * 5000 + "3145729", "18446744073709551615"])
def test_expect_continue_with_too_large_body_is_rejected(tmp_path: Path, length: str) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        lines = [f"POST {JOBS} HTTP/1.1", "host: test", f"authorization: Bearer {TOKEN}"]
        lines += ["content-type: application/json", f"content-length: {length}"]
        writer.write("\r\n".join([*lines, "expect: 100-continue", "", ""]).encode())
        reply = await read_reply(reader)
        assert (reply.code, reply.header("connection")) == (413, "close")
        assert reply.json()["reason"] == "RequestEntityTooLarge"
        assert reply.json()["message"] == "Request entity too large: limit is 3145728"
        assert await reader.read() == b""
        writer.close()

    with_server(ScriptedService(), tmp_path, test)


def test_a_body_of_the_allowed_size_arrives(tmp_path: Path) -> None:
    service = ScriptedService()
    document = {"a": "x" * (3 * 1024 * 1024 - 100)}

    async def test(wire: Wire) -> None:
        assert (await wire.call("POST", JOBS, document)).code == 201

    with_server(service, tmp_path, test)
    assert service.seen[0][0] == document


def test_a_chunked_body_arrives(tmp_path: Path) -> None:
    service = ScriptedService()

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        head = request_bytes("POST", JOBS, content_type="application/json")
        head = head.replace(b"content-length: 0", b"transfer-encoding: chunked")
        writer.write(head + b'5\r\n{"a":\r\n')
        await writer.drain()
        writer.write(b"2\r\n1}\r\n0\r\n\r\n")
        assert (await read_head(reader))[0] == 201
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test)
    assert service.seen[0][0] == {"a": 1}


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b"", b'"x"'])
def test_a_body_that_is_no_object_is_a_bad_request(tmp_path: Path, body: bytes) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("POST", JOBS, body, content_type="application/json")
        assert (reply.code, reply.json()["reason"]) == (400, "BadRequest")

    with_server(ScriptedService(), tmp_path, test)


def test_delete_options_come_from_the_body_or_else_from_the_query(tmp_path: Path) -> None:
    service = ScriptedService()

    async def test(wire: Wire) -> None:
        await wire.call("DELETE", f"{JOBS}/a", {"propagationPolicy": "Foreground"})
        await wire.call("DELETE", f"{JOBS}/a?propagationPolicy=Orphan&gracePeriodSeconds=0")
        body = b"gracePeriodSeconds: 5\n"
        await wire.call("DELETE", f"{JOBS}/a", body, content_type="application/yaml")

    with_server(service, tmp_path, test)
    user: User = service.seen[0].user
    assert user.name == "onejob-admin"
    assert service.seen == [
        DeleteOptions(user, propagation="Foreground"),
        DeleteOptions(user, propagation="Orphan", grace_seconds=0),
        DeleteOptions(user, grace_seconds=5),
    ]


def test_patches_arrive_with_their_type(tmp_path: Path) -> None:
    service = ScriptedService()

    async def test(wire: Wire) -> None:
        for content_type, body in [
            ("application/json-patch+json", b'[{"op":"remove","path":"/a"}]'),
            ("application/merge-patch+json", b'{"a":null}'),
            ("application/strategic-merge-patch+json; charset=utf-8", b'{"a":1}'),
            ("application/apply-patch+yaml", b"{apiVersion: v1, kind: A}"),
        ]:
            target = f"{JOBS}/a?fieldManager=m"
            assert (await wire.call("PATCH", target, body, content_type=content_type)).code == 200

    with_server(service, tmp_path, test)
    assert [(kind, body) for kind, body, _ in service.seen] == [
        ("json", [{"op": "remove", "path": "/a"}]),
        ("merge", {"a": None}),
        ("strategic", {"a": 1}),
        ("apply", {"apiVersion": "v1", "kind": "A"}),
    ]


def test_warnings_are_headers(tmp_path: Path) -> None:
    service = ScriptedService()
    service.warnings = ('unknown field "spec.foo"', "zwölf")

    async def test(wire: Wire) -> None:
        reply = await wire.call("POST", JOBS, {})
        warnings = [value for name, value in reply.headers if name == "warning"]
        assert warnings[0] == '299 - "unknown field \\"spec.foo\\""'
        assert warnings[1].encode("latin-1").decode() == '299 - "zwölf"'

    with_server(service, tmp_path, test)


# --- responses ----------------------------------------------------------------------------


def test_objects_are_served_as_json_yaml_table_and_metadata(tmp_path: Path) -> None:
    service = ScriptedService({"a": job("a")})

    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", f"{JOBS}/a")).body == job("a")
        reply = await wire.call("GET", f"{JOBS}/a", accept="application/yaml")
        assert reply.header("content-type") == "application/yaml"
        assert yaml.safe_load(reply.body) == json.loads(job("a"))
        reply = await wire.call("GET", f"{JOBS}/a", accept=PARTIAL)
        assert list(reply.json()) == ["kind", "apiVersion", "metadata"]
        table = (await wire.call("GET", f"{JOBS}/a", accept=TABLE)).json()
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert table["columnDefinitions"][0]["name"] == "Name"
        assert table["rows"][0]["cells"] == ["a"]
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"

    with_server(service, tmp_path, test)


@pytest.mark.parametrize(
    ("include", "expected"), [("Object", "Job"), ("Metadata", "PartialObjectMetadata")]
)
def test_table_rows_honour_include_object(tmp_path: Path, include: str, expected: str) -> None:
    service = ScriptedService({"a": job("a")})

    async def test(wire: Wire) -> None:
        table = (await wire.call("GET", f"{JOBS}?includeObject={include}", accept=TABLE)).json()
        assert table["metadata"] == {"resourceVersion": "7"}
        assert table["rows"][0]["object"]["kind"] == expected
        bare = (await wire.call("GET", f"{JOBS}?includeObject=None", accept=TABLE)).json()
        assert bare["rows"] == [{"cells": ["a"]}]
        assert (await wire.call("GET", f"{JOBS}?includeObject=x", accept=TABLE)).code == 400

    with_server(service, tmp_path, test)


def test_a_long_list_is_streamed_and_compressed_when_asked(tmp_path: Path) -> None:
    service = ScriptedService({f"j{i}": job(f"j{i}", 2000) for i in range(500)})

    async def test(wire: Wire) -> None:
        plain = await wire.call("GET", JOBS)
        assert plain.header("transfer-encoding") == "chunked"
        assert len(plain.json()["items"]) == 500
        squeezed = await wire.call("GET", JOBS, accept_encoding="gzip")
        assert squeezed.header("content-encoding") == "gzip"
        assert gzip.decompress(squeezed.body) == plain.body
        assert len(squeezed.body) < len(plain.body) / 10
        as_yaml = await wire.call("GET", JOBS, accept="application/yaml")
        assert len(yaml.load(as_yaml.body, yaml.CSafeLoader)["items"]) == 500

    with_server(service, tmp_path, test)


def test_others_are_served_while_a_long_list_is_written(tmp_path: Path) -> None:
    service = ScriptedService({f"j{i}": job(f"j{i}", 5000) for i in range(4000)})

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", JOBS, accept=TABLE + ";q=0.9"))
        first = await read_head(reader)
        assert first[0] == 200
        # The list is far larger than any buffer and remains unread; the server goes on.
        assert (await wire.call("GET", "/healthz")).body == b"ok"
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test)


def test_short_answers_are_not_compressed(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", JOBS, accept_encoding="gzip")
        assert reply.header("content-encoding") == ""

    with_server(ScriptedService(), tmp_path, test)


def test_head_is_get_without_a_body(tmp_path: Path) -> None:
    service = ScriptedService({f"j{i}": job(f"j{i}", 3000) for i in range(200)})

    async def test(wire: Wire) -> None:
        reply = await wire.call("HEAD", f"{JOBS}/j1")
        assert (reply.code, reply.header("content-length")) == (200, str(len(job("j1", 3000))))
        assert (await wire.call("HEAD", JOBS)).code == 200
        assert (await wire.call("HEAD", f"{JOBS}?watch=true")).code == 200
        assert (await wire.call("HEAD", "/healthz")).code == 200

    with_server(service, tmp_path, test)


def test_one_connection_serves_many_requests(tmp_path: Path) -> None:
    service = ScriptedService({"a": job("a")})

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        for _ in range(3):
            writer.write(request_bytes("GET", f"{JOBS}/a"))
            code, headers = await read_head(reader)
            assert code == 200
            await reader.readexactly(int(dict(headers)["content-length"]))
        # Pipelined, too.
        writer.write(request_bytes("GET", "/version") * 2)
        for _ in range(2):
            code, headers = await read_head(reader)
            assert code == 200
            await reader.readexactly(int(dict(headers)["content-length"]))
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test)


# --- watches ------------------------------------------------------------------------------


def test_a_watch_sends_a_line_per_event_and_a_piece_per_batch(tmp_path: Path) -> None:
    service = ScriptedService()
    bookmark = b'{"kind":"Job","apiVersion":"batch/v1","metadata":{"resourceVersion":"9"}}'
    service.events = [[added("a"), added("b")], [WatchEvent("BOOKMARK", NOWHERE, 9, bookmark)]]

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{JOBS}?watch=true&timeoutSeconds=9"))
        code, headers = await read_head(reader)
        assert (code, dict(headers)["content-type"]) == (200, "application/json")
        lines = (await read_chunk(reader)).splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["ADDED", "ADDED"]
        assert json.loads(lines[1])["object"] == json.loads(job("b"))
        assert json.loads(await read_chunk(reader))["type"] == "BOOKMARK"
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test)
    assert service.seen[0].timeout_seconds == 9


def test_only_first_table_of_watch_has_column_definitions(tmp_path: Path) -> None:
    service = ScriptedService()
    service.events = [[added("a")], [added("b")]]

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{JOBS}?watch=true", accept=TABLE))
        await read_head(reader)
        first = json.loads(await read_chunk(reader))["object"]
        second = json.loads(await read_chunk(reader))["object"]
        assert first["columnDefinitions"][0]["name"] == "Name"
        assert second["columnDefinitions"] is None
        assert second["rows"][0]["cells"] == ["b"]
        assert second["metadata"]["resourceVersion"] == "5"
        writer.close()
        await closed(writer)

    with_server(service, tmp_path, test)


def test_a_watch_that_is_refused_at_once_is_an_error_answer(tmp_path: Path) -> None:
    service = ScriptedService()
    service.failure = Expired("too old resource version: 1 (225)")

    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", f"{JOBS}?watch=true&resourceVersion=1")
        assert (reply.code, reply.json()["reason"]) == (410, "Expired")

    with_server(service, tmp_path, test)


class FailsLater(ScriptedService):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def watch(self, *_: Any) -> AsyncGenerator[list[WatchEvent], None]:
        yield [added("a")]
        await asyncio.sleep(0)
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"), [(Expired("too old"), 410), (InternalError("no disk"), 500)]
)
def test_a_watch_that_fails_later_ends_with_an_error_event(
    tmp_path: Path, error: Exception, code: int
) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", f"{JOBS}?watch=true")
        assert reply.code == 200
        last = json.loads(reply.body.splitlines()[-1])
        assert last["type"] == "ERROR"
        assert last["object"]["code"] == code

    with_server(FailsLater(error), tmp_path, test)


def test_a_watch_ends_when_its_client_goes(tmp_path: Path) -> None:
    service = ScriptedService()
    service.events = [[added("a")]]

    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{JOBS}?watch=true"))
        await read_head(reader)
        await read_chunk(reader)
        assert service.open_watches == 1
        assert wire.metrics.open_streams.value(verb="WATCH", resource="jobs") == 1
        writer.close()
        await closed(writer)
        async with asyncio.timeout(30):
            await service.no_watches.wait()

    with_server(service, tmp_path, test)


# --- pages about the server ---------------------------------------------------------------


def test_discovery_echoes_the_form_it_was_asked_for(tmp_path: Path) -> None:
    form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

    async def test(wire: Wire) -> None:
        for path in ("/api", "/apis"):
            reply = await wire.call("GET", path, accept=f"{form},application/json")
            assert reply.header("content-type") == form
            assert reply.json()["kind"] == "APIGroupDiscoveryList"
            again = await wire.call("GET", path, accept=form, if_none_match=reply.header("etag"))
            assert (again.code, again.body) == (304, b"")
        reply = await wire.call("GET", "/apis", accept="application/json")
        assert reply.header("content-type") == "application/json"
        assert reply.json()["kind"] == "APIGroupList"
        assert (await wire.call("GET", "/api")).json()["kind"] == "APIVersions"
        assert (await wire.call("GET", "/apis/batch")).json()["kind"] == "APIGroup"
        assert (await wire.call("GET", "/apis/batch/v1")).json()["kind"] == "APIResourceList"

    with_server(ScriptedService(), tmp_path, test)


def test_openapi_documents_are_cacheable(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", "/openapi/v3")).json() == {"paths": {}}
        reply = await wire.call("GET", "/openapi/v3/apis/batch/v1?hash=ABC")
        assert reply.header("etag") == '"ABC"'
        assert "immutable" in reply.header("cache-control")
        reply = await wire.call("GET", "/openapi/v3/apis/batch/v1", if_none_match='"ABC"')
        assert reply.code == 304
        assert (await wire.call("GET", "/openapi/v3/apis/nope/v1")).code == 404

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize("path", [JOBS, f"{JOBS}/a", "/version", "/apis", "/openapi/v3"])
@pytest.mark.parametrize("timeout", ["invalid", "5", "1d", "-", "1.s1", "٣s"])
def test_a_timeout_that_is_no_duration_is_refused(tmp_path: Path, path: str, timeout: str) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", f"{path}?timeout={quote(timeout)}")
        assert reply.code == 400
        assert reply.json()["message"] == (
            f'invalid timeout specified in the request URL - time: invalid duration "{timeout}"'
        )

    with_server(ScriptedService({"a": job("a")}), tmp_path, test)


@pytest.mark.parametrize(
    "timeout", ["", "0", "32s", "6m52s", "1.5h", "%2B.5s", "100ms", "1%C2%B5s"]
)
def test_a_timeout_that_is_a_duration_changes_nothing(tmp_path: Path, timeout: str) -> None:
    async def test(wire: Wire) -> None:
        assert (await wire.call("GET", f"{JOBS}/a?timeout={timeout}")).code == 200

    with_server(ScriptedService({"a": job("a")}), tmp_path, test)


def test_a_watch_is_not_refused_for_its_timeout(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{JOBS}?watch=true&timeout=invalid"))
        assert (await read_head(reader))[0] == 200
        writer.close()
        await closed(writer)

    with_server(ScriptedService(), tmp_path, test)


OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.parametrize(
    ("accept", "content_type", "tag"),
    [
        ("", "application/json", "JS"),
        ("application/json, */*", "application/json", "JS"),
        ("*/*", "application/json", "JS"),
        (OPENAPI_PROTOBUF, OPENAPI_PROTOBUF.replace("@", "."), "PB"),
        (f"{OPENAPI_PROTOBUF},application/json", OPENAPI_PROTOBUF.replace("@", "."), "PB"),
        (f"{OPENAPI_PROTOBUF};q=0.5,application/json", "application/json", "JS"),
    ],
)
def test_the_older_openapi_document_has_two_forms(
    tmp_path: Path, accept: str, content_type: str, tag: str
) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", "/openapi/v2", accept=accept)
        assert reply.code == 200
        assert reply.header("content-type") == content_type
        assert (reply.header("etag"), reply.header("vary")) == (
            f'"{tag}"',
            "Accept, Accept-Encoding",
        )
        again = await wire.call("GET", "/openapi/v2", accept=accept, if_none_match=f'"{tag}"')
        assert (again.code, again.body) == (304, b"")
        refused = await wire.call("GET", "/openapi/v2", accept="text/html")
        assert (refused.code, refused.json()["reason"]) == (406, "NotAcceptable")

    with_server(ScriptedService(), tmp_path, test)


@pytest.mark.parametrize("path", ["/openapi/v3", "/openapi/v3/apis/batch/v1"])
def test_openapi_v3_is_refused_to_clients_that_do_not_take_json(tmp_path: Path, path: str) -> None:
    """client-go parses any response as the protobuf that it requested."""

    async def test(wire: Wire) -> None:
        only_protobuf = OPENAPI_PROTOBUF.replace("v2", "v3")
        refused = await wire.call("GET", path, accept=only_protobuf)
        assert (refused.code, refused.json()["reason"]) == (406, "NotAcceptable")
        both = await wire.call("GET", path, accept=f"{only_protobuf},application/json")
        assert (both.code, both.header("content-type")) == (200, "application/json")

    with_server(ScriptedService(), tmp_path, test)


def test_compressed_document_has_its_own_etag(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        path = "/openapi/v3/apis/large/v1"
        plain = await wire.call("GET", path)
        squeezed = await wire.call("GET", path, accept_encoding="gzip")
        assert gzip.decompress(squeezed.body) == plain.body
        assert (plain.header("etag"), squeezed.header("etag")) == ('"LARGE"', '"LARGE-gzip"')
        for reply in (plain, squeezed):
            assert reply.header("vary") == "Accept, Accept-Encoding"
        for tag in ('"LARGE"', '"LARGE-gzip"', 'W/"LARGE"', '"other", "LARGE-gzip"', "*"):
            again = await wire.call("GET", path, accept_encoding="gzip", if_none_match=tag)
            assert (again.code, again.body) == (304, b"")
            assert again.header("vary") == "Accept, Accept-Encoding"
            assert again.header("etag") == '"LARGE-gzip"'
        assert (await wire.call("GET", path, if_none_match='"LARGE-gzi"')).code == 200

    with_server(ScriptedService(), tmp_path, test)


def test_the_version_is_one_that_clients_can_parse(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        version = (await wire.call("GET", "/version?timeout=5s", token="")).json()
        assert (version["major"], version["minor"]) == ("1", "37")
        assert version["gitVersion"] == "v1.37.0"

    with_server(ScriptedService(), tmp_path, test)


def test_health_check_names_failed_check(tmp_path: Path) -> None:
    checks = {"store": lambda: "the disk is full"}

    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", "/readyz")
        assert reply.code == 500
        assert reply.body == (
            b"[+]ping ok\n[-]store failed: the disk is full\nreadyz check failed\n"
        )
        reply = await wire.call("GET", "/readyz?verbose&exclude=store")
        assert reply.code == 200
        assert b"readyz check passed" in reply.body
        assert (await wire.call("GET", "/readyz/ping")).code == 200
        assert (await wire.call("GET", "/readyz/store")).code == 500
        assert (await wire.call("GET", "/readyz/nope")).code == 404

    with_server(ScriptedService(), tmp_path, test, checks=checks)


def test_requests_are_counted(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        await wire.call("GET", JOBS)
        await wire.call("GET", f"{JOBS}/nope")
        jobs = RequestLabels(
            verb="LIST", group="batch", version="v1", resource="jobs", subresource=""
        )
        assert wire.metrics.requests.value(**jobs, code="200") == 1
        text = (await wire.call("GET", "/metrics")).body.decode()
        assert (
            'apiserver_request_total{verb="GET",group="batch",version="v1",resource="jobs",'
            'subresource="",code="404"} 1' in text
        )

    with_server(ScriptedService(), tmp_path, test)


# --- logs ---------------------------------------------------------------------------------


class ScriptedLogs:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        self.asked.append((namespace, name, container, options))
        return self._pieces(options.follow)

    async def _pieces(self, follow: bool) -> AsyncIterator[bytes]:
        yield b"one\n"
        yield b"two\n"
        if follow:
            await asyncio.get_running_loop().create_future()


def pod(*containers: str, node: str = "n") -> bytes:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": node, "containers": [{"name": name} for name in containers]},
    }
    return json.dumps(document).encode()


LOG = "/api/v1/namespaces/default/pods/p/log"


def test_logs_are_text(tmp_path: Path) -> None:
    logs = ScriptedLogs()

    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", f"{LOG}?tailLines=5&timestamps=true", accept_encoding="gzip")
        assert (reply.code, reply.body) == (200, b"one\ntwo\n")
        assert reply.header("content-type") == "text/plain"

    with_server(ScriptedService({"p": pod("c")}), tmp_path, test, logs=logs)
    assert logs.asked == [("default", "p", "c", LogOptions(timestamps=True, tail_lines=5))]


class RefusedLogs:
    """Log source that reports only after a while that there is no log."""

    async def logs(self, *_: Any) -> AsyncIterator[bytes]:
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.01)
        raise BadRequest('container "c" in pod "p" is waiting to start: ContainerCreating')
        yield b""


def test_a_log_that_does_not_exist_is_an_error_answer(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", f"{LOG}?follow=true")
        assert reply.code == 400
        assert "is waiting to start" in reply.json()["message"]

    with_server(ScriptedService({"p": pod("c")}), tmp_path, test, logs=RefusedLogs())


def test_followed_logs_end_with_the_server(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reader, writer = await wire.connect()
        writer.write(request_bytes("GET", f"{LOG}?follow=true"))
        await read_head(reader)
        assert await read_chunk(reader) == b"one\n"
        assert await read_chunk(reader) == b"two\n"
        await wire.server.stop()
        assert await read_chunk(reader) == b""
        writer.close()
        await closed(writer)

    with_server(ScriptedService({"p": pod("c")}), tmp_path, test, logs=ScriptedLogs())


@pytest.mark.parametrize(
    ("query", "containers", "message"),
    [
        ("", ("a", "b"), "a container name must be specified for pod p, choose one of: [a b]"),
        ("?container=x", ("a",), "container x is not valid for pod p"),
    ],
)
def test_it_must_be_clear_whose_log_is_meant(
    tmp_path: Path, query: str, containers: tuple[str, ...], message: str
) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", LOG + query)
        assert (reply.code, reply.json()["message"]) == (400, message)

    service = ScriptedService({"p": pod(*containers)})
    with_server(service, tmp_path, test, logs=ScriptedLogs())


def test_a_pod_that_is_nowhere_has_an_empty_log(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", LOG)
        assert (reply.code, reply.body) == (200, b"")
        assert (await wire.call("GET", LOG.replace("/p/", "/q/"))).code == 404
        assert (await wire.call("GET", f"{LOG}?tailLines=-1")).code == 422

    with_server(ScriptedService({"p": pod("a", node="")}), tmp_path, test, logs=ScriptedLogs())
