"""Store benchmark, with a bare SQLite loop that makes the same commits as the limit."""

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from onejob.benchmarks.limits import insert, synced_log
from onejob.benchmarks.results import Measurement
from onejob.clock import SystemClock
from onejob.objects.meta import Key
from onejob.store.log import LogStore

T = TypeVar("T")

#: About the size of a Pod.
DOCUMENT = b'{"filler":"' + b"x" * 1_900 + b'","resourceVersion":"'
_WRITERS = (1, 32, 256)


def by_onejob(*, writes_each: int, objects: int, changes: int, watchers: int) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        place = Path(folder)
        figures = {
            _writes_name(writers): _writes(place / str(writers), writers, writes_each * writers)
            for writers in _WRITERS
        }
        figures["writes/s, loop busy"] = _busy_loop_writes(place / "busy", changes)
        figures["loop time per write, µs"] = _loop_time_per_write(place / "loop", changes)
        whole, paged = _lists(place / "list", objects)
        figures[f"list of {objects:,}, ms"] = whole
        figures[f"list of {objects:,} in pages, ms"] = paged
        figures[f"list of {objects:,} cold, ms"] = _cold_list(place / "cold", objects)
        figures[f"events/s to {watchers} watchers"] = _fan_out(place / "fanout", watchers, changes)
        figures["events/s caught up from disk"] = _catch_up(place / "past", changes)
        figures[f"opening with {objects:,}, ms"] = _opening(place / "open", objects)
    return Measurement(figures)


def by_a_bare_loop(*, writes_each: int) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        return Measurement(
            {
                _writes_name(writers): _bare_commits(
                    Path(folder) / str(writers), batch=writers, total=writes_each * writers
                )
                for writers in _WRITERS
            }
        )


def _writes_name(writers: int) -> str:
    return f"writes/s, {writers} writer" + ("s" if writers > 1 else "")


def _writes(path: Path, writers: int, total: int) -> float:
    """Return writes per second of writers that each await their write before the next."""

    async def work(store: LogStore) -> float:
        async def writer(number: int) -> None:
            for turn in range(total // writers):
                stored = store.stage(_pod(f"{number}-{turn}"), 0, _encode)
                assert stored is not None
                await store.durable(stored.revision)

        start = time.perf_counter()
        await asyncio.gather(*(writer(number) for number in range(writers)))
        return total / (time.perf_counter() - start)

    return _with_store(path, work)


def _busy_loop_writes(path: Path, total: int) -> float:
    """Return writes per second while the loop computes all the time, as with busy controllers."""

    async def work(store: LogStore) -> float:
        start = time.perf_counter()
        while store.revision < total:
            for number in range(50):
                name = f"{store.staged_revision}-{number}"
                store.stage(_pod(name), 0, _encode)
            await asyncio.sleep(0)
            sum(range(20_000))
        return total / (time.perf_counter() - start)

    return _with_store(path, work)


def _loop_time_per_write(path: Path, total: int) -> float:
    """Return the CPU time of the loop's thread per write, in µs.

    It covers staging, publishing and waking one writer.
    """

    async def work(store: LogStore) -> float:
        start = time.thread_time()
        for turn in range(total // 200):
            for number in range(200):
                store.stage(_pod(f"{turn}-{number}"), 0, _encode)
            await store.durable(store.staged_revision)
        return (time.thread_time() - start) / total * 1e6

    return _with_store(path, work)


def _lists(path: Path, objects: int) -> tuple[float, float]:
    """Return the ms that a whole list takes, and one in pages."""

    async def work(store: LogStore) -> tuple[float, float]:
        await _fill(store, objects)
        whole = float("inf")
        for _ in range(10):
            start = time.perf_counter()
            assert len(store.list("pods").items) == objects
            whole = min(whole, time.perf_counter() - start)
        start = time.perf_counter()
        found = 0
        async for page in store.pages("pods", size=500):
            found += len(page.items)
        assert found == objects
        return whole * 1e3, (time.perf_counter() - start) * 1e3

    return _with_store(path, work)


def _cold_list(path: Path, objects: int) -> float:
    """Return the ms that a list of cold objects takes."""

    async def work(store: LogStore) -> float:
        await _fill(store, objects, cold=True)
        start = time.perf_counter()
        assert len(store.list("pods").items) == objects
        return (time.perf_counter() - start) * 1e3

    return _with_store(path, work)


def _fan_out(path: Path, watchers: int, changes: int) -> float:
    """Return events delivered per second, writing included."""

    async def work(store: LogStore) -> float:
        async def follow(after: int) -> int:
            seen = 0
            watch = store.watch("pods", after=after)
            while seen < changes:
                seen += len(await anext(watch))
            return seen

        start = time.perf_counter()
        following = [asyncio.ensure_future(follow(store.revision)) for _ in range(watchers)]
        await asyncio.sleep(0)
        for turn in range(changes // 100):
            for number in range(100):
                store.stage(_pod(f"{turn}-{number}"), 0, _encode)
            await store.durable(store.staged_revision)
        delivered = sum(await asyncio.gather(*following))
        return delivered / (time.perf_counter() - start)

    return _with_store(path, work)


def _catch_up(path: Path, changes: int) -> float:
    """Return events per second of a watch from the start of history, which is mostly on disk."""

    async def work(store: LogStore) -> float:
        start_revision = store.revision
        await _fill(store, changes)
        start = time.perf_counter()
        watch = store.watch("pods", after=start_revision)
        seen = 0
        while seen < changes:
            seen += len(await anext(watch))
        return changes / (time.perf_counter() - start)

    return _with_store(path, work)


def _opening(path: Path, objects: int) -> float:
    """Return the ms that opening a store with `objects` takes."""
    _with_store(path, lambda store: _fill(store, objects))

    async def main() -> float:
        start = time.perf_counter()
        store = await LogStore.open(path, clock=SystemClock())
        elapsed = time.perf_counter() - start
        await store.close()
        return elapsed * 1e3

    return asyncio.run(main())


def _bare_commits(path: Path, *, batch: int, total: int) -> float:
    """Return the writes per second of one thread without a store.

    Each commit inserts `batch` documents and is synced like the store's.
    """
    connection = synced_log(path)
    start = time.perf_counter()
    for first in range(0, total, batch):
        revisions = range(first, first + batch)
        insert(connection, [(n, f"pod-{n}", _encode(n)) for n in revisions])
    rate = total / (time.perf_counter() - start)
    connection.close()
    return rate


def _with_store(path: Path, work: Callable[[LogStore], Awaitable[T]]) -> T:
    async def main() -> T:
        store = await LogStore.open(path, clock=SystemClock())
        result = await work(store)
        await store.close()
        return result

    gc.collect()
    return asyncio.run(main())


async def _fill(store: LogStore, count: int, *, cold: bool = False) -> None:
    """Stage `count` Pods in scattered order, and wait until they are durable."""
    for number in range(count):
        store.stage(_pod(f"{number * 7919 % count:06}"), 0, _encode, cold=cold)
    await store.durable(store.staged_revision)


def _pod(name: str) -> Key:
    return Key("pods", "default", name)


def _encode(revision: int) -> bytes:
    return b'%s%d"}' % (DOCUMENT, revision)
