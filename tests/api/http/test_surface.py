"""Client-visible behaviour, verb by verb, with the real service behind the socket."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onejob.api.decoding.protobuf import decode_protobuf
from onejob.api.schema.protobuf_encoding import encode_object
from onejob.client.base import Bind
from onejob.objects.meta import Key
from tests.api.crd.build import DEFINITIONS, a_definition
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
from tests.build import a_job

PROTOBUF = "application/vnd.kubernetes.protobuf"

# --- create -------------------------------------------------------------------------------


def test_create_answers_with_the_object(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        reply = await api.call("POST", JOBS, a_job("a"))
        assert reply.code == 201
        metadata = reply.json()["metadata"]
        assert metadata["namespace"] == "default"
        assert metadata["generation"] == 1
        assert metadata["resourceVersion"].isdigit()
        assert list(reply.json())[:2] == ["apiVersion", "kind"]

    with_api(tmp_path, test)


def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        reply = await api.call("POST", f"{JOBS}?dryRun=All", a_job("a"))
        assert reply.code == 201
        assert reply.json()["metadata"]["uid"]
        assert "resourceVersion" not in reply.json()["metadata"]
        assert (await api.call("GET", f"{JOBS}/a")).code == 404
        await api.ok("POST", JOBS, a_job("a"))
        assert (await api.call("POST", f"{JOBS}?dryRun=All", a_job("a"))).code == 409

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    ("target", "body", "code", "message"),
    [
        (
            JOBS,
            {**a_job("a"), "metadata": {"name": "a", "namespace": "b"}},
            400,
            "the namespace of",
        ),
        (JOBS, {**a_job("a"), "kind": "Pod", "apiVersion": "v1"}, 400, ""),
        (
            "/apis/batch/v1/namespaces/nope/jobs",
            a_job("a"),
            404,
            'namespaces "nope" not found',
        ),
        (
            JOBS,
            a_job("A_b"),
            422,
            'Job.batch "A_b" is invalid: metadata.name: Invalid value: "A_b"',
        ),
        (JOBS, a_job("a", parallelism="x"), 400, "cannot be handled as a Job"),
        (
            f"{JOBS}?fieldValidation=Strict",
            a_job("a", foo=1),
            400,
            'Job in version "v1" cannot be handled as a Job: strict decoding error: '
            'unknown field "spec.foo"',
        ),
    ],
)
def test_rejected_create_names_reason(
    tmp_path: Path, target: str, body: Any, code: int, message: str
) -> None:
    async def test(api: Api) -> None:
        reply = await api.call("POST", target, body)
        assert reply.code == code, reply
        assert reply.json()["message"].startswith(message) or message in reply.json()["message"]

    with_api(tmp_path, test)


def test_unknown_and_duplicate_fields_are_warned_about(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        body = json.dumps(a_job("a", foo=1)).replace(
            '"foo": 1', '"foo": 1, "suspend": true, "suspend": true'
        )
        reply = await api.call("POST", JOBS, body.encode(), content_type="application/json")
        assert reply.code == 201
        warnings = {value for name, value in reply.headers if name == "warning"}
        assert warnings == {
            '299 - "unknown field \\"spec.foo\\""',
            '299 - "duplicate field \\"spec.suspend\\""',
        }
        assert "foo" not in reply.json()["spec"]
        quiet = await api.call("POST", f"{JOBS}?fieldValidation=Ignore", a_job("b", foo=1))
        assert quiet.header("warning") == ""

    with_api(tmp_path, test)


def test_bodies_may_be_yaml(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: 'yes'}\n"
        made = await api.ok("POST", CONFIGS, body, content_type="application/yaml")
        assert made["data"] == {"k": "yes"}
        body = body.replace(b"name: a", b"name: y")
        assert (await api.call("POST", CONFIGS, body, content_type="application/yaml")).code == 400

    with_api(tmp_path, test)


# --- lists --------------------------------------------------------------------------------


def test_list_pages_return_remaining_item_count(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        for number in range(5):
            await api.ok("POST", CONFIGS, config(f"c{number}"))
        first = await api.ok("GET", f"{CONFIGS}?limit=2")
        assert [item["metadata"]["name"] for item in first["items"]] == ["c0", "c1"]
        assert first["metadata"]["remainingItemCount"] == 3
        assert "kind" not in first["items"][0]
        token = first["metadata"]["continue"]
        rest = await api.ok("GET", f"{CONFIGS}?limit=9&continue={token}")
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c2", "c3", "c4"]
        assert rest["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}

    with_api(tmp_path, test)


def test_lists_of_nothing_are_empty_and_have_a_revision(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        for path in (JOBS, "/apis/batch/v1/jobs", "/apis/batch/v1/namespaces/nope/jobs"):
            empty = await api.ok("GET", path)
            assert (empty["kind"], empty["apiVersion"], empty["items"]) == (
                "JobList",
                "batch/v1",
                [],
            )
            assert int(empty["metadata"]["resourceVersion"]) > 0
        assert (await api.ok("GET", "/apis/apps/v1/daemonsets"))["items"] == []

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("labelSelector=a+in+(b", 400, ""),
        ("fieldSelector=x%3D1", 400, 'field label "x" not supported for Job'),
        ("fieldSelector=junk", 400, "invalid selector: 'junk'; can't understand 'junk'"),
        ("resourceVersion=abc", 400, ""),
        ("continue=abc", 400, ""),
        ("resourceVersion=99999", 504, "Too large resource version"),
    ],
)
def test_lists_that_cannot_be_had(tmp_path: Path, query: str, code: int, message: str) -> None:
    async def test(api: Api) -> None:
        reply = await api.call("GET", f"{JOBS}?{query}")
        assert reply.code == code
        assert message in reply.json()["message"]
        if code == 504:
            assert reply.json()["details"]["retryAfterSeconds"] == 1
            assert reply.header("retry-after") == "1"

    with_api(tmp_path, test)


def test_tables_have_the_columns_that_kubectl_prints(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", JOBS, a_job("a"))
        table = await api.ok("GET", f"{JOBS}?limit=500", accept=TABLE)
        columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
        assert columns == [
            ("Name", 0),
            ("Status", 0),
            ("Completions", 0),
            ("Duration", 0),
            ("Age", 0),
            ("Containers", 1),
            ("Images", 1),
            ("Selector", 1),
        ]
        assert table["rows"][0]["cells"][:3] == ["a", "Running", "0/1"]
        partial = await api.ok("GET", JOBS, accept=PARTIAL_LIST)
        assert partial["items"][0]["metadata"]["name"] == "a"
        assert "spec" not in partial["items"][0]

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/events",
        "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/services", "/api/v1/serviceaccounts",
        "/apis/batch/v1/cronjobs", "/apis/coordination.k8s.io/v1/leases",
        "/apis/events.k8s.io/v1/events", "/apis/apps/v1/replicasets",
        "/api/v1/replicationcontrollers",
    ],
)  # fmt: skip
def test_every_kind_has_a_table(tmp_path: Path, path: str) -> None:
    async def test(api: Api) -> None:
        table = await api.ok("GET", path, accept=TABLE)
        assert table["kind"] == "Table"
        assert len(table["columnDefinitions"]) >= 2

    with_api(tmp_path, test)


@pytest.mark.parametrize("name", ["a" * 64, "a" * 254, "-a"])
def test_invalid_name_in_two_labels_is_reported_once(tmp_path: Path, name: str) -> None:
    async def test(api: Api) -> None:
        status = (await api.call("POST", JOBS, a_job(name))).json()
        causes = [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]]
        assert len(causes) == len(set(causes))
        listed = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
        assert status["message"] == f'Job.batch "{name}" is invalid: {listed}'

    with_api(tmp_path, test)


def test_a_negative_count_is_refused_for_one_reason(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", JOBS, a_job("a"))
        reply = await api.call(
            "PATCH", f"{JOBS}/a/status", {"status": {"active": -1}}, content_type=MERGE
        )
        [cause] = reply.json()["details"]["causes"]
        assert (cause["field"], cause["reason"]) == ("status.active", "FieldValueInvalid")

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}},
        ),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
        (f"{PODS}/p/eviction", {"metadata": {"name": "p"}}),
        (f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}),
    ],
)
def test_review_kinds_have_no_table(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", PODS, pod("p"))
        only_table = TABLE.partition(",")[0]
        reply = await api.call("POST", path, body, accept=only_table)
        assert (reply.code, reply.json()["reason"]) == (406, "NotAcceptable")
        assert (await api.call("POST", path, body, accept=TABLE)).code == 201

    with_api(tmp_path, test)


def test_protobuf_is_served_if_it_is_the_only_accepted_form(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        created = await api.call("POST", JOBS, a_job("a"), accept=PROTOBUF)
        assert (created.code, created.header("content-type")) == (201, PROTOBUF)
        shown = await api.ok("GET", f"{JOBS}/a")
        found = await api.call("GET", f"{JOBS}/a", accept=PROTOBUF)
        assert decode_protobuf(found.body)["spec"] == shown["spec"]
        assert decode_protobuf(found.body)["metadata"]["uid"] == shown["metadata"]["uid"]
        listed = await api.call("GET", JOBS, accept=PROTOBUF)
        assert listed.header("content-type") == PROTOBUF
        assert b"JobList" in listed.body
        assert found.body[-200:-4] in listed.body
        missing = await api.call("GET", f"{JOBS}/b", accept=PROTOBUF)
        assert (missing.code, missing.json()["reason"]) == (404, "NotFound")

    with_api(tmp_path, test)


def test_definition_created_in_protobuf_is_served(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        sent = encode_object(json.dumps(a_definition()).encode())
        created = await api.call("POST", DEFINITIONS, sent, content_type=PROTOBUF, accept=PROTOBUF)
        assert (created.code, created.header("content-type")) == (201, PROTOBUF)
        shown = await api.ok("GET", f"{DEFINITIONS}/widgets.example.com")
        assert shown["spec"]["versions"] == a_definition()["spec"]["versions"]
        found = await api.call("GET", f"{DEFINITIONS}/widgets.example.com", accept=PROTOBUF)
        for part in ("metadata", "spec"):
            assert decode_protobuf(found.body)[part] == shown[part]

    with_api(tmp_path, test)


def test_first_concurrent_requests_get_the_whole_openapi_documents(tmp_path: Path) -> None:
    v2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    asked = [
        ("/openapi/v2", v2),
        ("/openapi/v2", "application/json"),
        ("/openapi/v3", "application/json"),
        ("/openapi/v3/apis/batch/v1", "application/json"),
    ]

    async def test(api: Api) -> None:
        first = await asyncio.gather(
            *(api.call("GET", path, accept=accept) for path, accept in asked * 3)
        )
        tags = {reply.header("etag") for reply in first}
        assert len(tags) == len(asked)
        for (path, accept), reply in zip(asked * 3, first, strict=True):
            again = await api.call("GET", path, accept=accept)
            assert (reply.code, reply.body) == (200, again.body)
            assert reply.header("content-type") == accept.replace("@", ".")
            assert reply.body.startswith(b"{" if accept == "application/json" else b"\n\x032.0")

    with_api(tmp_path, test)


def test_kinds_without_objects_have_no_protobuf(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        for query in ("", "?watch=true"):
            path = f"/api/v1/replicationcontrollers{query}"
            assert (await api.call("GET", path, accept=PROTOBUF)).code == 406

    with_api(tmp_path, test)


# --- watches ------------------------------------------------------------------------------


def test_watch_without_revision_starts_with_existing_objects(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a"))
        for query in ("watch=true", "watch=true&resourceVersion=0"):
            watch = await api.watch(f"{CONFIGS}?{query}")
            event = await watch.next()
            assert (event["type"], event["object"]["kind"]) == ("ADDED", "ConfigMap")
            assert event["object"]["apiVersion"] == "v1"
            await watch.close()

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/watch/configmaps", ["a", "b"]),
        ("/api/v1/watch/namespaces/default/configmaps", ["a", "b"]),
        ("/api/v1/watch/namespaces/default/configmaps/b", ["b"]),
        ("/api/v1/watch/namespaces/default/configmaps/b?labelSelector=!x", ["b"]),
        ("/api/v1/watch/namespaces/default/configmaps?fieldSelector=metadata.name%3Da", ["a"]),
    ],
)
def test_the_deprecated_watch_paths_are_watches(
    tmp_path: Path, path: str, names: list[str]
) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a"))
        await api.ok("POST", CONFIGS, config("b"))
        watch = await api.watch(path)
        seen = [(await watch.next())["object"]["metadata"]["name"] for _ in names]
        assert seen == names
        await api.call("DELETE", f"{CONFIGS}/{names[-1]}")
        assert (await watch.next())["type"] == "DELETED"
        await watch.close()
        assert (await api.call("POST", path, config("c"))).code == 405

    with_api(tmp_path, test)


def test_a_watch_in_protobuf_has_whole_objects_and_errors_in_frames(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a", key="value"))
        reply = await api.call("GET", f"{CONFIGS}?watch=true&timeoutSeconds=1", accept=PROTOBUF)
        assert reply.header("content-type") == f"{PROTOBUF};stream=watch"
        assert int.from_bytes(reply.body[:4], "big") == len(reply.body) - 4
        assert reply.body[4:11] == b"\n\x05ADDED"
        document = decode_protobuf(reply.body[reply.body.index(b"k8s\0") :])
        assert (document["kind"], document["data"]) == ("ConfigMap", {"key": "value"})

    with_api(tmp_path, test)


def test_initial_events_end_with_a_bookmark(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("a"))
        query = (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            "&allowWatchBookmarks=true"
        )
        watch = await api.watch(f"{CONFIGS}?{query}")
        assert (await watch.next())["type"] == "ADDED"
        bookmark = await watch.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "ConfigMap"
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) > 0
        await api.ok("POST", CONFIGS, config("b"))
        assert (await watch.next())["object"]["metadata"]["name"] == "b"
        await watch.close()

    with_api(tmp_path, test)


def test_initial_events_can_be_declined(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", CONFIGS, config("before"))
        for version in ("", "&resourceVersion=0"):
            watch = await api.watch(
                f"{CONFIGS}?watch=true&sendInitialEvents=false"
                f"&resourceVersionMatch=NotOlderThan{version}"
            )
            name = f"after{len(version)}"
            await api.ok("POST", CONFIGS, config(name))
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
            await watch.close()

    with_api(tmp_path, test)


def test_a_watch_ends_after_its_time(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        reply = await api.call("GET", f"{CONFIGS}?watch=true&timeoutSeconds=1&resourceVersion=1")
        assert (reply.code, reply.body) == (200, b"")

    with_api(tmp_path, test)


@pytest.mark.parametrize("selector", ["labelSelector=a+in+(", "fieldSelector=x%3D1"])
def test_a_watch_with_a_bad_selector_is_refused(tmp_path: Path, selector: str) -> None:
    async def test(api: Api) -> None:
        assert (await api.call("GET", f"{JOBS}?watch=true&{selector}")).code == 400

    with_api(tmp_path, test)


def test_a_watched_table_has_rows(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", JOBS, a_job("a"))
        watch = await api.watch(
            f"{JOBS}?watch=true&fieldSelector=metadata.name%3Da&resourceVersion=0", accept=TABLE
        )
        table = (await watch.next())["object"]
        assert table["rows"][0]["cells"][0] == "a"
        await api.ok("PATCH", f"{JOBS}/a", {"spec": {"suspend": True}}, content_type=MERGE)
        table = (await watch.next())["object"]
        assert table["columnDefinitions"] is None
        await watch.close()

    with_api(tmp_path, test)


# --- update and patch ---------------------------------------------------------------------


def test_put_needs_the_newest_version_or_none(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        stored = await api.ok("POST", JOBS, a_job("a"))
        await api.ok("PATCH", f"{JOBS}/a", {"metadata": {"labels": {"x": "1"}}}, content_type=MERGE)
        reply = await api.call("PUT", f"{JOBS}/a", stored)
        assert (reply.code, reply.json()["reason"]) == (409, "Conflict")
        assert reply.json()["message"] == (
            'Operation cannot be fulfilled on jobs.batch "a": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        del stored["metadata"]["resourceVersion"]
        assert (await api.call("PUT", f"{JOBS}/a", stored)).code == 200
        reply = await api.call("PUT", f"{JOBS}/b", stored)
        assert reply.json()["message"] == (
            "the name of the object (a) does not match the name on the URL (b)"
        )
        stored["metadata"]["name"] = ""
        assert (await api.call("PUT", f"{JOBS}/b", stored)).code == 400
        stored["metadata"]["name"] = "b"
        assert (await api.call("PUT", f"{JOBS}/b", stored)).code == 404

    with_api(tmp_path, test)


def test_status_and_spec_are_written_apart(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", JOBS, a_job("a"))
        patch = {
            "metadata": {"annotations": {"seen": "1"}},
            "spec": {"parallelism": 7},
            "status": {"active": 1},
        }
        answer = await api.ok("PATCH", f"{JOBS}/a/status", patch, content_type=MERGE)
        assert answer["status"]["active"] == 1
        assert answer["metadata"]["annotations"] == {"seen": "1"}
        assert answer["spec"]["parallelism"] == 1
        assert (await api.ok("GET", f"{JOBS}/a/status"))["spec"]["parallelism"] == 1
        answer = await api.ok("PATCH", f"{JOBS}/a", {"status": {"active": 5}}, content_type=MERGE)
        assert answer["status"]["active"] == 1

    with_api(tmp_path, test)


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("application/json-patch+json", [{"op": "test", "path": "/kind", "value": "Pod"}], 422),
        ("application/json-patch+json", [{"op": "remove", "path": "/nope/x"}], 422),
        ("application/json-patch+json", [{"op": "sing", "path": "/kind"}], 422),
        ("application/json-patch+json", {"op": "remove"}, 400),
        ("application/json-patch+json", b"x", 400),
        (MERGE, [], 400),
        (MERGE, {"spec": {"parallelism": "x"}}, 422),
        ("application/json", {}, 415),
        ("application/apply-patch+yaml", {}, 400),
    ],
)
def test_bad_patches(tmp_path: Path, content_type: str, body: Any, code: int) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", JOBS, a_job("a"))
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = f"{JOBS}/a?fieldManager=m"
        reply = await api.call("PATCH", target, raw, content_type=content_type)
        assert reply.code == code, reply

    with_api(tmp_path, test)


def test_apply_creates_with_201_and_needs_a_manager(tmp_path: Path) -> None:
    apply = "application/apply-patch+yaml"

    async def test(api: Api) -> None:
        body = json.dumps(config("a", k="1")).encode()
        reply = await api.call("PATCH", f"{CONFIGS}/a", body, content_type=apply)
        assert reply.code == 422
        assert reply.json()["message"] == (
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
            "is required for apply patch"
        )
        target = f"{CONFIGS}/a?fieldManager=one"
        assert (await api.call("PATCH", target, body, content_type=apply)).code == 201
        assert (await api.call("PATCH", target, body, content_type=apply)).code == 200
        other = json.dumps(config("a", k="2")).encode()
        reply = await api.call("PATCH", f"{CONFIGS}/a?fieldManager=two", other, content_type=apply)
        assert (reply.code, reply.json()["reason"]) == (409, "Conflict")
        forced = await api.call(
            "PATCH", f"{CONFIGS}/a?fieldManager=two&force=true", other, content_type=apply
        )
        assert forced.json()["data"] == {"k": "2"}

    with_api(tmp_path, test)


# --- delete -------------------------------------------------------------------------------


def test_immediate_deletion_returns_status(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        made = await api.ok("POST", JOBS, a_job("a"))
        answer = await api.ok("DELETE", f"{JOBS}/a", {"propagationPolicy": "Background"})
        assert answer == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {
                "name": "a",
                "group": "batch",
                "kind": "jobs",
                "uid": made["metadata"]["uid"],
            },
        }
        table = await api.call("DELETE", f"{JOBS}/a", accept=TABLE)
        assert (table.code, table.json()["kind"]) == (404, "Status")

    with_api(tmp_path, test)


WARNING = (
    '299 - "child pods are preserved by default when jobs are deleted; set '
    "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress "
    'this warning"'
)


def test_a_job_deleted_without_a_policy_is_orphaned_with_a_warning(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        for name in ("a", "b", "c"):
            await api.ok("POST", JOBS, a_job(name))
        reply = await api.call("DELETE", f"{JOBS}/a?dryRun=All")
        assert reply.json()["metadata"]["finalizers"] == ["orphan"]
        reply = await api.call("DELETE", f"{JOBS}/a")
        assert reply.json()["metadata"]["finalizers"] == ["orphan"]
        assert reply.header("warning") == WARNING
        for quiet in ("propagationPolicy=Orphan", "orphanDependents=true"):
            assert (await api.call("DELETE", f"{JOBS}/b?{quiet}")).header("warning") == ""
        assert (await api.call("DELETE", JOBS)).header("warning") == WARNING
        pod_reply = await api.call("DELETE", f"{PODS}/nope")
        assert pod_reply.header("warning") == ""

    with_api(tmp_path, test)


def test_delete_collection_returns_deleted_objects(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        for name in ("a", "b"):
            document = a_job(name)
            document["metadata"]["labels"] = {"x": name}
            await api.ok("POST", JOBS, document)
        options = {"propagationPolicy": "Background"}
        answer = await api.ok("DELETE", f"{JOBS}?labelSelector=x%3Da", options)
        assert answer["kind"] == "JobList"
        assert [item["metadata"]["name"] for item in answer["items"]] == ["a"]
        left = await api.ok("GET", JOBS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["b"]
        assert (await api.ok("DELETE", f"{JOBS}?labelSelector=x%3Da", options))["items"] == []

    with_api(tmp_path, test)


def test_preconditions_name_the_kind(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        made = await api.ok("POST", JOBS, a_job("a"))
        reply = await api.call("DELETE", f"{JOBS}/a", {"preconditions": {"uid": "x"}})
        assert reply.code == 409
        uid = made["metadata"]["uid"]
        assert reply.json()["message"] == (
            'Operation cannot be fulfilled on Job.batch "a": the UID in the precondition (x) does '
            f"not match the UID in record ({uid}). The object might have been deleted and then "
            "recreated"
        )

    with_api(tmp_path, test)


# --- Pods, reviews, extensions ------------------------------------------------------------


def test_binding_and_eviction_answer_with_a_status(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", PODS, pod("p"))
        target = {"target": {"kind": "Node", "name": "n"}, "metadata": {"name": "p"}}
        binding = {"apiVersion": "v1", "kind": "Binding", **target}
        reply = await api.call("POST", f"{PODS}/p/binding", binding)
        assert (reply.code, reply.json()["status"]) == (201, "Success")
        again = await api.call("POST", "/api/v1/namespaces/default/bindings", binding)
        assert again.code == 409
        assert again.json()["message"] == (
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to '
            'node "n"'
        )
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        reply = await api.call("POST", f"{PODS}/p/eviction", eviction)
        assert reply.code == 201
        assert reply.json() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }

    with_api(tmp_path, test)


def test_reviews_are_answered_and_not_kept(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "create", "resource": "jobs"}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        reply = await api.call("POST", path, body)
        assert (reply.code, reply.json()["status"]) == (201, {"allowed": True})
        assert (await api.call("GET", path)).code == 405

    with_api(tmp_path, test)


def test_a_job_knows_its_pods(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        made = await api.ok("POST", JOBS, a_job("a"))
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "a",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        await api.ok("POST", PODS, pod("mine", ownerReferences=[owner]))
        await api.ok("POST", PODS, pod("other"))
        found = await api.ok("GET", f"{JOBS}/a/pods")
        assert found["kind"] == "PodList"
        assert [item["metadata"]["name"] for item in found["items"]] == ["mine"]
        table = await api.ok("GET", f"{JOBS}/a/pods", accept=TABLE)
        assert table["rows"][0]["cells"][0] == "mine"
        assert (await api.call("GET", f"{JOBS}/nope/pods")).code == 404
        assert (await api.call("POST", f"{JOBS}/a/pods", {})).code == 405

    with_api(tmp_path, test)


def test_a_pod_that_waits_has_an_empty_log(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        await api.ok("POST", PODS, pod("p"))
        reply = await api.call("GET", f"{PODS}/p/log")
        assert (reply.code, reply.body) == (200, b"")
        await api.plane.client.write(Bind(Key("pods", "default", "p"), "n"))
        assert (await api.call("GET", f"{PODS}/p/log")).code == 200

    with_api(tmp_path, test)


def test_events_have_two_names(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Job", "name": "j", "namespace": "default"},
            "reason": "Because",
            "type": "Normal",
            "message": "text",
        }
        await api.ok("POST", "/api/v1/namespaces/default/events", event)
        new = await api.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")
        assert (new["apiVersion"], new["kind"]) == ("events.k8s.io/v1", "Event")
        assert (new["note"], new["regarding"]["name"]) == ("text", "j")
        listed = await api.ok("GET", "/apis/events.k8s.io/v1/events")
        assert (listed["apiVersion"], listed["kind"]) == ("events.k8s.io/v1", "EventList")
        assert "kind" not in listed["items"][0]
        assert listed["items"][0]["note"] == "text"
        watch = await api.watch("/apis/events.k8s.io/v1/events?watch=true")
        assert (await watch.next())["object"]["note"] == "text"
        await watch.close()
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        told = {
            "eventTime": "2026-11-15T12:00:00.000000Z",
            "action": "Test",
            "reportingController": "example.com/tester",
            "reportingInstance": "one",
        }
        await api.ok("POST", path, {**new, **told, "metadata": {"name": "f"}})
        assert (await api.ok("PATCH", f"{path}/f", {"note": "x"}, content_type=MERGE))[
            "note"
        ] == "x"
        core = await api.ok("GET", "/api/v1/namespaces/default/events/f")
        assert (core["apiVersion"], core["message"]) == ("v1", "x")
        table = await api.ok("GET", path, accept=TABLE)
        assert "text" in table["rows"][0]["cells"]
        selector = "fieldSelector=involvedObject.name%3Dj,involvedObject.kind%3DJob"
        assert len((await api.ok("GET", f"/api/v1/events?{selector}"))["items"]) == 2

    with_api(tmp_path, test)


def test_a_namespace_on_its_way_out_takes_nothing_new(tmp_path: Path) -> None:
    async def test(api: Api) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        made = await api.ok("POST", "/api/v1/namespaces", body)
        assert made["spec"]["finalizers"] == ["kubernetes"]
        assert made["status"]["phase"] == "Active"
        gone = await api.ok("DELETE", "/api/v1/namespaces/team")
        assert (gone["kind"], gone["status"]["phase"]) == ("Namespace", "Terminating")
        reply = await api.call("POST", "/apis/batch/v1/namespaces/team/jobs", a_job("a"))
        assert (reply.code, reply.json()["reason"]) == (403, "Forbidden")
        assert reply.json()["details"]["causes"][0]["reason"] == "NamespaceTerminating"

    with_api(tmp_path, test)
