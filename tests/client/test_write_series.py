"""Staged writes, answered before they are on disk: one commit for a series, all of it or none."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Create, Delete, Op, Patch, Selection, Written
from onejob.client.write_series import DurableWrites, StagedWrites
from onejob.objects.meta import Key
from onejob.wire.errors import Conflict, InsufficientStorage, InternalError, NotFound
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import DeleteOptions, WriteOptions
from tests.client.write_series_support import FailingCommitter
from tests.scripted_cluster import Cluster, a_cluster

pytestmark = pytest.mark.virtual_time

CONFIGMAPS = "configmaps"


def create(name: str) -> Op:
    return Create(CONFIGMAPS, "default", msgspec.json.encode({"metadata": {"name": name}}))


def patch(name: str, text: str) -> Op:
    body = msgspec.json.encode({"data": {"text": text}})
    return Patch(Key(CONFIGMAPS, "default", name), body, "merge")


async def names(cluster: Cluster) -> set[str]:
    listing = await cluster.client.list(Selection(CONFIGMAPS, "default"))
    found = {msgspec.json.decode(document)["metadata"]["name"] for document in listing.documents}
    return found - {"kube-root-ca.crt"}


async def test_a_series_of_writes_shares_one_commit(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        before = cluster.store.commits
        series = StagedWrites(cluster.client)
        await series.write(create("one"))
        await series.write(patch("one", "changed"))
        await series.write_many([create("two"), create("three")])
        assert await names(cluster) == set(), "seen by nobody before it is on disk"
        await series.durable()
        assert await names(cluster) == {"one", "two", "three"}
        assert cluster.store.commits - before == 1


async def test_a_refusal_is_answered_in_its_place(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        series = StagedWrites(cluster.client)
        stale = Patch(
            Key(CONFIGMAPS, "default", "one"), b'{"metadata":{"resourceVersion":"1"}}', "merge"
        )
        first, second, third = await series.write_many([create("one"), stale, create("two")])
        assert isinstance(first, Written)
        assert isinstance(second, Conflict)
        assert isinstance(third, Written)
        await series.durable()
        assert await names(cluster) == {"one", "two"}


async def test_write_depending_on_rolled_back_write_is_refused(tmp_path: Path) -> None:
    committer = FailingCommitter()
    async with a_cluster(tmp_path, committer=committer) as cluster:
        series = StagedWrites(cluster.client)
        committer.fails_at = {committer.commits + 1}
        await series.write(create("one"))
        await asyncio.sleep(1)
        with pytest.raises(InternalError):
            await series.write(create("two"))
        (refused,) = await series.write_many([create("three")])
        assert isinstance(refused, InternalError)
        with pytest.raises(InternalError):
            await series.durable()
        assert await names(cluster) == set()
        again = StagedWrites(cluster.client)
        await again.write(create("four"))
        await again.durable()
        assert await names(cluster) == {"four"}


async def test_on_other_clients_each_write_is_safe_when_it_is_answered(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        series = DurableWrites(cluster.client)
        await series.write(create("one"))
        assert await names(cluster) == {"one"}
        await series.durable()


DELETE = Delete(Key(CONFIGMAPS, "default", "one"))


def _stage_a_deletion_that_will_be_undone(cluster: Cluster, committer: FailingCommitter) -> None:
    """Stage a deletion whose commit fails."""
    committer.fails_at = {committer.commits + 1}
    cluster.client.stage(DELETE)


@pytest.mark.parametrize("op", [patch("one", "changed"), DELETE], ids=["patch", "delete"])
async def test_rollback_of_unrelated_writes_refuses_nothing(tmp_path: Path, op: Op) -> None:
    """A client that gets NotFound discards its cached object."""
    committer = FailingCommitter()
    async with a_cluster(tmp_path, committer=committer) as cluster:
        await cluster.client.write(create("one"))
        _stage_a_deletion_that_will_be_undone(cluster, committer)
        with pytest.raises(InsufficientStorage):
            await cluster.client.write(op)
        _stage_a_deletion_that_will_be_undone(cluster, committer)
        with pytest.raises(InsufficientStorage):
            await cluster.client.write_many([op])
        assert await names(cluster) == {"one"}


async def test_user_is_not_refused_for_rolled_back_writes(tmp_path: Path) -> None:
    committer = FailingCommitter()
    async with a_cluster(tmp_path, committer=committer) as cluster:
        await cluster.client.write(create("one"))
        service, kind = cluster.service, BY_RESOURCE[CONFIGMAPS]
        data = {"data": {"text": "changed"}}
        _stage_a_deletion_that_will_be_undone(cluster, committer)
        with pytest.raises(InsufficientStorage):
            await service.delete(kind, "default", "one", DeleteOptions())
        _stage_a_deletion_that_will_be_undone(cluster, committer)
        with pytest.raises(InsufficientStorage):
            await service.patch(kind, "default", "one", "merge", data, WriteOptions())
        assert await names(cluster) == {"one"}


async def test_series_fails_if_conflicting_write_is_rolled_back(tmp_path: Path) -> None:
    committer = FailingCommitter()
    async with a_cluster(tmp_path, committer=committer) as cluster:
        await cluster.client.write(create("one"))
        _stage_a_deletion_that_will_be_undone(cluster, committer)
        series = StagedWrites(cluster.client)
        (refused,) = await series.write_many([patch("one", "changed")])
        assert isinstance(refused, NotFound)
        with pytest.raises(InsufficientStorage):
            await series.durable()


async def test_refusal_is_returned_after_its_cause_is_durable(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        await cluster.client.write(create("one"))
        cluster.client.stage(DELETE)
        with pytest.raises(NotFound):
            await cluster.client.write(patch("one", "changed"))
        assert await names(cluster) == set()
