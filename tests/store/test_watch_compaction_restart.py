"""Watch x compaction x restart: patterns of bugs that etcd had, each named by its issue."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onejob.store.base import Compacted, TooFarBehind
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from sim.faulty_disk import Entry, FaultyDisk, after_power_loss, everything, nothing
from tests.store.support import (
    a_store,
    collect,
    delete,
    names,
    pod,
    put,
    remove,
    summary,
    write,
)

pytestmark = pytest.mark.virtual_time

#: Nothing is served from memory alone, and compaction by age is quick.
FROM_DISK = Limits(history_seconds=10, recent_changes=0)


@asynccontextmanager
async def _perhaps_restarted(path: Path, store: LogStore, restart: bool) -> AsyncIterator[LogStore]:
    if not restart:
        yield store
        return
    await store.close()
    async with a_store(path, limits=FROM_DISK) as again:
        yield again


restarts = pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])


async def test_etcd_14370_a_single_node_loses_no_acknowledged_write_on_a_crash(
    tmp_path: Path,
) -> None:
    with FaultyDisk() as disk:
        async with a_store(tmp_path / "db", vfs=disk.name) as store:
            await write(store, pod("a"), "acknowledged")
            after_power_loss(disk.journal, tmp_path / "crashed", nothing)
    async with a_store(tmp_path / "crashed" / "db") as store:
        assert names(store) == ["a"]


async def test_etcd_15220_revision_never_precedes_delivered_events(
    tmp_path: Path,
) -> None:
    """A bookmark made of `store.revision` must not skip an event that is still to come."""
    async with a_store(tmp_path / "db", latency_seconds=0.01) as store:
        watch = store.watch("pods", after=1)
        seen = 1

        async def observe() -> None:
            nonlocal seen
            while store.revision < 200:
                bookmark = store.revision
                while seen < bookmark:
                    # Already available: the loop need not turn for it.
                    step = watch.__anext__()
                    with pytest.raises(StopIteration) as result:
                        step.send(None)
                    seen = result.value.value[-1].revision
                await asyncio.sleep(0.001)

        observer = asyncio.ensure_future(observe())
        for number in range(200):
            put(store, pod(f"{number % 7}"), f"{number}")
            await asyncio.sleep(0.003)
        await observer


@restarts
async def test_etcd_15271_a_resumed_watch_does_not_travel_back_in_time(
    tmp_path: Path, restart: bool
) -> None:
    async with a_store(tmp_path / "db", limits=FROM_DISK) as first:
        for number in range(6):
            await write(first, pod("a"), f"{number}")
        seen = (await collect(first.watch("pods", after=1), 6))[-1].revision
        async with _perhaps_restarted(tmp_path / "db", first, restart) as store:
            watch = store.watch("pods", after=seen)
            last = await write(store, pod("a"), "new")
            assert [change.revision for change in await collect(watch, 1)] == [last]


@restarts
async def test_etcd_17247_changes_of_one_key_in_one_commit_are_each_seen_once(
    tmp_path: Path, restart: bool
) -> None:
    async with a_store(tmp_path / "db", limits=FROM_DISK) as first:
        live = first.watch("pods", after=1)
        put(first, pod("a"), "1")
        put(first, pod("a"), "2")
        remove(first, pod("a"))
        put(first, pod("a"), "3")
        await first.durable(first.staged_revision)
        expected = [
            ("a", 2, b"1", None),
            ("a", 3, b"2", b"1"),
            ("a", 4, None, b"2"),
            ("a", 5, b"3", None),
        ]
        assert summary(await collect(live, 4)) == expected
        async with _perhaps_restarted(tmp_path / "db", first, restart) as store:
            assert summary(await collect(store.watch("pods", after=1), 4)) == expected


async def test_etcd_17529_starved_watcher_gets_error_and_skips_no_event(tmp_path: Path) -> None:
    limits = Limits(watch_changes=4, recent_changes=2)
    async with a_store(tmp_path / "db", limits=limits) as store:
        seen: list[int] = []
        watch = store.watch("pods", after=1)
        for number in range(100):
            await write(store, pod("a"), f"{number}")
            if number % 13 == 12:
                try:
                    seen += [change.revision for change in await anext(watch)]
                except TooFarBehind:
                    watch = store.watch("pods", after=seen[-1] if seen else 1)
        while seen[-1] < store.revision:
            try:
                seen += [change.revision for change in await anext(watch)]
            except TooFarBehind:
                watch = store.watch("pods", after=seen[-1])
        assert seen == list(range(2, 102))


@pytest.mark.parametrize("keep", [nothing, everything])
async def test_etcd_17780_no_revision_decreases_after_a_crash_during_compaction(
    tmp_path: Path, keep: Callable[[Entry], bytes | None]
) -> None:
    """The newest entry is a deletion, which compaction removes with all versions before it."""
    with FaultyDisk() as disk:
        async with a_store(tmp_path / "db", limits=FROM_DISK, vfs=disk.name) as store:
            for number in range(300):
                put(store, pod(f"{number}"), "x" * 100)
                remove(store, pod(f"{number}"))
            revision = store.staged_revision
            await store.durable(revision)
            durable_at = len(disk.journal)
            await asyncio.sleep(30)
            assert store.compacted == revision
    steps = range(durable_at, len(disk.journal) + 1, 5)
    assert len(steps) > 5
    for end in steps:
        directory = tmp_path / f"{end}"
        after_power_loss(disk.journal[:end], directory, keep)
        async with a_store(directory / "db") as store:
            assert store.revision == revision
            assert names(store) == []
            assert await write(store, pod("next"), "") == revision + 1


@restarts
async def test_etcd_18089_a_watch_keeps_the_deletion_that_compaction_stops_at(
    tmp_path: Path, restart: bool
) -> None:
    async with a_store(tmp_path / "db", limits=FROM_DISK) as first:
        await write(first, pod("a"), "1")
        await asyncio.sleep(5)
        deleted = await delete(first, pod("a"))
        await write(first, pod("b"), "1")
        await asyncio.sleep(6)
        assert first.compacted == deleted - 1
        async with _perhaps_restarted(tmp_path / "db", first, restart) as store:
            changes = await collect(store.watch("pods", after=deleted - 1), 2)
            assert summary(changes)[0] == ("a", deleted, None, b"1")


@restarts
async def test_etcd_19179_a_watch_from_the_compacted_revision_misses_no_deletion(
    tmp_path: Path, restart: bool
) -> None:
    async with a_store(tmp_path / "db", limits=FROM_DISK) as first:
        await write(first, pod("a"), "0")
        await write(first, pod("a"), "1")
        await asyncio.sleep(11)
        compacted = first.compacted
        assert compacted == first.revision == 3
        deleted = await delete(first, pod("a"))
        async with _perhaps_restarted(tmp_path / "db", first, restart) as store:
            assert store.compacted == compacted
            changes = await collect(store.watch("pods", after=compacted), 1)
            assert summary(changes) == [("a", deleted, None, b"1")]
            with pytest.raises(Compacted):
                store.watch("pods", after=compacted - 1)


@restarts
async def test_etcd_20221_a_watch_of_a_future_revision_gets_nothing_older(
    tmp_path: Path, restart: bool
) -> None:
    async with a_store(tmp_path / "db", limits=FROM_DISK) as first:
        await write(first, pod("a"), "1")
        async with _perhaps_restarted(tmp_path / "db", first, restart) as store:
            watch = store.watch("pods", after=5)
            for number in range(6):
                put(store, pod("a"), f"{number}")
            await store.durable(store.staged_revision)
            assert [change.revision for change in await collect(watch, 3)] == [6, 7, 8]
