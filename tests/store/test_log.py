"""Staging, committing and reading back."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from onejob.clock import SystemClock
from onejob.objects.meta import Key
from onejob.store.base import RevisionMismatch, Store, StoreClosed, StoreLocked
from onejob.store.database import Reader
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter, ThreadCommitter
from onejob.virtual_time import Stuck, run_virtual, virtual_clock
from tests.store.support import a_store, delete, names, pod, put, remove, settle, write


@pytest.mark.virtual_time
async def test_the_log_store_is_a_store(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as log:
        store: Store = log
        assert store.count("pods") == 0


@pytest.mark.virtual_time
async def test_an_empty_store_has_a_revision_that_clients_may_use(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        assert store.revision == store.staged_revision == 1
        assert store.compacted == 0
        assert store.list("pods").revision == 1


@pytest.mark.virtual_time
async def test_a_write_is_staged_at_once_and_seen_when_it_is_durable(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        stored = store.stage(pod("a"), 0, lambda revision: b"r%d" % revision)
        assert stored is not None
        assert (stored.key, stored.revision, stored.value) == (pod("a"), 2, b"r2")
        assert store.newest(pod("a")) == stored
        assert store.staged_revision == 2
        assert store.get(pod("a")) is None
        assert names(store) == []
        assert store.count("pods") == 0
        assert store.revision == 1

        await store.durable(2)
        assert store.get(pod("a")) == stored
        assert names(store) == ["a"]
        assert store.count("pods") == 1
        assert store.revision == 2


@pytest.mark.virtual_time
async def test_writes_are_checked_against_the_newest_staged_state(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        first = put(store, pod("a"), "1")
        with pytest.raises(RevisionMismatch) as taken:
            store.stage(pod("a"), 0, lambda _: b"")
        assert (taken.value.expected, taken.value.actual) == (0, first)
        second = put(store, pod("a"), "2")
        with pytest.raises(RevisionMismatch):
            store.stage(pod("a"), first, lambda _: b"")
        remove(store, pod("a"))
        with pytest.raises(RevisionMismatch) as gone:
            store.stage(pod("a"), second, lambda _: b"")
        assert gone.value.actual == 0
        with pytest.raises(RevisionMismatch):
            store.stage(pod("a"), 0, None)
        fourth = put(store, pod("a"), "4")
        await store.durable(store.staged_revision)
        newest = store.get(pod("a"))
        assert newest is not None
        assert (newest.revision, newest.value) == (fourth, b"4")


@pytest.mark.virtual_time
async def test_a_refused_or_failed_stage_takes_no_revision(tmp_path: Path) -> None:
    def broken(_: int) -> bytes:
        raise ValueError("no document")

    async with a_store(tmp_path / "db") as store:
        with pytest.raises(RevisionMismatch):
            store.stage(pod("a"), 7, lambda _: b"")
        with pytest.raises(ValueError, match="no document"):
            store.stage(pod("a"), 0, broken)
        assert store.newest(pod("a")) is None
        assert put(store, pod("b"), "") == 2


@pytest.mark.virtual_time
async def test_a_deletion_takes_a_revision_and_the_key_can_be_used_again(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await write(store, pod("a"), "1")
        assert await delete(store, pod("a")) == 3
        assert store.get(pod("a")) is None
        assert store.revision == 3
        assert await write(store, pod("a"), "2") == 4
        assert names(store) == ["a"]


@pytest.mark.virtual_time
async def test_keys_differ_by_resource_and_namespace(tmp_path: Path) -> None:
    keys = [pod("x"), pod("x", "other"), Key("jobs.batch", "default", "x"), Key("nodes", "", "x")]
    async with a_store(tmp_path / "db") as store:
        for number, key in enumerate(keys):
            await write(store, key, str(number))
        for number, key in enumerate(keys):
            stored = store.get(key)
            assert stored is not None
            assert stored.value == str(number).encode()
        assert store.count("pods") == 2
        assert store.count("pods", "other") == 1
        assert store.count("nodes") == 1
        assert store.count("nothing") == store.count("pods", "nowhere") == 0


@pytest.mark.virtual_time
async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await write(store, pod("kept"), "1")
        await write(store, pod("changed"), "1")
        await write(store, pod("changed"), "2")
        await write(store, pod("gone"), "1")
        await delete(store, pod("gone"))
        await write(store, pod("cold"), "finished", cold=True)
        revision = store.revision
        before = store.list("pods").items
    async with a_store(tmp_path / "db") as store:
        assert store.revision == store.staged_revision == revision
        assert store.list("pods").items == before
        assert names(store) == ["changed", "cold", "kept"]
        assert store.get(pod("gone")) is None
        assert await write(store, pod("new"), "1") == revision + 1


@pytest.mark.virtual_time
async def test_closing_makes_everything_staged_durable(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        for number in range(5_000):
            put(store, pod(f"p{number}"), "")
    assert store.revision == 5_001
    async with a_store(tmp_path / "db") as store:
        assert store.count("pods") == 5_000


@pytest.mark.virtual_time
async def test_a_closed_store_refuses_writes_and_watches(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watch = store.watch("pods", after=1)
    await store.close()
    with pytest.raises(StoreClosed):
        put(store, pod("a"), "")
    with pytest.raises(StoreClosed):
        store.watch("pods", after=1)
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


@pytest.mark.virtual_time
async def test_cancelled_close_completes_waiters(tmp_path: Path) -> None:
    store = await LogStore.open(
        tmp_path / "db", clock=virtual_clock(), committer=LoopCommitter(latency_seconds=10)
    )
    waiter = asyncio.ensure_future(write(store, pod("a"), ""))
    await settle()
    closing = asyncio.ensure_future(store.close())
    await settle()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(StoreClosed):
        await waiter
    async with a_store(tmp_path / "db") as again:
        assert again.revision == 1


@pytest.mark.virtual_time
async def test_a_cold_object_is_read_written_and_deleted_like_any_other(tmp_path: Path) -> None:
    async def _take(watch: Any, count: int) -> Any:
        seen = 0
        while seen < count:
            for change in await anext(watch):
                seen += 1
                yield change

    async with a_store(tmp_path / "db") as store:
        await write(store, pod("a"), "running")
        finished = await write(store, pod("a"), "finished", cold=True)
        stored = store.get(pod("a"))
        assert stored is not None
        assert (stored.revision, stored.value) == (finished, b"finished")
        assert store.newest(pod("a")) == stored
        assert store.list("pods").items == [stored]
        watch = store.watch("pods", after=finished)
        await write(store, pod("a"), "warm again")
        await write(store, pod("a"), "cold again", cold=True)
        await delete(store, pod("a"))
        changes = [change async for change in _take(watch, 3)]
        assert [change.previous for change in changes] == [
            b"finished", b"warm again", b"cold again",
        ]  # fmt: skip


@pytest.mark.virtual_time
async def test_cold_objects_that_are_read_ahead_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_store(tmp_path / "db") as store:
        keys = [pod(name) for name in "abc"]
        for key in keys:
            await write(store, key, f"last of {key.name}", cold=True)
        await write(store, pod("hot"), "hot")
        put(store, keys[2], "newer than what is on disk", cold=True)

        def read_alone(reader: Reader, revision: int) -> bytes:
            raise AssertionError(f"revision {revision} is read by itself")

        monkeypatch.setattr(Reader, "value", read_alone)
        watch = store.watch("pods", after=store.revision)
        store.warm([*keys, pod("hot"), pod("absent")])
        for key in keys:
            remove(store, key)
        await store.durable(store.staged_revision)
        deletions = [change for change in await anext(watch) if change.value is None]
        assert [change.previous for change in deletions] == [
            b"last of a", b"last of b", b"newer than what is on disk",
        ]  # fmt: skip


@pytest.mark.virtual_time
async def test_waiting_for_unstaged_revision_is_an_error(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await store.durable(1)
        with pytest.raises(ValueError, match="never staged"):
            await store.durable(2)


@pytest.mark.virtual_time
async def test_a_cancelled_waiter_leaves_the_others_alone(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", latency_seconds=1) as store:
        revision = put(store, pod("a"), "")
        waiters = [asyncio.ensure_future(store.durable(revision)) for _ in range(3)]
        await settle()
        waiters[1].cancel()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert results[0] is None
        assert isinstance(results[1], asyncio.CancelledError)
        assert results[2] is None


@pytest.mark.virtual_time
async def test_writes_staged_during_commit_share_next_commit(tmp_path: Path) -> None:
    class Counting(LoopCommitter):
        jobs = 0

        def submit(self, job: Callable[[], None], done: Callable[[Any], object]) -> None:
            self.jobs += 1
            super().submit(job, done)

    committer = Counting(latency_seconds=0.001)
    store = await LogStore.open(tmp_path / "db", clock=virtual_clock(), committer=committer)

    async def writer(number: int) -> None:
        for turn in range(10):
            await write(store, pod(f"{number}-{turn}"), "")

    await asyncio.gather(*(writer(number) for number in range(100)))
    assert store.count("pods") == 1_000
    assert committer.jobs <= 11, "commits per 1000 concurrent writes"
    assert (store.commits, store.writes) == (committer.jobs, 1_000)
    await store.close()


async def test_a_thousand_concurrent_writes_need_few_commits_with_a_real_thread(
    tmp_path: Path,
) -> None:
    class Counting(ThreadCommitter):
        jobs = 0

        def submit(self, job: Callable[[], None], done: Callable[[Any], object]) -> None:
            self.jobs += 1
            super().submit(job, done)

    committer = Counting()
    store = await LogStore.open(tmp_path / "db", clock=SystemClock(), committer=committer)
    await asyncio.gather(*(write(store, pod(f"{n}"), "x" * 1_000) for n in range(1_000)))
    assert store.count("pods") == 1_000
    # The first commit takes the writes staged in one turn of the loop: all of them.
    assert committer.jobs <= 5
    await store.close()


@pytest.mark.virtual_time
async def test_big_commits_are_split_by_count_and_by_bytes(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        watch = store.watch("pods", after=1)
        for number in range(3_000):
            put(store, pod(f"{number}"), "")
        for number in range(5):
            put(store, pod(f"big-{number}"), "x" * 3_000_000)
        await store.durable(store.staged_revision)
        sizes: list[int] = []
        while sum(sizes) < 3_005:
            sizes.append(len(await anext(watch)))
        assert sizes == [2_048, 954, 2, 1]


@pytest.mark.virtual_time
async def test_the_store_without_threads_starts_none(tmp_path: Path) -> None:
    before = threading.active_count()
    async with a_store(tmp_path / "db") as store:
        await write(store, pod("a"), "")
        assert threading.active_count() == before


async def test_the_writing_thread_ends_with_the_store(tmp_path: Path) -> None:
    before = threading.active_count()
    store = await LogStore.open(tmp_path / "db", clock=SystemClock())
    await write(store, pod("a"), "")
    assert threading.active_count() == before + 1
    await store.close()
    assert threading.active_count() == before


def test_an_idle_store_sets_no_timer(tmp_path: Path) -> None:
    """Otherwise virtual time could not detect a program that waits forever."""

    async def wait_for_nothing() -> None:
        async with a_store(tmp_path / "db") as store:
            await write(store, pod("a"), "")
            await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        run_virtual(wait_for_nothing())


def test_two_runs_in_virtual_time_leave_the_same_bytes(tmp_path: Path) -> None:
    async def workload(path: Path) -> None:
        async with a_store(path, latency_seconds=0.01) as store:

            async def writer(number: int) -> None:
                for turn in range(20):
                    await write(store, pod(f"{number * turn % 7}"), f"{number} {turn}")

            await asyncio.gather(*(writer(number) for number in range(5)))

    run: Callable[[Coroutine[Any, Any, None]], None] = run_virtual
    run(workload(tmp_path / "one"))
    run(workload(tmp_path / "two"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
@pytest.mark.virtual_time
async def test_files_are_private(tmp_path: Path, suffix: str) -> None:
    async with a_store(tmp_path / "db") as store:
        await write(store, pod("a"), "")
        assert os.stat(f"{tmp_path}/db{suffix}").st_mode & 0o777 == 0o600


@pytest.mark.virtual_time
async def test_a_second_opener_is_refused_at_once_and_let_in_later(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db"):
        with pytest.raises(StoreLocked, match="in use by another onejob"):
            await LogStore.open(tmp_path / "db", clock=virtual_clock())
    async with a_store(tmp_path / "db"):
        pass
