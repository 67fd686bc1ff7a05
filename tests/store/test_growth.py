"""Bounded size of database, write-ahead log and memory under churn."""

import asyncio
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from onejob.store.limits import MIB, Limits
from onejob.store.log import LogStore
from onejob.store.upkeep import SLICE_REVISIONS
from tests.store.support import a_store, names, pod, put, remove, settle, write

pytestmark = pytest.mark.virtual_time

LIMITS = Limits(history_changes=1_000, recent_changes=100, checkpoint_bytes=1 * MIB, spare_pages=64)


def _bytes_on_disk(path: Path) -> int:
    return sum(os.stat(f"{path}{suffix}").st_size for suffix in ("", "-wal"))


def _rows(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT count(*) FROM log").get)
    finally:
        connection.close()


async def _churn(store: LogStore, changes: int) -> None:
    """Update, delete and recreate 50 objects."""
    for number in range(changes):
        key = pod(f"{number % 50}")
        if number % 500 >= 450:
            remove(store, key)
        else:
            put(store, key, f"{number} " + "x" * 2_000)
        if number % 10 == 9:
            await store.durable(store.staged_revision)


async def test_files_stop_growing_under_churn(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=LIMITS) as store:
        sizes = []
        for _ in range(8):
            await _churn(store, 2_500)
            await settle()
            sizes.append(_bytes_on_disk(tmp_path / "db"))
        # 1,000 dead versions and 50 live ones of 2 kB, partly empty pages, and the write-ahead
        # log; 20,000 versions would be 40 MB.
        assert max(sizes) < 12 * MIB, sizes
        assert max(sizes[4:]) <= 1.1 * max(sizes[:4]), sizes
        assert _rows(tmp_path / "db") < 1_500


async def test_space_is_given_back_after_a_peak(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=LIMITS) as store:
        for number in range(4_000):
            put(store, pod(f"{number}"), "x" * 2_000)
        await store.durable(store.staged_revision)
        for number in range(4_000):
            remove(store, pod(f"{number}"))
        await store.durable(store.staged_revision)
        await asyncio.sleep(301)
        for number in range(10):
            await write(store, pod("one"), f"{number}" + "x" * 200_000)
        await settle(1_000)
        assert os.stat(tmp_path / "db").st_size < 4 * MIB, "the peak was 9 MB"


async def test_deleted_keys_vanish_entirely(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        for number in range(100):
            put(store, pod(f"{number}"), "")
        await write(store, pod("stays"), "")
        for number in range(100):
            remove(store, pod(f"{number}"))
        revision = store.staged_revision
        await store.durable(revision)
        assert _rows(tmp_path / "db") == 201
        await asyncio.sleep(301)
        assert _rows(tmp_path / "db") == 1
        assert store.compacted == store.revision == revision
    async with a_store(tmp_path / "db") as store:
        assert store.revision == revision, "the newest row is gone, its revision is not"
        assert names(store) == ["stays"]
        assert await write(store, pod("new"), "") == revision + 1


async def test_live_versions_outlive_any_compaction(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=Limits(history_seconds=1)) as store:
        await write(store, pod("old"), "hot")
        await write(store, pod("old and cold"), "cold", cold=True)
        for number in range(10):
            await write(store, pod("busy"), f"{number}")
            await asyncio.sleep(2)
        assert store.compacted == store.revision
        expected = [b"9", b"hot", b"cold"]
        assert [stored.value for stored in store.list("pods").items] == expected
    async with a_store(tmp_path / "db") as store:
        assert [stored.value for stored in store.list("pods").items] == expected


async def test_compaction_goes_in_slices_and_lets_commits_through(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", latency_seconds=0.01) as store:
        for number in range(6_000):
            put(store, pod(f"{number % 10}"), "")
        await store.durable(store.staged_revision)
        await asyncio.sleep(299)
        steps = {store.compacted}
        while store.compacted < 6_001:
            await write(store, pod("busy"), "")
            steps.add(store.compacted)
        assert max(b - a for a, b in pairwise(sorted(steps))) <= 2 * SLICE_REVISIONS <= 1_024
        assert len(steps) > 5


async def test_a_cold_object_costs_little_memory(tmp_path: Path) -> None:
    count = 20_000
    async with a_store(tmp_path / "db", limits=Limits(recent_changes=10)) as store:
        tracemalloc.start()
        for number in range(count):
            put(store, pod(f"job-{number:08}-xkcd1"), "x" * 2_000, cold=True)
            if number % 100 == 99:
                await store.durable(store.staged_revision)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert used / count < 300, f"{used / count:.0f} bytes per cold object of 2,000 bytes"
