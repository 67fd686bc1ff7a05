"""Durability of acknowledged writes: under any disk error, and at any loss of power."""

import asyncio
import errno
import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from _pytest.mark import ParameterSet

from onejob.clock import SystemClock
from onejob.objects.meta import Key
from onejob.store.base import CommitFailed, StoreError, StoreFailed
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.virtual_time import run_virtual
from sim.faulty_disk import (
    Entry,
    FaultyDisk,
    after_power_loss,
    any_part,
    everything,
    nothing,
)
from tests.store.support import (
    a_store,
    checked_document,
    is_whole,
    names,
    pod,
    put,
    remove,
    settle,
    write,
)

#: Small enough for compaction, checkpoints and vacuum to happen within a short workload.
BUSY = Limits(
    history_changes=16,
    recent_changes=16,
    commit_changes=8,
    checkpoint_bytes=200_000,
    spare_pages=4,
)


async def _work(store: LogStore, disk: FaultyDisk, turns: int, seed: int = 1) -> None:
    """Create, update and delete in groups; report acknowledgements to the disk.

    A report reads "name state revision ack", the state being `at` or `gone`, and "name state
    revision try" as soon as the write is staged.
    """
    rng = random.Random(seed)

    async def one(name: str, deletes: bool) -> None:
        key = pod(name)
        before = store.newest(key)
        if deletes and before is not None:
            told = f"{name} gone {remove(store, key)}"
        else:
            document = checked_document(name, rng.randrange(3_000))
            store.stage(key, before.revision if before else 0, lambda _: document)
            told = f"{name} at {store.staged_revision}"
        disk.tell(f"{told} try")
        await store.durable(store.staged_revision)
        disk.tell(f"{told} ack")

    for turn in range(turns):
        chosen = {f"p{rng.randrange(12)}" for _ in range(rng.randrange(1, 9))} | {f"new-{turn}"}
        results = await asyncio.gather(
            *(one(name, rng.random() < 0.3) for name in sorted(chosen)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, StoreError):
                raise result


async def _check(path: Path, journal: list[Entry]) -> None:
    """Check that the store opens, is intact, and has each object as last acknowledged.

    An object may also be in the state of a later write that was in flight.
    """
    allowed: dict[str, set[tuple[str, int]]] = {}
    for entry in journal:
        if entry.what == "told":
            name, state, revision, step = entry.name.split()
            states = allowed.setdefault(name, {("gone", 0)})
            if step == "ack":
                states.intersection_update({s for s in states if s[1] >= int(revision)})
            states.add((state, int(revision)))
    async with a_store(path, limits=BUSY) as store:
        for name, states in allowed.items():
            stored = store.get(pod(name))
            if stored is None:
                assert "gone" in {state for state, _ in states}, f"{name} was lost"
            else:
                assert ("at", stored.revision) in states, f"{name} is at {stored.revision}"
        acknowledged = [
            int(entry.name.split()[2]) for entry in journal if entry.name.endswith(" ack")
        ]
        assert store.revision >= max(acknowledged, default=0), "revisions went back"
        for stored in store.list("pods").items:
            assert is_whole(stored.key.name, stored.value), f"{stored.key} is torn"
        put(store, pod("after"), "")
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def _recorded_workload(path: Path, turns: int) -> list[Entry]:
    async def record() -> list[Entry]:
        with FaultyDisk() as disk:
            async with a_store(path, limits=BUSY, vfs=disk.name) as store:
                await _work(store, disk, turns)
                assert store.compacted > 0
            return disk.journal

    return run_virtual(record())


def test_a_sync_comes_between_each_write_and_its_acknowledgement(tmp_path: Path) -> None:
    journal = _recorded_workload(tmp_path / "db", 40)
    assert _told_before_synced(journal) == []
    assert sum(entry.name.endswith(" ack") for entry in journal) > 100
    assert any(entry.what == "sync" and entry.name == "db" for entry in journal), "checkpoints"


@pytest.mark.virtual_time
async def test_the_check_for_syncs_finds_a_store_that_does_not_sync(tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        async with a_store(tmp_path / "db", vfs=disk.name) as store:
            store._database.writer.pragma("synchronous", "normal")
            await _work(store, disk, 2)
        assert _told_before_synced(disk.journal) != []


def _told_before_synced(journal: list[Entry]) -> list[str]:
    """Return acknowledgements given while the write-ahead log had unsynced writes."""
    early: list[str] = []
    unsynced = False
    for entry in journal:
        if entry.name.endswith("-wal"):
            unsynced = entry.what != "sync" and (unsynced or entry.what == "write")
        elif entry.name.endswith(" ack") and unsynced:
            early.append(entry.name)
    return early


def test_power_lost_at_any_sync_loses_nothing_acknowledged(tmp_path: Path) -> None:
    journal = _recorded_workload(tmp_path / "db", 30)
    syncs = [at for at, entry in enumerate(journal) if entry.what == "sync"]
    for sync in syncs:
        for name, end in (("before", sync), ("after", sync + 1)):
            directory = tmp_path / f"{name}-{sync}"
            after_power_loss(journal[:end], directory, nothing)
            run_virtual(_check(directory / "db", journal[:end]))
    assert len(syncs) > 40


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_anywhere_with_any_unsynced_part_kept_loses_nothing_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    journal = _recorded_workload(tmp_path / "db", 30)
    rng = random.Random(seed)
    for number in range(60):
        end = rng.randrange(len(journal) + 1)
        directory = tmp_path / f"{number}"
        keep = everything if rng.randrange(6) == 0 else any_part(rng)
        after_power_loss(journal[:end], directory, keep)
        run_virtual(_check(directory / "db", journal[:end]))


class _FailsOnce:
    """Fails at the n-th write, truncation or sync; like a real disk, perhaps forever after."""

    def __init__(self, at: int, error: type[apsw.Error], *, for_ever: bool) -> None:
        self._left = at
        self._error = error
        self._for_ever = for_ever
        self.failed = False

    def __call__(self, _: Entry) -> None:
        self._left -= 1
        if self._left == 0 or (self._for_ever and self._left < 0):
            self.failed = True
            raise self._error("injected")


def _sweeps() -> list[ParameterSet]:
    """Return all combinations; half of them, with every pair of values, run in `make test`."""
    found = []
    for error, for_ever, when in itertools.product(
        (apsw.IOError, apsw.FullError), (False, True), ("before", "after")
    ):
        sample = (error is apsw.FullError) + for_ever + (when == "after")
        marks = pytest.mark.nightly if sample % 2 else ()
        name = f"{error.__name__}-{'for ever' if for_ever else 'once'}-{when}"
        found.append(pytest.param(error, for_ever, when, marks=marks, id=name))
    return found


@pytest.mark.parametrize(("error", "for_ever", "when"), _sweeps())
def test_failed_write_or_sync_loses_no_acknowledged_change(
    tmp_path: Path, error: type[apsw.Error], for_ever: bool, when: str
) -> None:
    """`after`: the disk succeeded and still reports a failure."""

    async def attempt(path: Path, disk: FaultyDisk, at: int) -> bool:
        async with a_store(path, limits=BUSY, vfs=disk.name) as store:
            await write(store, pod("first"), checked_document("first", 10).decode())
        fault = _FailsOnce(at, error, for_ever=for_ever)
        try:
            async with a_store(path, limits=BUSY, vfs=disk.name) as store:
                setattr(disk, when, fault)
                await _work(store, disk, 6)
                setattr(disk, when, lambda _: None)
        except StoreError:
            assert fault.failed
        finally:
            setattr(disk, when, lambda _: None)
        return fault.failed

    for at in range(1, 1_000):
        path = tmp_path / f"{at}" / "db"
        path.parent.mkdir()
        with FaultyDisk() as disk:
            failed = run_virtual(attempt(path, disk, at))
        for name, keep in (("nothing", nothing), ("all", everything)):
            directory = tmp_path / f"{at}-{name}"
            after_power_loss(disk.journal, directory, keep)
            run_virtual(_check(directory / "db", disk.journal))
            shutil.rmtree(directory)
        if not failed:
            assert at > 30
            return
    raise AssertionError("the workload never ended")


def _fail_on(what: str, error: type[apsw.Error]) -> Callable[[Entry], None]:
    def before(entry: Entry) -> None:
        if entry.what == what:
            raise error("injected")

    return before


@pytest.mark.virtual_time
async def test_a_full_disk_fails_everything_staged_behind_it_and_nothing_else(
    tmp_path: Path,
) -> None:
    with FaultyDisk() as disk:
        limits = Limits(commit_changes=2)
        async with a_store(tmp_path / "db", vfs=disk.name, limits=limits) as store:
            await write(store, pod("a"), "1")
            watch = store.watch("pods", after=store.revision)
            disk.before = _fail_on("write", apsw.FullError)
            put(store, pod("a"), "2")
            put(store, pod("b"), "1")
            last = put(store, pod("a"), "3")
            waiters = [asyncio.ensure_future(store.durable(r)) for r in (3, 4, last)]
            for outcome in await asyncio.gather(*waiters, return_exceptions=True):
                assert isinstance(outcome, CommitFailed)
            disk.before = lambda _: None

            newest = store.newest(pod("a"))
            assert newest is not None
            assert newest.value == b"1"
            assert newest == store.get(pod("a"))
            assert store.newest(pod("b")) is None
            assert store.revision == 2
            for failed in (3, 4, 5):
                with pytest.raises(CommitFailed):
                    await store.durable(failed)
            assert not store.failed.done()

            assert await write(store, pod("b"), "again") == 6, "no revision is used twice"
            with pytest.raises(CommitFailed):
                await store.durable(5)
            assert [change.revision for change in await anext(watch)] == [6]
            assert names(store) == ["a", "b"]


@pytest.mark.parametrize("what", ["write", "sync"])
@pytest.mark.virtual_time
async def test_an_error_of_unknown_outcome_stops_the_store(tmp_path: Path, what: str) -> None:
    with FaultyDisk() as disk:
        async with a_store(tmp_path / "db", vfs=disk.name) as store:
            await write(store, pod("a"), "1")
            watch = store.watch("pods", after=store.revision)
            disk.before = _fail_on(what, apsw.IOError)
            revision = put(store, pod("a"), "2")
            with pytest.raises(StoreFailed, match="write may have failed"):
                await store.durable(revision)
            failure = await store.failed
            with pytest.raises(StoreFailed):
                await store.durable(revision)
            with pytest.raises(StoreFailed):
                await anext(watch)
            with pytest.raises(StoreFailed):
                put(store, pod("c"), "")
            with pytest.raises(StoreFailed) as raised:
                store.watch("pods", after=1)
            assert raised.value is failure
            stored = store.get(pod("a"))
            assert stored is not None
            assert stored.value == b"1"
            disk.before = lambda _: None
        before = (tmp_path / "db-wal").exists()
        assert before, "a failed store leaves its log for the next start"


async def test_the_writing_thread_reports_a_failed_sync_too(tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        store = await LogStore.open(tmp_path / "db", clock=SystemClock(), vfs=disk.name)
        disk.before = _fail_on("sync", apsw.IOError)
        results = await asyncio.gather(
            *(write(store, Key("pods", "default", f"{n}"), "") for n in range(10)),
            return_exceptions=True,
        )
        assert all(isinstance(result, StoreFailed) for result in results)
        assert isinstance(await store.failed, StoreFailed)
        await store.close()


@pytest.mark.virtual_time
async def test_an_object_that_cannot_be_read_back_is_an_error_of_the_store(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await write(store, pod("a"), "x", cold=True)
        store._reader._connection.set_authorizer(lambda *_: apsw.SQLITE_DENY)
        with pytest.raises(StoreFailed, match="cannot read"):
            store.get(pod("a"))
        with pytest.raises(StoreFailed, match="cannot read"):
            store.list("pods")
        assert not store.failed.done(), "what was written is still safe"
        store._reader._connection.set_authorizer(None)
        assert store.get(pod("a")) is not None


@pytest.mark.virtual_time
async def test_a_failing_checkpoint_stops_the_store_but_a_full_disk_only_delays_it(
    tmp_path: Path,
) -> None:
    def database_only(error: type[apsw.Error]) -> Callable[[Entry], None]:
        def before(entry: Entry) -> None:
            if entry.name == "db":
                raise error(f"injected {errno.ENOSPC}")

        return before

    limits = Limits(checkpoint_bytes=1)
    with FaultyDisk() as disk:
        async with a_store(tmp_path / "db", vfs=disk.name, limits=limits) as store:
            disk.before = database_only(apsw.FullError)
            await write(store, pod("a"), "1")
            await settle()
            await write(store, pod("b"), "1")
            await settle()
            assert not store.failed.done()
            disk.before = database_only(apsw.IOError)
            await write(store, pod("c"), "1")
            await settle()
            assert "checkpoint" in str(await store.failed)
            disk.before = lambda _: None
    async with a_store(tmp_path / "db") as store:
        assert names(store) == ["a", "b", "c"]


@pytest.mark.virtual_time
async def test_a_failing_checkpoint_leaves_no_writer_waiting(tmp_path: Path) -> None:
    """A commit in progress ends with its own result; later staged writes fail."""

    def broken_database(entry: Entry) -> None:
        if entry.name == "db":
            raise apsw.IOError("injected")

    limits = Limits(checkpoint_bytes=1)
    with FaultyDisk() as disk:
        async with a_store(
            tmp_path / "db", vfs=disk.name, limits=limits, latency_seconds=1
        ) as store:
            disk.before = broken_database
            writes = []
            for name in ("committed", "under way", "staged"):
                writes.append(asyncio.ensure_future(write(store, pod(name), "")))
                await asyncio.sleep(0.6)
            first, second, third = await asyncio.gather(*writes, return_exceptions=True)
            assert (first, second) == (2, 3)
            assert isinstance(third, StoreFailed)
            assert store.newest(pod("staged")) is None
            disk.before = lambda _: None
    async with a_store(tmp_path / "db") as store:
        assert names(store) == ["committed", "under way"]
