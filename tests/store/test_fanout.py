"""Watches: every change once, in order, from any kept revision."""

import asyncio
from pathlib import Path

import pytest

from onejob.objects.meta import Key
from onejob.store.base import Compacted, TooFarBehind
from onejob.store.limits import Limits
from tests.store.support import (
    a_store,
    collect,
    delete,
    pod,
    put,
    remove,
    settle,
    summary,
    write,
)

pytestmark = pytest.mark.virtual_time


async def test_a_watch_sees_creation_change_and_deletion(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watch = store.watch("pods", after=store.revision)
        await write(store, pod("a"), "1")
        await write(store, pod("a"), "2")
        await delete(store, pod("a"))
        changes = await collect(watch, 3)
        assert summary(changes) == [
            ("a", 2, b"1", None),
            ("a", 3, b"2", b"1"),
            ("a", 4, None, b"2"),
        ]
        assert [change.previous_revision for change in changes] == [0, 2, 3]


async def test_a_watch_sees_nothing_before_it_is_durable(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", latency_seconds=10) as store:
        watch = store.watch("pods", after=1)
        put(store, pod("a"), "")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 9)
        assert len(await anext(watch)) == 1


async def test_a_watch_is_of_one_resource_and_namespace(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        for live in (True, False):
            start = store.revision
            if live:
                watches = [store.watch("pods", space, after=start) for space in ("", "x")]
            for key in (pod("a", "x"), pod("b", "y"), Key("jobs.batch", "x", "c")):
                put(store, key, f"{live}")
            await store.durable(store.staged_revision)
            if not live:
                watches = [store.watch("pods", space, after=start) for space in ("", "x")]
            everywhere, one = watches
            assert [c.key.name for c in await collect(everywhere, 2)] == ["a", "b"]
            assert [c.key.name for c in await collect(one, 1)] == ["a"]


async def test_watchers_share_one_batch_of_the_same_changes(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        one, two = (store.watch("pods", after=1) for _ in range(2))
        await write(store, pod("a"), "")
        assert await anext(one) is await anext(two)


@pytest.mark.parametrize("recent", [0, 3, 100], ids=["disk", "disk and memory", "memory"])
@pytest.mark.parametrize("namespace", ["", "x"])
async def test_a_watch_from_the_past_continues_live_without_a_gap(
    tmp_path: Path, recent: int, namespace: str
) -> None:
    async with a_store(tmp_path / "db", limits=Limits(recent_changes=recent)) as store:
        for number in range(10):
            await write(store, pod(f"{number % 4}", "x"), f"{number}")
        await delete(store, pod("0", "x"))
        for after in range(1, store.revision + 1):
            watch = store.watch("pods", namespace, after=after)
            last = await write(store, pod("1", "x"), "live")
            changes = await collect(watch, last - after)
            assert [change.revision for change in changes] == list(range(after + 1, last + 1))
            for change in changes:
                assert (change.previous is None) == (change.previous_revision == 0)
            watch.close()


async def test_a_watch_from_disk_equals_a_live_one(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=Limits(recent_changes=0)) as store:
        live = store.watch("pods", after=1)
        for number in range(6):
            await write(store, pod(f"{number % 2}"), f"{number}", cold=number > 2)
        await delete(store, pod("0"))
        expected = await collect(live, 7)
        assert await collect(store.watch("pods", after=1), 7) == expected


async def test_big_documents_are_caught_up_in_several_batches(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=Limits(recent_changes=0)) as store:
        for number in range(5):
            await write(store, pod(f"{number}"), "x" * 3_000_000)
        watch = store.watch("pods", after=1)
        batches: list[list[int]] = []
        while sum(map(len, batches)) < 5:
            batches.append([change.revision for change in await anext(watch)])
        assert batches == [[2, 3], [4, 5], [6]]


async def test_a_watch_of_the_future_starts_there(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watch = store.watch("pods", after=3)
        for name in "abc":
            put(store, pod(name), "")
        await store.durable(4)
        await write(store, pod("d"), "")
        assert [change.revision for change in await collect(watch, 2)] == [4, 5]


async def test_twenty_watchers_see_fifty_thousand_changes_once_and_in_order(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watches = [store.watch("pods", "" if n % 2 else "default", after=1) for n in range(20)]
        seen: list[list[int]] = [[] for _ in watches]

        async def follow(number: int) -> None:
            async for batch in watches[number]:
                seen[number] += [change.revision for change in batch]
                if batch[-1].revision == 50_001:
                    return

        followers = [asyncio.ensure_future(follow(number)) for number in range(20)]
        for number in range(50_000):
            key = pod(f"{number % 500}")
            if number % 11 == 10 and store.newest(key):
                remove(store, key)
            else:
                put(store, key, f"{number}")
            if number % 100 == 99:
                await store.durable(store.staged_revision)
        await asyncio.gather(*followers)
        for revisions in seen:
            assert revisions == list(range(2, 50_002))


async def test_a_slow_watcher_is_dropped_and_resumes_from_its_last_revision(tmp_path: Path) -> None:
    limits = Limits(watch_changes=10, recent_changes=5)
    async with a_store(tmp_path / "db", limits=limits) as store:
        slow, other = store.watch("pods", after=1), store.watch("pods", after=1)
        await write(store, pod("a"), "0")
        first = await collect(slow, 1)
        for number in range(1, 12):
            await write(store, pod("a"), f"{number}")
            await anext(other)
        with pytest.raises(TooFarBehind, match="10 changes behind"):
            await anext(slow)
        with pytest.raises(TooFarBehind):
            await anext(slow)
        resumed = store.watch("pods", after=first[-1].revision)
        changes = await collect(resumed, 11)
        assert [change.revision for change in changes] == list(range(3, 14))
        await write(store, pod("a"), "live")
        assert len(await collect(resumed, 1)) == len(await collect(other, 2)) - 1


async def test_a_watcher_is_dropped_for_bytes_too_but_never_for_one_big_batch(
    tmp_path: Path,
) -> None:
    async with a_store(tmp_path / "db", limits=Limits(watch_bytes=1_000)) as store:
        watch = store.watch("pods", after=1)
        await write(store, pod("a"), "x" * 5_000)
        assert len(await anext(watch)) == 1
        await write(store, pod("a"), "x" * 600)
        await write(store, pod("a"), "x" * 600)
        with pytest.raises(TooFarBehind):
            await anext(watch)


async def test_closing_a_watch_ends_a_pending_wait(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watch = store.watch("pods", after=1)
        waiting = asyncio.ensure_future(anext(watch))
        await settle()
        watch.close()
        watch.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        await write(store, pod("a"), "")
        assert [batch async for batch in watch] == []


async def test_a_watch_of_compacted_history_is_refused(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=Limits(history_seconds=60)) as store:
        await write(store, pod("a"), "1")
        await write(store, pod("a"), "2")
        await asyncio.sleep(61)
        assert store.compacted == 3
        with pytest.raises(Compacted) as gone:
            store.watch("pods", after=2)
        assert (gone.value.revision, gone.value.oldest) == (2, 3)
        watch = store.watch("pods", after=3)
        await write(store, pod("a"), "3")
        assert summary(await collect(watch, 1)) == [("a", 4, b"3", b"2")]


async def test_a_watcher_whose_past_goes_while_it_catches_up_is_dropped(tmp_path: Path) -> None:
    limits = Limits(history_seconds=60, recent_changes=0)
    async with a_store(tmp_path / "db", limits=limits) as store:
        for number in range(5):
            await write(store, pod("a"), f"{number}")
        watch = store.watch("pods", after=2)
        await asyncio.sleep(61)
        with pytest.raises(TooFarBehind, match="history"):
            await anext(watch)
        with pytest.raises(Compacted):
            store.watch("pods", after=2)


@pytest.mark.parametrize("behind", [True, False])
async def test_a_nudge_is_answered_once_all_that_is_durable_was_seen(
    tmp_path: Path, behind: bool
) -> None:
    limits = Limits(recent_changes=1) if behind else Limits()
    async with a_store(tmp_path / "db", limits=limits) as store:
        start = store.revision
        watch = store.watch("pods", after=start)
        if behind:
            watch.close()
        for name in "abc":
            await write(store, pod(name), "")
        if behind:
            watch = store.watch("pods", after=start)
        watch.nudge()
        seen: list[str] = []
        while batch := await anext(watch):
            seen += [change.key.name for change in batch]
        assert seen == ["a", "b", "c"]
        # A nudge is answered by a single empty batch.
        await write(store, pod("d"), "")
        assert len(await anext(watch)) == 1


async def test_a_nudge_wakes_a_watch_that_waits(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watch = store.watch("pods", after=store.revision)
        asyncio.get_running_loop().call_later(5, watch.nudge)
        assert await anext(watch) == ()
        assert asyncio.get_running_loop().time() == pytest.approx(5)
