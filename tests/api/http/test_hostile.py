"""Invalid requests: refused with a message, and without partial effects."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from onejob.wire.requests import LogOptions
from tests.api.http.documents import (
    CONFIGS,
    JOBS,
    MERGE,
    PARTIAL_LIST,
    PODS,
    TABLE,
    Api,
    config,
    pod,
    with_api,
)
from tests.harness import running_http

BINDINGS = "/api/v1/namespaces/default/bindings"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.mark.parametrize(
    ("accept", "query", "code"),
    [("text/html", "", 406), (PARTIAL_LIST, "", 406), (TABLE, "?includeObject=All", 400)],
)
def test_nothing_is_written_that_cannot_be_answered(
    tmp_path: Path, accept: str, query: str, code: int
) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("kept"))
        replies = [
            await api.call("POST", CONFIGS + query, config("new"), accept=accept),
            await api.call("PUT", f"{CONFIGS}/kept{query}", config("kept", a="b"), accept=accept),
            await api.call(
                "PATCH",
                f"{CONFIGS}/kept{query}",
                {"data": {"a": "b"}},
                content_type=MERGE,
                accept=accept,
            ),
            await api.call("DELETE", f"{CONFIGS}/kept{query}", accept=accept),
        ]
        assert [reply.code for reply in replies] == [code] * 4
        assert (await api.call("GET", f"{CONFIGS}/new")).code == 404
        assert not (await api.ok("GET", f"{CONFIGS}/kept")).get("data")

    with_api(tmp_path, test)


def test_no_collection_is_deleted_that_cannot_be_answered(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("kept"))
        reply = await api.call("DELETE", CONFIGS, accept="text/html")
        assert reply.code == 406
        await api.ok("GET", f"{CONFIGS}/kept")

    with_api(tmp_path, test)


# --- bindings and evictions ---------------------------------------------------------------

ODD: tuple[Any, ...] = (0, 1.5, True, "x", [], [None], ["a"], {"x": {"y": [1]}}, 10**30)


def odd_bindings_and_evictions() -> Iterator[tuple[str, Any]]:
    to_node = {"target": {"name": "n"}}
    for odd in ODD:
        yield f"{PODS}/p/binding", {"target": odd}
        yield BINDINGS, {**to_node, "metadata": odd}
        yield BINDINGS, {**to_node, "metadata": {"name": odd}}
        if odd != "x":
            yield f"{PODS}/p/binding", {"target": {"name": odd}}
        if odd != 0:
            yield f"{PODS}/p/eviction", {"deleteOptions": {"gracePeriodSeconds": odd}}
        if not isinstance(odd, list):
            yield f"{PODS}/p/eviction", {"deleteOptions": {"dryRun": odd}}
        if not isinstance(odd, dict):
            # Unknown fields are dropped, as everywhere.
            yield f"{PODS}/p/binding", {**to_node, "metadata": odd}
            yield f"{PODS}/p/eviction", {"metadata": odd}
            yield f"{PODS}/p/eviction", {"deleteOptions": odd}
            yield f"{PODS}/p/eviction", {"deleteOptions": {"preconditions": odd}}
    yield f"{PODS}/p/eviction", {"deleteOptions": {"propagationPolicy": "Sideways"}}
    yield f"{PODS}/p/eviction", {"kind": "Job", "apiVersion": "batch/v1"}
    yield f"{PODS}/p/binding", {"kind": "Job", "apiVersion": "batch/v1", **to_node}


def test_odd_bindings_and_evictions_are_refused(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        before = await api.ok("POST", PODS, pod("p"))
        for path, body in odd_bindings_and_evictions():
            reply = await api.call("POST", path, body)
            assert reply.code in (400, 404, 422), (path, body, reply)
        assert await api.ok("GET", f"{PODS}/p") == before

    with_api(tmp_path, test)


def test_eviction_with_wrong_uid_does_not_modify_pod(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        before = await api.ok("POST", PODS, pod("p"))
        body = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "other"}}}
        assert (await api.call("POST", f"{PODS}/p/eviction", body)).code == 409
        assert await api.ok("GET", f"{PODS}/p") == before

    with_api(tmp_path, test)


# --- lists and watches --------------------------------------------------------------------


def token(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "query",
    [
        f"continue={token(10**9, 'configmaps', 'default', 'a')}",
        f"continue={token(10**30, 'configmaps', 'default', 'a')}",
        f"continue={token(-5, 'configmaps', 'default', 'a')}",
        f"continue={token(0, 'configmaps', 'default', 'a')}",
        f"continue={token(1, 'pods', 'default', 'a')}",
        f"continue={token(1, 'configmaps', 'elsewhere', 'a')}",
        f"continue={token(1, 'configmaps', 'default', 'a')}&resourceVersion=1",
        f"resourceVersion={'9' * 40}",
        f"resourceVersion={'9' * 5000}",
        f"watch=true&resourceVersion={'9' * 5000}",
    ],
    ids=lambda query: query[:60],
)
def test_made_up_tokens_and_revisions_are_bad_requests(tmp_path: Path, query: str) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a"))
        reply = await api.call("GET", f"{CONFIGS}?limit=1&{query}")
        assert (reply.code, reply.json()["reason"]) == (400, "BadRequest")

    with_api(tmp_path, test)


@pytest.mark.parametrize("target", [f"{CONFIGS}?watch=true&", f"{CONFIGS}?", f"{CONFIGS}/a?"])
def test_revision_of_another_database_is_rejected(tmp_path: Path, target: str) -> None:
    """A client of a discarded store would wait forever otherwise."""

    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a"))
        reply = await api.call("GET", f"{target}resourceVersion=1000000")
        assert reply.code == 504
        assert reply.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert (await api.call("GET", f"{CONFIGS}/a?resourceVersion=x")).code == 400

    with_api(tmp_path, test)


class CountedLogs:
    """Endless logs, with a count of the open ones."""

    def __init__(self) -> None:
        self.opened = 0

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        self.opened += 1
        return self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        yield b"line\n"
        await asyncio.Event().wait()


async def test_asking_for_the_head_of_a_log_opens_none(tmp_path: Path) -> None:
    source = CountedLogs()
    async with running_http(tmp_path, logs=source) as plane:
        api = Api(plane)
        bound = pod("p")
        bound["spec"]["nodeName"] = "n"
        await api.ok("POST", PODS, bound)
        assert (await api.call("HEAD", f"{PODS}/p/log?follow=true")).code == 200
        assert source.opened == 0


# --- writes that race or grow -------------------------------------------------------------


def test_collections_may_be_deleted_twice_at_once(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        for index in range(20):
            await api.ok("POST", CONFIGS, config(f"c{index}"))
        replies = await asyncio.gather(*(api.call("DELETE", CONFIGS) for _ in range(6)))
        assert [reply.code for reply in replies] == [200] * 6
        deleted = [item["metadata"]["name"] for r in replies for item in r.json()["items"]]
        assert sorted(deleted) == sorted(f"c{index}" for index in range(20))

    with_api(tmp_path, test)


def test_a_patch_cannot_grow_without_bound(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a", text="x" * 1000))
        doubling = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(40)]
        reply = await api.call(
            "PATCH", f"{CONFIGS}/a", doubling, content_type="application/json-patch+json"
        )
        assert reply.code == 422
        assert "accumulated size" in reply.json()["message"]

    with_api(tmp_path, test)


def test_a_patch_cannot_dig_without_bound(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {}}
        root = "/metadata/managedFields/0/fieldsV1"
        deeper = [{"op": "add", "path": root + "/a" * n, "value": {}} for n in range(1, 1500)]
        await api.ok("POST", CONFIGS, config("a"))
        reply = await api.call(
            "PATCH",
            f"{CONFIGS}/a",
            [{"op": "add", "path": "/metadata/managedFields", "value": [entry]}, *deeper],
            content_type="application/json-patch+json",
        )
        assert reply.code == 422
        assert "depth" in reply.json()["message"]

    with_api(tmp_path, test)


def test_no_answer_has_more_headers_than_clients_read(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        unknown = {f"u{index}": 1 for index in range(500)}
        reply = await api.call("POST", CONFIGS, {**config("a"), **unknown})
        assert reply.code == 201
        assert len([name for name, _ in reply.headers if name == "warning"]) > 50
        assert len(reply.headers) < 100

    with_api(tmp_path, test)


def test_large_yaml_body_does_not_block_other_requests(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        slow = b"a: {" + b"b: [c, d], " * 60_000 + b"}"
        turns = 0
        request = asyncio.ensure_future(
            api.call("POST", CONFIGS, slow, content_type="application/yaml")
        )
        while not request.done():
            assert (await api.call("GET", "/healthz")).code == 200
            turns += 1
        assert (await request).code in (400, 422)
        assert turns > 1

    with_api(tmp_path, test)


# --- names that are taken or protected ----------------------------------------------------


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_the_first_namespaces_stay(tmp_path: Path, name: str) -> None:
    async def test(api: Api) -> None:
        if name != "default":
            await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        reply = await api.call("DELETE", f"/api/v1/namespaces/{name}")
        assert reply.code == 403
        assert reply.json()["message"] == (
            f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )

    with_api(tmp_path, test)


def test_applying_to_an_object_that_was_recreated_or_is_gone_conflicts(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gone", "uid": "once"},
        }
        reply = await api.call(
            "PATCH",
            f"{CONFIGS}/gone?fieldManager=m",
            body,
            content_type="application/apply-patch+yaml",
        )
        assert (reply.code, reply.json()["reason"]) == (409, "Conflict")
        assert "uid mismatch" in reply.json()["message"]

    with_api(tmp_path, test)


# --- Events under their second name -------------------------------------------------------

EVENT = {
    "metadata": {"name": "e"},
    "eventTime": "2026-11-15T12:00:00.000000Z",
    "regarding": {"kind": "Job", "name": "j", "namespace": "default"},
    "reason": "Tested",
    "note": "first",
    "action": "Test",
    "type": "Normal",
    "reportingController": "example.com/tester",
    "reportingInstance": "one",
}


def test_json_patches_name_the_fields_that_are_served(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", EVENTS, EVENT)
        patch = [
            {"op": "test", "path": "/regarding/name", "value": "j"},
            {"op": "replace", "path": "/note", "value": "second"},
            {"op": "copy", "from": "/note", "path": "/metadata/annotations"},
            {"op": "replace", "path": "/metadata/annotations", "value": {"a": "b"}},
        ]
        patched = await api.ok(
            "PATCH", f"{EVENTS}/e", patch, content_type="application/json-patch+json"
        )
        assert patched["note"] == "second"
        core = await api.ok("GET", "/api/v1/namespaces/default/events/e")
        assert core["message"] == "second"

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("regarding.name=j,regarding.kind=Job", 1),
        ("reportingController=example.com/tester", 1),
        ("regarding.name!=j", 0),
        ("reason=Tested", 1),
    ],
)
def test_selectors_name_the_fields_that_are_served(
    tmp_path: Path, selector: str, found: int
) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", EVENTS, EVENT)
        encoded = selector.replace("=", "%3D").replace("!", "%21")
        listed = await api.ok("GET", f"{EVENTS}?fieldSelector={encoded}")
        assert len(listed["items"]) == found

    with_api(tmp_path, test)


def test_fields_of_the_other_name_are_unknown(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        reply = await api.call("GET", f"{EVENTS}?fieldSelector=involvedObject.name%3Dj")
        assert reply.json()["message"] == "field label not supported: involvedObject.name"
        strict = await api.call(
            "POST", f"{EVENTS}?fieldValidation=Strict", {**EVENT, "message": "core"}
        )
        assert strict.code == 400
        assert 'unknown field "message"' in strict.json()["message"]
        twice = json.dumps(EVENT)[:-1].encode() + b',"note":"again"}'
        strict = await api.call("POST", f"{EVENTS}?fieldValidation=Strict", twice)
        assert 'duplicate field "note"' in strict.json()["message"]
        incomplete = {name: value for name, value in EVENT.items() if name != "eventTime"}
        refused = await api.call("POST", EVENTS, incomplete)
        assert refused.json()["details"]["causes"][0]["field"] == "eventTime"
        wrong = await api.call("POST", EVENTS, {**EVENT, "note": 5})
        assert wrong.code == 400
        assert (await api.ok("GET", EVENTS))["items"] == []
        assert (await api.call("GET", JOBS)).code == 200

    with_api(tmp_path, test)
