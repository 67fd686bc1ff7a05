"""Contract of `Client`: in-process, in-process with validation, and over HTTPS.

The HTTPS client is tested with onejob and with a real kube-apiserver.
"""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.client.base import (
    Bind,
    Client,
    Create,
    Delete,
    Evict,
    Patch,
    PatchType,
    Replace,
    Selection,
    WatchEvent,
    Written,
)
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.informers.informer import Informer
from onejob.objects.meta import Key
from onejob.store.limits import Limits
from onejob.wire.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Invalid,
    NotFound,
)
from tests import build
from tests.harness import checked, ensure_namespace, running, running_http

Followed = Informer[dict[str, Any]]
Test = Callable[[Client], Coroutine[Any, Any, None]]
Run = Callable[..., None]


#: `make upstream-contract` adds a real kube-apiserver.
_KINDS = [
    "trusted",
    "checked",
    "http",
    *(["upstream"] if os.environ.get("ONEJOB_UPSTREAM") else []),
]


@pytest.fixture(params=_KINDS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a test with one implementation of Client."""

    async def with_client(test: Test, options: dict[str, Any]) -> None:
        if request.param == "upstream":
            await with_upstream(test, request.getfixturevalue("upstream"))
            return
        if request.param == "http":
            async with running_http(tmp_path, **options) as plane:
                await test(plane.http)
            return
        async with running(tmp_path, **options) as local:
            await test(local.client if request.param == "trusted" else checked(local.service))

    def run(test: Test, **options: Any) -> None:
        if request.param == "upstream" and "limits" in options:
            pytest.skip("how long a real etcd remembers is not ours to set")
        asyncio.run(with_client(test, options))

    return run


async def with_upstream(test: Test, kubeconfig: Path) -> None:
    client = HttpClient(load_kubeconfig(kubeconfig, SystemClock()), rng=Random(1))
    try:
        await test(client)
    finally:
        await empty(client)
        await client.close()


async def empty(client: Client) -> None:
    """Remove the objects of tests: many of them share this server."""
    for resource in ("jobs.batch", "pods", "configmaps"):
        for document in (await client.list(Selection(resource, "default"))).documents:
            metadata = json.loads(document)["metadata"]
            key = Key(resource, "default", metadata["name"])
            if metadata.get("finalizers"):
                await client.write(Patch(key, b'{"metadata":{"finalizers":null}}', "merge"))
            if "deletionTimestamp" not in metadata or resource == "pods":
                await client.write(Delete(key, "Background", grace_seconds=0))
    other = Key("namespaces", "", "other")
    async with asyncio.timeout(60):
        while True:
            try:
                await client.write(Delete(other))
                await asyncio.sleep(0.2)
            except NotFound:
                return
            except Conflict:
                await asyncio.sleep(0.2)


def job(name: str, **spec: Any) -> dict[str, Any]:
    return build.a_job(name, metadata={"namespace": "default", "labels": {"app": name}}, **spec)


def pod(name: str) -> dict[str, Any]:
    return build.a_pod(name, metadata={"namespace": "default"})


def config(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


def encode(document: Any) -> bytes:
    return json.dumps(document).encode()


def jobs(name: str) -> Key:
    return Key("jobs.batch", "default", name)


def configs(name: str) -> Key:
    return Key("configmaps", "default", name)


def create_job(name: str, **spec: Any) -> Create:
    return Create("jobs.batch", "default", encode(job(name, **spec)))


def create_config(name: str, **data: str) -> Create:
    return Create("configmaps", "default", encode(config(name, **data)))


def create_pod(name: str) -> Create:
    return Create("pods", "default", encode(pod(name)))


async def read(client: Client, key: Key) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(await client.get(key))
    return document


async def collect(client: Client, what: Selection, after: int, count: int) -> Sequence[WatchEvent]:
    """Return the first events of a watch, without bookmarks."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(30), aclosing(client.watch(what, after=after)) as batches:
        async for batch in batches:
            found += [event for event in batch if event.type != "BOOKMARK"]
            if len(found) >= count:
                break
    return found


# --- one object ---------------------------------------------------------------------------


def test_created_object_can_be_read(run: Run) -> None:
    async def test(client: Client) -> None:
        written = await client.write(create_job("a"))
        created = json.loads(written.document)
        assert created["metadata"]["uid"]
        assert created["metadata"]["resourceVersion"] == str(written.revision)
        assert created["spec"]["backoffLimit"] == 6
        assert await read(client, jobs("a")) == created
        assert (created["apiVersion"], created["kind"]) == ("batch/v1", "Job")

    run(test)


def test_cluster_scoped_objects_have_no_namespace(run: Run) -> None:
    async def test(client: Client) -> None:
        await ensure_namespace(client, "other")
        assert (await read(client, Key("namespaces", "", "other")))["kind"] == "Namespace"

    run(test)


def test_missing_object_is_not_found(run: Run) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(NotFound) as raised:
            await client.get(jobs("nope"))
        assert raised.value.message == 'jobs.batch "nope" not found'
        assert raised.value.details == {"name": "nope", "group": "batch", "kind": "jobs"}
        for op in (
            Replace(jobs("nope"), encode(job("nope"))),
            Patch(jobs("nope"), b"{}", "merge"),
            Delete(jobs("nope")),
        ):
            with pytest.raises(NotFound):
                await client.write(op)

    run(test)


def test_a_name_is_taken_once(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write(create_job("a"))
        with pytest.raises(AlreadyExists) as raised:
            await client.write(create_job("a"))
        assert raised.value.message == 'jobs.batch "a" already exists'

    run(test)


def test_an_invalid_object_is_refused_field_by_field(run: Run) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(Invalid) as raised:
            await client.write(create_job("a", parallelism=-1))
        error = raised.value
        assert error.code == 422
        assert error.details["kind"] == "Job"
        assert [cause["field"] for cause in error.details["causes"]] == ["spec.parallelism"]
        assert 'Job.batch "a" is invalid: spec.parallelism: Invalid value: -1' in error.message

    run(test)


def test_nothing_is_created_in_a_namespace_that_is_not_there(run: Run) -> None:
    async def test(client: Client) -> None:
        document = {**config("a"), "metadata": {"name": "a"}}
        with pytest.raises(NotFound) as raised:
            await client.write(Create("configmaps", "nowhere", encode(document)))
        assert raised.value.message == 'namespaces "nowhere" not found'

    run(test)


def test_replacing_needs_the_newest_revision(run: Run) -> None:
    async def test(client: Client) -> None:
        first = await client.write(create_config("a", k="1"))
        document = json.loads(first.document)
        document["data"]["k"] = "2"
        second = await client.write(Replace(configs("a"), encode(document)))
        assert second.revision > first.revision
        with pytest.raises(Conflict) as raised:
            await client.write(Replace(configs("a"), encode(document)))
        assert "the object has been modified" in raised.value.message
        assert (await read(client, configs("a")))["data"] == {"k": "2"}

    run(test)


def test_status_is_written_apart(run: Run) -> None:
    async def test(client: Client) -> None:
        written = await client.write(create_pod("p"))
        document = json.loads(written.document)
        document["status"] = {**document.get("status", {}), "phase": "Running"}
        document["metadata"]["annotations"] = {"seen": "yes"}
        key = Key("pods", "default", "p")
        await client.write(Replace(key, encode(document), "status"))
        stored = await read(client, key)
        assert stored["status"]["phase"] == "Running"
        assert stored["metadata"]["annotations"] == {"seen": "yes"}
        await client.write(Patch(key, b'{"status":{"phase":"Failed"}}', "merge"))
        assert (await read(client, key))["status"]["phase"] == "Running"

    run(test)


@pytest.mark.parametrize(
    ("patch_type", "body", "labels"),
    [
        (
            "json",
            [{"op": "add", "path": "/metadata/labels/b", "value": "2"}],
            {"app": "a", "b": "2"},
        ),
        ("merge", {"metadata": {"labels": {"app": None, "b": "2"}}}, {"b": "2"}),
        ("strategic", {"metadata": {"labels": {"$patch": "replace", "b": "2"}}}, {"b": "2"}),
    ],
)
def test_patches_of_each_type(
    run: Run, patch_type: PatchType, body: Any, labels: dict[str, str]
) -> None:
    async def test(client: Client) -> None:
        document = config("a")
        document["metadata"]["labels"] = {"app": "a"}
        await client.write(Create("configmaps", "default", encode(document)))
        written = await client.write(Patch(configs("a"), encode(body), patch_type))
        assert json.loads(written.document)["metadata"]["labels"] == labels
        assert (await read(client, configs("a")))["metadata"]["labels"] == labels

    run(test)


def test_an_apply_patch_creates_and_then_changes(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write(Patch(configs("a"), encode(config("a", k="1")), "apply"))
        await client.write(Patch(configs("a"), encode(config("a", k="2")), "apply"))
        assert (await read(client, configs("a")))["data"] == {"k": "2"}

    run(test)


def test_a_patch_that_changes_nothing_keeps_the_revision(run: Run) -> None:
    async def test(client: Client) -> None:
        first = await client.write(create_config("a", k="1"))
        second = await client.write(Patch(configs("a"), b'{"data":{"k":"1"}}', "merge"))
        assert second.revision == first.revision

    run(test)


def test_a_revision_in_a_patch_is_a_precondition(run: Run) -> None:
    async def test(client: Client) -> None:
        first = await client.write(create_config("a", k="1"))
        guarded = {
            "metadata": {"resourceVersion": str(first.revision)},
            "data": {"k": "2"},
        }
        await client.write(Patch(configs("a"), encode(guarded), "merge"))
        with pytest.raises(Conflict):
            await client.write(Patch(configs("a"), encode(guarded), "merge"))

    run(test)


def test_a_json_patch_whose_test_fails_is_invalid(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write(create_config("a", k="1"))
        body = [{"op": "test", "path": "/data/k", "value": "2"}]
        with pytest.raises(ApiError) as raised:
            await client.write(Patch(configs("a"), encode(body), "json"))
        assert raised.value.code == 422

    run(test)


# --- deleting -----------------------------------------------------------------------------


def test_a_deleted_object_is_gone(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write(create_config("a"))
        await client.write(Delete(configs("a")))
        with pytest.raises(NotFound):
            await client.get(configs("a"))

    run(test)


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])],
)
def test_a_policy_may_keep_the_object_for_a_while(
    run: Run, propagation: Any, finalizers: list[str]
) -> None:
    async def test(client: Client) -> None:
        await client.write(create_job("a"))
        written = await client.write(Delete(jobs("a"), propagation))
        marked = json.loads(written.document)
        assert marked["metadata"]["finalizers"] == finalizers
        assert marked["metadata"]["deletionTimestamp"]
        assert await read(client, jobs("a")) == marked
        await client.write(Patch(jobs("a"), b'{"metadata":{"finalizers":null}}', "merge"))
        with pytest.raises(NotFound):
            await client.get(jobs("a"))

    run(test)


@pytest.mark.parametrize("field", ["uid", "resource_version"])
def test_preconditions_protect_another_object(run: Run, field: str) -> None:
    async def test(client: Client) -> None:
        written = await client.write(create_job("a"))

        def delete(value: str) -> Delete:
            if field == "uid":
                return Delete(jobs("a"), "Background", uid=value)
            return Delete(jobs("a"), "Background", resource_version=value)

        with pytest.raises(Conflict) as raised:
            await client.write(delete("other"))
        assert "in the precondition (other) does not match" in raised.value.message
        metadata = json.loads(written.document)["metadata"]
        good = metadata["uid"] if field == "uid" else metadata["resourceVersion"]
        await client.write(delete(good))
        with pytest.raises(NotFound):
            await client.get(jobs("a"))

    run(test)


def test_a_running_pod_gets_its_grace(run: Run) -> None:
    async def test(client: Client) -> None:
        key = Key("pods", "default", "p")
        await client.write(create_pod("p"))
        await client.write(Bind(key, "node-1"))
        written = await client.write(Delete(key, grace_seconds=7))
        assert json.loads(written.document)["metadata"]["deletionGracePeriodSeconds"] == 7
        await client.write(Delete(key, grace_seconds=0))
        with pytest.raises(NotFound):
            await client.get(key)

    run(test)


# --- Pods ---------------------------------------------------------------------------------


def test_a_pod_is_bound_once(run: Run) -> None:
    async def test(client: Client) -> None:
        key = Key("pods", "default", "p")
        uid = json.loads((await client.write(create_pod("p"))).document)["metadata"]["uid"]
        with pytest.raises(Conflict):
            await client.write(Bind(key, "node-1", "another-uid"))
        await client.write(Bind(key, "node-1", uid))
        assert (await read(client, key))["spec"]["nodeName"] == "node-1"
        with pytest.raises(Conflict, match="already assigned"):
            await client.write(Bind(key, "node-2", uid))

    run(test)


def test_evicted_pod_has_disruption_condition(run: Run) -> None:
    async def test(client: Client) -> None:
        key = Key("pods", "default", "p")
        await client.write(create_pod("p"))
        await client.write(Bind(key, "node-1"))
        await client.write(Evict(key, grace_seconds=5))
        stored = await read(client, key)
        assert stored["metadata"]["deletionGracePeriodSeconds"] == 5
        conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
        assert conditions["DisruptionTarget"] == "True"

    run(test)


async def followed(client: Client, what: Selection, test: Callable[[Followed], Any]) -> None:
    informer: Followed = Informer(client, what, json.loads, lambda view: key_of(what, view))
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(30):
            await informer.synced()
            await test(informer)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def key_of(what: Selection, view: dict[str, Any]) -> Key:
    return Key(what.resource, view["metadata"]["namespace"], view["metadata"]["name"])


def test_a_cache_can_wait_for_a_binding_and_an_eviction(run: Run) -> None:
    async def test(client: Client) -> None:
        async def read_own_writes(pods: Followed) -> None:
            key = Key("pods", "default", "p")
            created = await client.write(create_pod("p"))
            bound = await client.write(Bind(key, "node-1"))
            assert bound.revision > created.revision
            await pods.reached(bound.revision)
            await pods.flush_deferred()
            view = pods.cache.get(key)
            assert view is not None
            assert view["spec"]["nodeName"] == "node-1"
            evicted = await client.write(Evict(key, grace_seconds=5))
            assert evicted.revision > bound.revision
            await pods.reached(evicted.revision)
            view = pods.cache.get(key)
            assert view is not None
            assert "deletionTimestamp" in view["metadata"]
            gone = await client.write(Evict(key, grace_seconds=0))
            assert gone.revision > evicted.revision
            await pods.reached(gone.revision)
            assert pods.cache.get(key) is None

        await followed(client, Selection("pods"), read_own_writes)

    run(test)


@pytest.mark.parametrize("resource", ["pods", "configmaps", "jobs.batch"])
def test_a_cache_can_wait_for_an_immediate_deletion(run: Run, resource: str) -> None:
    create = {"pods": create_pod, "configmaps": create_config, "jobs.batch": create_job}[resource]

    async def test(client: Client) -> None:
        async def read_own_writes(objects: Followed) -> None:
            created = await client.write(create("a"))
            deleted = await client.write(
                Delete(Key(resource, "default", "a"), "Background", grace_seconds=0)
            )
            assert deleted.revision > created.revision
            await objects.reached(deleted.revision)
            assert len(objects.cache) == 0

        await followed(client, Selection(resource, "default"), read_own_writes)

    run(test)


# --- many objects -------------------------------------------------------------------------


def test_write_many_reports_each_result(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write(create_config("taken"))
        results = await client.write_many(
            [
                create_config("a"),
                create_config("taken"),
                Delete(configs("missing")),
                Patch(configs("taken"), b'{"data":{"k":"1"}}', "merge"),
                create_config("b"),
            ]
        )
        assert [type(result) for result in results] == [
            Written,
            AlreadyExists,
            NotFound,
            Written,
            Written,
        ]
        listing = await client.list(Selection("configmaps", "default"))
        assert names(listing.documents) == ["a", "b", "taken"]

    run(test)


def test_write_many_of_nothing_is_nothing(run: Run) -> None:
    async def test(client: Client) -> None:
        assert list(await client.write_many([])) == []

    run(test)


def test_write_many_of_many(run: Run) -> None:
    async def test(client: Client) -> None:
        results = await client.write_many([create_config(f"c{i:03}") for i in range(200)])
        written = [result for result in results if isinstance(result, Written)]
        assert len(written) == 200
        assert [json.loads(w.document)["metadata"]["name"] for w in written] == [
            f"c{i:03}" for i in range(200)
        ]

    run(test)


def test_writes_of_one_object_are_tried_in_order(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write_many([create_config("a"), create_config("b")])
        numbers = [str(number) for number in range(40)]
        results = await client.write_many(
            [
                Patch(configs(name), json.dumps({"data": {"k": number}}).encode(), "merge")
                for number in numbers
                for name in ("a", "b")
            ]
        )
        revisions = [result.revision for result in results if isinstance(result, Written)]
        assert len(revisions) == 2 * len(numbers)
        for of_one in (revisions[::2], revisions[1::2]):
            assert of_one == sorted(of_one)
        for name in ("a", "b"):
            document = json.loads(await client.get(configs(name)))
            assert document["data"] == {"k": numbers[-1]}

    run(test)


def test_lists_hold_whole_documents(run: Run) -> None:
    async def test(client: Client) -> None:
        written = await client.write(create_job("a"))
        listing = await client.list(Selection("jobs.batch", "default"))
        assert [json.loads(document) for document in listing.documents] == [
            json.loads(written.document)
        ]
        assert listing.revision >= written.revision
        assert listing.continue_token == ""

    run(test)


def test_lists_select(run: Run) -> None:
    async def test(client: Client) -> None:
        await ensure_namespace(client, "other")
        await client.write_many([create_job("a"), create_job("b")])
        elsewhere = job("a")
        elsewhere["metadata"]["namespace"] = "other"
        await client.write(Create("jobs.batch", "other", encode(elsewhere)))

        async def found(what: Selection) -> list[str]:
            return names((await client.list(what)).documents)

        assert await found(Selection("jobs.batch")) == ["a", "b", "a"]
        assert await found(Selection("jobs.batch", "default")) == ["a", "b"]
        assert await found(Selection("jobs.batch", "default", labels="app=a")) == ["a"]
        assert await found(Selection("jobs.batch", "default", labels="app!=a")) == ["b"]
        assert await found(Selection("jobs.batch", "", fields="metadata.name=a")) == ["a", "a"]
        assert await found(Selection("jobs.batch", "nowhere")) == []
        with pytest.raises(BadRequest):
            await found(Selection("jobs.batch", labels="=,="))
        with pytest.raises(BadRequest, match="not supported"):
            await found(Selection("jobs.batch", fields="spec.nope=1"))

    run(test)


def test_pages_show_one_moment(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.write_many([create_config(f"c{i}") for i in range(5)])
        what = Selection("configmaps", "default")
        first = await client.list(what, limit=2)
        await client.write(create_config("c0-later"))
        second = await client.list(what, limit=2, token=first.continue_token)
        third = await client.list(what, limit=2, token=second.continue_token)
        assert names([*first.documents, *second.documents, *third.documents]) == [
            "c0",
            "c1",
            "c2",
            "c3",
            "c4",
        ]
        assert third.continue_token == ""
        assert first.revision == second.revision == third.revision
        with pytest.raises(BadRequest):
            await client.list(what, limit=2, token="nonsense")

    run(test)


# --- watches ------------------------------------------------------------------------------


def test_watch_delivers_all_changes_in_order(run: Run) -> None:
    async def test(client: Client) -> None:
        what = Selection("configmaps", "default")
        start = (await client.list(what)).revision
        created = await client.write(create_config("a", k="1"))
        changed = await client.write(Patch(configs("a"), b'{"data":{"k":"2"}}', "merge"))
        await client.write(Delete(configs("a")))
        events = await collect(client, what, start, 3)
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert [event.key for event in events] == [configs("a")] * 3
        assert [event.revision for event in events[:2]] == [created.revision, changed.revision]
        assert events[2].revision > changed.revision
        assert json.loads(events[1].document) == json.loads(changed.document)
        gone = json.loads(events[2].document)
        assert gone["data"] == {"k": "2"}
        assert gone["metadata"]["resourceVersion"] == str(events[2].revision)

    run(test)


def test_watch_resumes_after_last_revision(run: Run) -> None:
    async def test(client: Client) -> None:
        what = Selection("configmaps", "default")
        start = (await client.list(what)).revision
        for number in range(4):
            await client.write(create_config(f"c{number}"))
        first = (await collect(client, what, start, 1))[0]
        rest = await collect(client, what, first.revision, 3)
        assert [event.key.name for event in rest][:3] == ["c1", "c2", "c3"]

    run(test)


def test_a_watch_is_live(run: Run) -> None:
    async def test(client: Client) -> None:
        what = Selection("configmaps", "default")
        start = (await client.list(what)).revision
        waiting = asyncio.ensure_future(collect(client, what, start, 1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.write(create_config("a"))
        assert [event.key for event in await waiting] == [configs("a")]

    run(test)


def test_watch_delivers_only_selected_objects(run: Run) -> None:
    async def test(client: Client) -> None:
        what = Selection("jobs.batch", "default", labels="app=b")
        start = (await client.list(what)).revision
        await client.write_many([create_job("a"), create_job("b")])
        unlabel = Patch(jobs("b"), b'{"metadata":{"labels":{"app":null}}}', "merge")
        await client.write(unlabel)
        relabel = Patch(jobs("a"), b'{"metadata":{"labels":{"app":"b"}}}', "merge")
        await client.write(relabel)
        events = await collect(client, what, start, 3)
        assert [(event.type, event.key.name) for event in events] == [
            ("ADDED", "b"),
            ("DELETED", "b"),
            ("ADDED", "a"),
        ]

    run(test)


def test_history_does_not_last_for_ever(run: Run) -> None:
    async def test(client: Client) -> None:
        what = Selection("configmaps", "default")
        await client.write(create_config("a", k="0"))
        start = (await client.list(what)).revision

        async def write_until_forgotten() -> None:
            for number in range(1, 400):
                body = encode({"data": {"k": str(number)}})
                await client.write(Patch(configs("a"), body, "merge"))
                if number % 20 == 0:
                    await collect(client, what, start, 1)

        with pytest.raises(Expired):
            await write_until_forgotten()

    run(test, limits=Limits(history_changes=2, recent_changes=2, recent_bytes=1))


def names(documents: Sequence[bytes]) -> list[str]:
    return [json.loads(document)["metadata"]["name"] for document in documents]
