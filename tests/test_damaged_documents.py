"""Unreadable documents: one of them costs that object, not the server."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from onejob.api.decoding.query import DESPITE_DAMAGE
from onejob.api.unreadable import ReadabilityChecker, StorageReadError, is_readable
from onejob.benchmarks.plane import a_job
from onejob.cli.sources.base import Api, ApiRequest
from onejob.cli.sources.http_api import open_http_api
from onejob.client.base import Selection
from onejob.objects.meta import JOBS, PODS, Key
from onejob.testing import OnejobServer
from onejob.virtual_time import run_virtual
from onejob.wire.errors import ApiError, NotFound
from tests.server_support import a_plane

pytestmark = pytest.mark.virtual_time

BAD = Key(JOBS, "default", "bad")


def spoil(folder: Path, name: str, damage: str = "substr(value, 1, 100)") -> None:
    connection = apsw.Connection(str(folder / "onejob.db"))
    connection.execute(f"UPDATE log SET value = CAST({damage} AS BLOB) WHERE name = ?", (name,))
    assert connection.changes() > 0
    connection.close()


def config_map(name: str) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}, "data": {"key": "value"}})


@pytest.mark.parametrize(
    "damage",
    [
        "substr(value, 1, 100)",
        "x'00'",
        "replace(value, '\"bad\"', '\"bat\"')",
        'replace(value, \'"parallelism":1\', \'"parallelism":"1"\')',
        "replace(value, 'batch/v1', CAST(x'62ff' AS TEXT))",
    ],
    ids=["cut off", "zero", "of another name", "of another shape", "not UTF-8"],
)
def test_a_server_starts_without_the_job_it_cannot_read(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def before() -> None:
        async with a_plane(tmp_path) as plane:
            for name in ("bad", "good"):
                await plane.client.write(a_job(name, completions=1, parallelism=1))

    async def after() -> None:
        async with a_plane(tmp_path) as plane:
            await asyncio.sleep(60)
            listed = await plane.client.list(Selection(JOBS))
            (good,) = map(msgspec.json.decode, listed.documents)
            assert good["metadata"]["name"] == "good"
            assert good["status"]["succeeded"] == 1
            with pytest.raises(StorageReadError, match="cannot be read"):
                await plane.client.get(BAD)
            assert not plane.failed.done()
            assert "onejob_store_damaged_documents 1" in plane.metrics.exposition()

    run_virtual(before())
    spoil(tmp_path, "bad", damage)
    with caplog.at_level(logging.ERROR):
        run_virtual(after())
    (line,) = [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()]
    assert "bad" in line
    assert "revision" in line


def test_dependents_of_damaged_job_are_not_collected(tmp_path: Path) -> None:
    """Its Pods have an owner, although it cannot be read."""

    async def before() -> None:
        async with a_plane(tmp_path) as plane:
            await plane.client.write(a_job("bad", completions=1, parallelism=1))
            await asyncio.sleep(60)

    async def after() -> None:
        async with a_plane(tmp_path) as plane:
            await asyncio.sleep(3600)
            assert len((await plane.client.list(Selection(PODS))).documents) == 1
            assert not plane.failed.done()

    run_virtual(before())
    spoil(tmp_path, "bad")
    run_virtual(after())


def test_it_is_neither_listed_nor_overwritten_but_can_be_deleted(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    with a_server(tmp_path) as api:
        for name in ("bad", "good"):
            api.send(ApiRequest("POST", path, body=config_map(name)))
    spoil(tmp_path / "server", "bad")
    with a_server(tmp_path) as api:
        for ask in (
            ApiRequest("GET", f"{path}/bad"),
            ApiRequest("POST", path, body=config_map("bad")),
            ApiRequest("PUT", f"{path}/bad", body=config_map("bad")),
            ApiRequest(
                "PATCH", f"{path}/bad", body=b"{}", content_type="application/merge-patch+json"
            ),
            ApiRequest("DELETE", f"{path}/bad"),
        ):
            with pytest.raises(ApiError, match="cannot be read") as refused:
                api.send(ask)
            assert (refused.value.code, refused.value.reason) == (500, "StorageReadError")
            assert f"kubectl delete --raw '{path}/bad?{DESPITE_DAMAGE}=true'" in str(refused.value)
        assert names(api, path) == ["good", "kube-root-ca.crt"]
        api.send(ApiRequest("DELETE", f"{path}/bad", {DESPITE_DAMAGE: "true"}))
        with pytest.raises(NotFound):
            api.send(ApiRequest("GET", f"{path}/bad"))
        api.send(ApiRequest("POST", path, body=config_map("bad")))
    with a_server(tmp_path) as api:
        assert names(api, path) == ["bad", "good", "kube-root-ca.crt"]


@contextmanager
def a_server(folder: Path) -> Iterator[Api]:
    server = OnejobServer(folder, "simulated")
    api = open_http_api(server.kubeconfig, "")
    try:
        yield api
    finally:
        api.close()
        server.stop()


def names(api: Api, path: str) -> list[str]:
    items = api.send(ApiRequest("GET", path)).document["items"]
    return [item["metadata"]["name"] for item in items]


def test_a_finished_pod_that_cannot_be_read_is_left_out_too(tmp_path: Path) -> None:
    """Finished Pods stay on disk at start until a client lists them."""

    async def before() -> None:
        async with a_plane(tmp_path) as plane:
            await plane.client.write(a_job("j", completions=3, parallelism=3))
            await asyncio.sleep(60)

    async def after() -> None:
        async with a_plane(tmp_path) as plane:
            assert [key.name for key in plane.store.damaged] == [spoilt]
            with pytest.raises(StorageReadError):
                await plane.client.get(Key(PODS, "default", spoilt))
            listed = await plane.client.list(Selection(PODS))
            assert len(listed.documents) == plane.store.count(PODS) == 2

    run_virtual(before())
    connection = apsw.Connection(str(tmp_path / "onejob.db"))
    query = "SELECT name FROM log WHERE resource = 'pods' AND cold ORDER BY name LIMIT 1"
    spoilt = str(connection.execute(query).fetchall()[0][0])
    connection.close()
    spoil(tmp_path, spoilt)
    run_virtual(after())


async def test_server_writes_are_readable(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await plane.client.write(a_job("j", completions=1, parallelism=1))
        await asyncio.sleep(60)
    seen = set()
    connection = apsw.Connection(str(tmp_path / "onejob.db"))
    rows = connection.execute("SELECT resource, namespace, name, value FROM log")
    for resource, namespace, name, value in rows:
        if value is not None:
            assert is_readable(Key(resource, namespace, name), value), (resource, name, value)
            seen.add(resource)
    assert {"pods", "jobs.batch", "namespaces", "nodes"} <= seen
    connection.close()


def test_decoded_view_can_be_taken_once() -> None:
    judge, key = ReadabilityChecker(), Key(PODS, "default", "p")
    metadata = {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    document = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", "metadata": metadata})
    assert judge.is_readable(key, document)
    assert judge.take_view(document) is None, "nobody asked to keep them"
    judge.keep_views(True)
    assert judge.is_readable(key, document)
    assert not judge.is_readable(Key(PODS, "default", "q"), other := bytes(bytearray(document)))
    assert judge.take_view(other) is None, "it is not the document of that key"
    view = judge.take_view(document)
    assert (view.metadata.name, view.metadata.revision) == ("p", 7)
    assert judge.take_view(document) is None
    assert judge.is_readable(key, document)
    judge.keep_views(False)
    assert judge.take_view(document) is None
