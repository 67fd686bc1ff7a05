"""Validation of documents from disk: invalid ones are set aside, and found again."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onejob.store.base import DamagedDocument
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from tests.store.support import a_store, collect, delete, names, pod, put, write

pytestmark = pytest.mark.virtual_time

if TYPE_CHECKING:
    from onejob.objects.meta import Key


async def _reopened(path: Path) -> LogStore:
    return await LogStore.open(
        path,
        clock=virtual_clock(),
        committer=LoopCommitter(),
        is_readable=lambda _, value: value != b"damaged",
    )


async def _fill(path: Path, *, cold: bool) -> None:
    async with a_store(path) as store:
        for name in "abcde":
            text = "damaged" if name in "bd" else "fine"
            await write(store, pod(name), text, cold=cold)


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
async def test_pages_go_on_behind_damaged_ones(tmp_path: Path, cold: bool) -> None:
    await _fill(tmp_path / "db", cold=cold)
    store = await _reopened(tmp_path / "db")
    found: list[str] = []
    after: Key | None = None
    at = 0
    while True:
        page = store.list("pods", limit=1, after=after, at=at)
        found += [item.key.name for item in page.items]
        after, at = page.next_after, page.revision
        if after is None:
            break
    assert found == ["a", "c", "e"]
    assert sorted(key.name for key in store.damaged) == ["b", "d"]
    assert store.count("pods") == 3
    await store.close()


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
async def test_a_damaged_one_is_not_absent(tmp_path: Path, cold: bool) -> None:
    await _fill(tmp_path / "db", cold=cold)
    store = await _reopened(tmp_path / "db")
    store.warm([pod("a"), pod("b")])
    for _ in range(2):
        with pytest.raises(DamagedDocument, match="revision 3"):
            store.get(pod("b"))
        with pytest.raises(DamagedDocument):
            store.newest(pod("b"))
        with pytest.raises(DamagedDocument):
            store.stage(pod("b"), 0, lambda _: b"anew")
    await store.close()


async def test_nothing_looks_at_the_pages_of_a_closed_store(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        put(store, pod("a"), "damaged")
        for number in range(500):
            put(store, pod(f"b{number}"), "x" * 10_000)
    for _ in range(5):
        await (await _reopened(tmp_path / "db")).close()
        assert "onejob-store-check" not in {thread.name for thread in threading.enumerate()}
        assert sorted(os.listdir(tmp_path)) == ["db", "db.lock"]


async def test_a_discarded_one_is_gone_for_good(tmp_path: Path) -> None:
    await _fill(tmp_path / "db", cold=False)
    store = await _reopened(tmp_path / "db")
    watch = store.watch("pods", after=store.revision)
    revision = store.discard(pod("b"))
    assert store.newest(pod("b")) is None
    assert pod("b") in store.damaged, "not before it is durable"
    await store.durable(revision)
    assert store.get(pod("b")) is None
    await write(store, pod("b"), "anew")
    (created,) = (change for change in await collect(watch, 2) if change.value is not None)
    assert (created.value, created.previous) == (b"anew", None)
    await delete(store, pod("b"))
    await store.close()
    store = await _reopened(tmp_path / "db")
    assert sorted(key.name for key in store.damaged) == ["d"]
    assert names(store) == ["a", "c", "e"]
    await store.close()


async def test_watchers_of_the_past_do_not_see_it(tmp_path: Path) -> None:
    await _fill(tmp_path / "db", cold=False)
    store = await _reopened(tmp_path / "db")
    watch = store.watch("pods", after=1)
    assert [change.key.name for change in await collect(watch, 3)] == ["a", "c", "e"]
    await store.close()


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
async def test_own_writes_are_not_checked_again(tmp_path: Path, cold: bool) -> None:
    await _fill(tmp_path / "db", cold=True)
    judged: list[str] = []

    def is_readable(key: "Key", _: bytes) -> bool:
        judged.append(key.name)
        return True

    store = await LogStore.open(
        tmp_path / "db",
        clock=virtual_clock(),
        committer=LoopCommitter(),
        is_readable=is_readable,
    )
    for name in "xyz":
        await write(store, pod(name), "new", cold=cold)
    store.warm([pod(name) for name in "abxyz"])
    assert all(store.get(pod(name)) is not None for name in "axyz")
    assert len(store.list("pods").items) == 8
    assert sorted(set(judged)) == ["a", "b", "c", "d", "e"]
    await store.close()
