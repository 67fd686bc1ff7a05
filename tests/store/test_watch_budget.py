"""Shared limit on the queues of all watchers; the slowest is dropped first, and may resume."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from onejob.store.base import TooFarBehind, Watch
from onejob.store.limits import MIB, Limits
from tests.store.support import a_store, collect, pod, write

pytestmark = pytest.mark.virtual_time

LIMITS = Limits(all_watches_bytes=100_000, recent_changes=1)


async def test_shared_watch_bytes_count_once(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=LIMITS) as store:
        watches = [store.watch("pods", after=store.revision) for _ in range(20)]
        for number in range(5):
            await write(store, pod(f"{number}"), "x" * 10_000)
        for watch in watches:
            assert len(await collect(watch, 5)) == 5


async def test_the_slowest_is_dropped_first(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=LIMITS) as store:
        slow = store.watch("pods", after=store.revision)
        for number in range(5):
            await write(store, pod(f"{number}"), "x" * 10_000)
        quicker = store.watch("pods", after=store.revision)
        keeping_up = store.watch("pods", after=store.revision)
        for number in range(5):
            await write(store, pod(f"{number}"), "y" * 10_000)
            await collect(keeping_up, 1)
        with pytest.raises(TooFarBehind, match="slowest"):
            await anext(slow)
        assert len(await collect(quicker, 5)) == 5
        await write(store, pod("0"), "z")
        assert len(await collect(keeping_up, 1)) == 1


async def test_many_queues_of_small_changes_count_too(tmp_path: Path) -> None:
    """The documents are tiny, but each watcher has a queue entry for each of them."""
    async with a_store(tmp_path / "db", limits=LIMITS) as store:
        watches = [store.watch("pods", after=store.revision) for _ in range(50)]
        for _ in range(100):
            await write(store, pod("0"), "x")
        dropped = sum(watch._error is not None for watch in watches)
        assert dropped > 0
        assert store._fanout.queue_bytes <= LIMITS.all_watches_bytes
        for watch in watches:
            watch.close()
        assert store._fanout.queue_bytes == 0


async def test_a_dropped_one_goes_on_where_it_was(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=LIMITS) as store:
        start = store.revision
        slow = store.watch("pods", after=start)
        for number in range(20):
            await write(store, pod(f"{number}"), "x" * 10_000)
        with pytest.raises(TooFarBehind):
            await anext(slow)
        again = store.watch("pods", after=start)
        assert len(await collect(again, 20)) == 20


def test_the_budget_is_larger_than_that_of_one() -> None:
    limits = Limits()
    assert limits.watch_bytes < limits.all_watches_bytes <= 128 * MIB


async def test_publish_wakes_many_watchers_in_turns(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        woken: Counter[int] = Counter()
        turn = 0

        async def count_turns() -> None:
            nonlocal turn
            while True:
                await asyncio.sleep(0)
                turn += 1

        async def follow(watch: Watch) -> list[int]:
            revisions: list[int] = []
            while len(revisions) < 2:
                revisions += [change.revision for change in await anext(watch)]
                woken[turn] += 1
            return revisions

        watches = [store.watch("pods", after=store.revision) for _ in range(500)]
        following = [asyncio.create_task(follow(watch)) for watch in watches]
        await asyncio.sleep(0)
        counting = asyncio.create_task(count_turns())
        await write(store, pod("a"), "x")
        await write(store, pod("b"), "y")
        found = await asyncio.gather(*following)
        counting.cancel()
        assert {tuple(revisions) for revisions in found} == {tuple(found[0])}
        assert max(woken.values()) <= 64
