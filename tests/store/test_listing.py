"""Lists in key order, whole and in pages of one revision."""

from pathlib import Path

import pytest

from onejob.objects.meta import Key
from onejob.store.base import Compacted, Stored
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from tests.store.support import a_store, delete, names, pod, put, write

pytestmark = pytest.mark.virtual_time


async def _fill(store: LogStore, *, cold: bool = False) -> None:
    for namespace in ("b", "a", "c"):
        for name in ("2", "3", "1"):
            put(store, pod(name, namespace), f"{namespace}{name}", cold=cold)
    put(store, Key("jobs.batch", "a", "other"), "")
    await store.durable(store.staged_revision)


def _walk(
    store: LogStore, limit: int, *, namespace: str = "", after: Key | None = None, at: int = 0
) -> list[tuple[str, str, bytes]]:
    """Return the rest of a list, read in pages."""
    found = []
    while True:
        page = store.list("pods", namespace, limit=limit, after=after, at=at)
        assert len(page.items) <= limit
        found += [(s.key.namespace, s.key.name, s.value) for s in page.items]
        if page.next_after is None:
            return found
        after, at = page.next_after, page.revision


@pytest.mark.parametrize("cold", [False, True])
async def test_lists_are_in_key_order(tmp_path: Path, cold: bool) -> None:
    async with a_store(tmp_path / "db") as store:
        await _fill(store, cold=cold)
        page = store.list("pods")
        assert [s.key for s in page.items] == [pod(n, s) for s in "abc" for n in "123"]
        assert [s.value for s in page.items] == [f"{s}{n}".encode() for s in "abc" for n in "123"]
        assert (page.revision, page.next_after, page.remaining) == (11, None, 0)
        assert names(store, namespace="b") == ["1", "2", "3"]
        assert names(store, namespace="nowhere") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9, 10])
async def test_pages_join_to_the_whole_list(tmp_path: Path, limit: int) -> None:
    async with a_store(tmp_path / "db") as store:
        await _fill(store)
        whole = [(s.key.namespace, s.key.name, s.value) for s in store.list("pods").items]
        assert _walk(store, limit) == whole
        assert _walk(store, limit, namespace="b") == whole[3:6]


async def test_list_page_has_remaining_count(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await _fill(store)
        page = store.list("pods", limit=4)
        assert page.remaining == 5
        assert page.next_after == pod("1", "b")
        assert store.list("pods", "b", limit=2).remaining == 1


@pytest.mark.parametrize("restart", [False, True], ids=["followed", "rebuilt from the log"])
@pytest.mark.parametrize("cold", [False, True])
async def test_later_pages_show_the_moment_of_the_first(
    tmp_path: Path, restart: bool, cold: bool
) -> None:
    async def change_everything(store: LogStore) -> None:
        await write(store, pod("2", "a"), "changed", cold=cold)
        await delete(store, pod("3", "a"))
        await delete(store, pod("1", "b"))
        await write(store, pod("1", "b"), "created again")
        for name in "123":
            await delete(store, pod(name, "c"))
        await write(store, pod("0", "b"), "new", cold=cold)
        await write(store, pod("9", "aa"), "new namespace")
        await write(store, pod("2", "a"), "changed twice")

    async with a_store(tmp_path / "db") as store:
        await _fill(store, cold=cold)
        whole = [(s.key.namespace, s.key.name, s.value) for s in store.list("pods").items]
        first = store.list("pods", limit=1)
        if not restart:
            await change_everything(store)
            assert _walk(store, 2, after=first.next_after, at=first.revision) == whole[1:]
            assert _walk(store, 9, at=first.revision) == whole
    if restart:
        async with a_store(tmp_path / "db") as store:
            await change_everything(store)
        async with a_store(tmp_path / "db") as store:
            assert _walk(store, 2, after=first.next_after, at=first.revision) == whole[1:]


async def test_more_paged_lists_than_are_followed_still_show_their_moments(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await _fill(store)
        begun = []
        for turn in range(12):
            whole = [(s.key.namespace, s.key.name, s.value) for s in store.list("pods").items]
            begun.append((store.list("pods", limit=1), whole))
            await write(store, pod("2", "a"), f"turn {turn}")
        for first, whole in begun:
            assert _walk(store, 3, after=first.next_after, at=first.revision) == whole[1:]


async def test_a_snapshot_too_different_to_follow_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.store.snapshots.MAX_DIFFERENCES", 3)
    async with a_store(tmp_path / "db") as store:
        await _fill(store)
        whole = [(s.key.namespace, s.key.name, s.value) for s in store.list("pods").items]
        first = store.list("pods", limit=1)
        for place in "abc":
            await delete(store, pod("2", place))
            await write(store, pod("3", place), "changed")
        assert not store._listing.snapshots
        assert _walk(store, 2, after=first.next_after, at=first.revision) == whole[1:]


async def test_a_snapshot_that_is_compacted_is_refused(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db", limits=Limits(history_changes=32)) as store:
        await _fill(store)
        first = store.list("pods", limit=1)
        for turn in range(100):
            await write(store, pod("1", "a"), f"{turn}")
        assert store.compacted > first.revision
        with pytest.raises(Compacted) as gone:
            store.list("pods", limit=1, after=first.next_after, at=first.revision)
        assert (gone.value.revision, gone.value.oldest) == (first.revision, store.compacted)
        assert len(store.list("pods", at=store.compacted).items) == 9


async def test_a_snapshot_of_the_future_is_an_error(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        with pytest.raises(ValueError, match="future"):
            store.list("pods", at=2)


async def test_pages_of_a_long_list_let_writers_in_and_stay_consistent(tmp_path: Path) -> None:
    async with a_store(tmp_path / "db") as store:
        await _fill(store)
        whole = list(store.list("pods").items)
        found: list[Stored] = []
        async for page in store.pages("pods", size=2):
            assert page.revision == 11
            found += page.items
            await write(store, pod("3", "b"), "changed")
            if page.remaining == 7:
                await delete(store, pod("2", "c"))
        assert found == whole
        assert store.count("pods") == 8
