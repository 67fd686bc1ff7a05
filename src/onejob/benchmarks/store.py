"""How fast is the store, next to a bare SQLite loop doing the same commits in the same run?

python -m bench.store_bench [--json]
"""

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from onejob.clock import SystemClock
from onejob.objects.meta import Key
from onejob.store.log import LogStore

T = TypeVar("T")

#: About the size of a Pod.
DOCUMENT = b'{"filler":"' + b"x" * 1_900 + b'","resourceVersion":"'


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    #: The same work by a bare loop, where there is one.
    limit: float | None = None


def run_all(directory: Path) -> list[Figure]:
    return [
        writes(directory / "1", writers=1, total=2_000),
        writes(directory / "32", writers=32, total=32_000),
        writes(directory / "256", writers=256, total=51_200),
        busy_loop_writes(directory / "busy", total=10_000),
        loop_time_per_write(directory / "loop", total=20_000),
        *lists(directory / "list", objects=10_000),
        cold_list(directory / "cold", objects=10_000),
        fan_out(directory / "fanout", watchers=20, changes=20_000),
        catch_up(directory / "past", changes=20_000),
        opening(directory / "open", objects=20_000),
    ]


def writes(path: Path, *, writers: int, total: int) -> Figure:
    """Writers that each wait for their write before the next."""

    async def work(store: LogStore) -> float:
        async def writer(number: int) -> None:
            for turn in range(total // writers):
                stored = store.stage(_pod(f"{number}-{turn}"), 0, _encode)
                assert stored is not None
                await store.durable(stored.revision)

        start = time.perf_counter()
        await asyncio.gather(*(writer(number) for number in range(writers)))
        return total / (time.perf_counter() - start)

    limit = _bare_commits(path.with_suffix(".bare"), batch=writers, total=total)
    return Figure(f"writes, {writers} writers", _with_store(path, work), "1/s", limit)


def busy_loop_writes(path: Path, *, total: int) -> Figure:
    """Writes while the loop computes all the time, as it does when controllers work."""

    async def work(store: LogStore) -> float:
        start = time.perf_counter()
        while store.revision < total:
            for number in range(50):
                name = f"{store.staged_revision}-{number}"
                store.stage(_pod(name), 0, _encode)
            await asyncio.sleep(0)
            sum(range(20_000))
        return total / (time.perf_counter() - start)

    return Figure("writes, loop busy", _with_store(path, work), "1/s")


def loop_time_per_write(path: Path, *, total: int) -> Figure:
    """CPU time of the loop's thread for staging, publishing and waking one writer."""

    async def work(store: LogStore) -> float:
        start = time.thread_time()
        for turn in range(total // 200):
            for number in range(200):
                store.stage(_pod(f"{turn}-{number}"), 0, _encode)
            await store.durable(store.staged_revision)
        return (time.thread_time() - start) / total * 1e6

    return Figure("loop time per write", _with_store(path, work), "us")


def lists(path: Path, *, objects: int) -> list[Figure]:
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

    whole, paged = _with_store(path, work)
    return [
        Figure(f"list of {objects}", whole, "ms"),
        Figure(f"list of {objects} in pages of 500", paged, "ms"),
    ]


def cold_list(path: Path, *, objects: int) -> Figure:
    async def work(store: LogStore) -> float:
        await _fill(store, objects, cold=True)
        start = time.perf_counter()
        assert len(store.list("pods").items) == objects
        return (time.perf_counter() - start) * 1e3

    return Figure(f"list of {objects} cold objects", _with_store(path, work), "ms")


def fan_out(path: Path, *, watchers: int, changes: int) -> Figure:
    """Events delivered per second, writing included."""

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

    return Figure(f"events to {watchers} watchers", _with_store(path, work), "1/s")


def catch_up(path: Path, *, changes: int) -> Figure:
    """A watch from the beginning of history, most of it on disk."""

    async def work(store: LogStore) -> float:
        start_revision = store.revision
        await _fill(store, changes)
        start = time.perf_counter()
        watch = store.watch("pods", after=start_revision)
        seen = 0
        while seen < changes:
            seen += len(await anext(watch))
        return changes / (time.perf_counter() - start)

    return Figure("events caught up from disk", _with_store(path, work), "1/s")


def opening(path: Path, *, objects: int) -> Figure:
    _with_store(path, lambda store: _fill(store, objects))

    async def main() -> float:
        start = time.perf_counter()
        store = await LogStore.open(path, clock=SystemClock())
        elapsed = time.perf_counter() - start
        await store.close()
        return elapsed * 1e3

    return Figure(f"opening a store of {objects}", asyncio.run(main()), "ms")


def _bare_commits(path: Path, *, batch: int, total: int) -> float:
    """One thread, no store: insert `batch` documents per commit, synced like the store's."""
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", 8_192)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("wal_autocheckpoint", 2_000)
    connection.execute("CREATE TABLE log (revision INTEGER PRIMARY KEY, name TEXT, value BLOB)")
    rows = ",".join(["(?, ?, ?)"] * batch)
    start = time.perf_counter()
    for first in range(0, total, batch):
        values: list[int | str | bytes] = []
        for revision in range(first, first + batch):
            values += (revision, f"pod-{revision}", _encode(revision))
        connection.execute(f"INSERT INTO log VALUES {rows}", values)
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
    for number in range(count):
        store.stage(_pod(f"{number * 7919 % count:06}"), 0, _encode, cold=cold)
    await store.durable(store.staged_revision)


def _pod(name: str) -> Key:
    return Key("pods", "default", name)


def _encode(revision: int) -> bytes:
    return b'%s%d"}' % (DOCUMENT, revision)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        figures = run_all(Path(directory))
    for figure in figures:
        if "--json" in sys.argv:
            print(json.dumps(asdict(figure)))
            continue
        limit = f"   bare loop {figure.limit:,.0f}" if figure.limit is not None else ""
        print(f"{figure.name:36} {figure.value:12,.1f} {figure.unit}{limit}")


if __name__ == "__main__":
    main()
