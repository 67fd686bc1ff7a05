"""First list of an informer: it yields to other tasks, and no change is missed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Delete, Listing, Patch, Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.informers import informer as informer_module
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Expired, InternalError
from tests.build import a_pod, creation
from tests.node.support import an_api

pytestmark = pytest.mark.virtual_time

NAMES = tuple("abcdefgh")


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "_EVENTS_PER_TURN", 2)


class Unsteady(LocalClient):
    """Client that fails a given number of times."""

    lists_fail = 0
    watches_expire = 0

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        if self.lists_fail:
            self.lists_fail -= 1
            raise InternalError("not now")
        await asyncio.sleep(0)
        return await super().list(what, limit=limit, token=token)

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        if self.watches_expire:
            self.watches_expire -= 1
            raise Expired("too old")
        async for batch in super().watch(what, after=after):
            yield batch


class Scene:
    def __init__(self, client: LocalClient) -> None:
        self.client = Unsteady(client._service)
        self.informer: Informer[Pod] = Informer(
            self.client, Selection(PODS), read_pod, lambda pod: pod.key, page=3
        )
        self.informer.on_change(self.hear)
        #: Name and presence, in the order of the handlers' calls.
        self.told: list[tuple[str, bool]] = []
        self.calls = 0

    def hear(self, deltas: Sequence[Delta[Pod]]) -> None:
        self.calls += 1
        self.told += [(delta.key.name, delta.new is not None) for delta in deltas]

    @property
    def cached(self) -> str:
        return "".join(sorted(pod.metadata.name for pod in self.informer.cache))

    async def create(self, name: str) -> None:
        await self.client.write(creation(a_pod(name)))

    async def label(self, names: Sequence[str], value: str) -> None:
        body = msgspec.json.encode({"metadata": {"labels": {"as": value}}})
        await self.client.write_many([Patch(key(name), body) for name in names])

    async def delete(self, name: str) -> None:
        await self.client.write(Delete(key(name), grace_seconds=0))

    def labels(self) -> set[str]:
        return {pod.metadata.labels.get("as", "") for pod in self.informer.cache}


def key(name: str) -> Key:
    return Key(PODS, "default", name)


@asynccontextmanager
async def a_scene(folder: Path) -> AsyncIterator[Scene]:
    async with an_api(folder, virtual_clock(), in_this_thread=True) as client:
        scene = Scene(client)
        for name in NAMES:
            await scene.create(name)
        yield scene


@asynccontextmanager
async def following(scene: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(scene.informer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_write_after_first_list_is_delivered_as_change(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.informer.begin()
        # On the present page, on a later one, and on none.
        for name in ("a", "g"):
            await scene.delete(name)
        await scene.label(["h"], "changed")
        await scene.create("x")
        listed: list[tuple[str, set[str]]] = []
        scene.informer.on_relist(lambda _: listed.append((scene.cached, scene.labels())))
        async with following(scene):
            await scene.informer.synced()
            assert listed == [("abcdefgh", {""})], "as it was at the beginning"
            await scene.informer.reached(scene.client._service.store.revision)
            assert scene.cached == "bcdefhx"
            assert scene.labels() == {"", "changed"}
        assert scene.told == [
            *((name, True) for name in NAMES),
            *(("a", False), ("g", False), ("h", True), ("x", True)),
        ]


async def test_others_have_their_turn_during_the_first_list(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene, following(scene):
        sizes = []
        while scene.cached != "abcdefgh":
            sizes.append(len(scene.cached))
            await asyncio.sleep(0)
        assert {2, 3, 5, 6} <= set(sizes)
        await scene.informer.synced()
        assert scene.calls == 5, "a call for what was listed in one turn"


async def test_a_beginning_that_fails_is_made_up_for(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.client.lists_fail = 2
        await scene.informer.begin()
        async with following(scene):
            await scene.informer.synced()
        assert scene.cached == "abcdefgh"


async def test_a_first_list_that_fails_half_way_is_made_anew(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.informer.begin()
        scene.client.lists_fail = 1
        async with following(scene):
            while not scene.cached:  # noqa: ASYNC110 (each turn lists some)
                await asyncio.sleep(0)
            await scene.delete("a")
            await scene.informer.synced()
            assert scene.cached == "bcdefgh"
        assert scene.told.count(("a", True)) == 1
        assert scene.told[-1] == ("a", False)


async def test_restarted_list_is_delivered_whole(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.client.watches_expire = 1
        await scene.informer.begin()
        await scene.label(NAMES, "new")
        seen: list[set[str]] = []
        async with following(scene):
            await scene.informer.synced()
            while scene.labels() != {"new"}:
                seen.append(scene.labels())
                await asyncio.sleep(0)
        assert len(seen) >= 3, "the list was made again, of three pages"
        assert all(labels == {""} for labels in seen)
