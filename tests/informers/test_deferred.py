"""Deferred delivery of quiet changes: a Pod is bound, or begins to run."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Bind, Delete, Patch, Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import ApiError, Expired, InternalError
from tests.build import a_pod, creation
from tests.node.support import an_api

pytestmark = pytest.mark.virtual_time


@dataclass
class Listener:
    """Cache of Pods, and the events of its handlers: name and phase, or None once gone."""

    client: "FailingWatch"
    informer: Informer[Pod]
    told: list[tuple[str, str | None]] = field(default_factory=list)

    def hear(self, deltas: Sequence[Delta[Pod]]) -> None:
        self.told += [
            (delta.key.name, None if delta.new is None else delta.new.phase) for delta in deltas
        ]

    async def create(self, name: str) -> None:
        await self.client.write(creation(a_pod(name)))

    async def bind(self, name: str) -> None:
        await self.client.write(Bind(_key(name), "node"))

    async def report(self, name: str, phase: str, **more: Any) -> None:
        body = msgspec.json.encode({"status": {"phase": phase, **more}})
        await self.client.write(Patch(_key(name), body, subresource="status"))

    async def place_and_run(self, name: str) -> None:
        await self.create(name)
        await self.bind(name)
        await self.report(name, "Running")
        await asyncio.sleep(0.01)


class FailingWatch(LocalClient):
    """Client that fails one watch with `error` right after a quiet event, once `meddle` is done."""

    error: ApiError | None = None

    async def meddle(self) -> None: ...

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async for batch in super().watch(what, after=after):
            yield batch
            if self.error is not None and any(event.quiet for event in batch):
                error, self.error = self.error, None
                await self.meddle()
                raise error


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[Listener]:
    async with an_api(folder, virtual_clock(), in_this_thread=True) as api:
        client = FailingWatch(api._service)
        informer: Informer[Pod] = Informer(client, Selection(PODS), read_pod, lambda pod: pod.key)
        listener = Listener(client, informer)
        informer.on_change(listener.hear)
        following = asyncio.create_task(informer.run())
        await informer.synced()
        yield listener
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def in_virtual_time(
    folder: Path, test: Callable[[Listener], Coroutine[Any, Any, None]]
) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, error: errors.append(error))
    async with listening(folder) as listener:
        await test(listener)
    assert errors == []


def _key(name: str) -> Key:
    return Key(PODS, "default", name)


async def test_short_lived_pod_is_delivered_at_start_and_end_only(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        await listener.place_and_run("a")
        await listener.report("a", "Succeeded")
        await asyncio.sleep(5)
        assert listener.told == [("a", "Pending"), ("a", "Succeeded")]
        pod = listener.informer.cache.get(_key("a"))
        assert pod is not None
        assert pod.spec.node_name == "node"

    await in_virtual_time(tmp_path, test)


async def test_quiet_changes_are_delivered_when_idle(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        await listener.place_and_run("a")
        assert listener.told == [("a", "Pending")]
        await asyncio.sleep(0.2)
        assert listener.told == [("a", "Pending"), ("a", "Running")]
        pod = listener.informer.cache.get(_key("a"))
        assert pod is not None
        assert (pod.phase, pod.spec.node_name) == ("Running", "node")

    await in_virtual_time(tmp_path, test)


async def test_quiet_changes_are_delivered_after_a_second_at_latest(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        await listener.place_and_run("a")
        for number in range(30):
            await listener.create(f"other-{number}")
            await asyncio.sleep(0.05)
        phases = dict(listener.told)
        assert phases["a"] == "Running"
        # Delivered in between, not at the end.
        assert listener.told.index(("a", "Running")) in range(15, 25)

    await in_virtual_time(tmp_path, test)


async def test_deletion_is_delivered_at_once_and_is_the_last_delta(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        await listener.place_and_run("a")
        await listener.client.write(Delete(_key("a"), grace_seconds=0))
        await asyncio.sleep(5)
        assert listener.told == [("a", "Pending"), ("a", None)]
        assert listener.informer.cache.get(_key("a")) is None

    await in_virtual_time(tmp_path, test)


async def test_deferred_events_can_be_flushed(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        for number in range(250):
            await listener.create(f"pod-{number}")
            await listener.bind(f"pod-{number}")
        await listener.informer.flush_deferred()
        nodes = {pod.spec.node_name for pod in listener.informer.cache}
        assert nodes == {"node"}

    await in_virtual_time(tmp_path, test)


@pytest.mark.parametrize(
    "news",
    [
        {"containerStatuses": [{"name": "main", "restartCount": 1}]},
        {"conditions": [{"type": "Ready", "status": "False"}]},
    ],
)
async def test_changes_of_running_pod_are_delivered_at_once(
    tmp_path: Path, news: dict[str, Any]
) -> None:
    async def test(listener: Listener) -> None:
        await listener.place_and_run("a")
        await listener.report("a", "Running", **news)
        await asyncio.sleep(0.01)
        assert listener.told == [("a", "Pending"), ("a", "Running")]

    await in_virtual_time(tmp_path, test)


async def test_ended_informer_delivers_nothing(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        await listener.place_and_run("a")
    await asyncio.sleep(5)
    assert listener.told == [("a", "Pending")]


async def test_relist_discards_deferred_events_of_a_pod_that_ended(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        async def end() -> None:
            await listener.report("a", "Succeeded")

        listener.client.meddle, listener.client.error = end, Expired("history is gone")  # type: ignore[method-assign]
        await listener.place_and_run("a")
        await asyncio.sleep(5)
        assert listener.told[-1] == ("a", "Succeeded")
        pod = listener.informer.cache.get(_key("a"))
        assert pod is not None
        assert pod.phase == "Succeeded"

    await in_virtual_time(tmp_path, test)


async def test_relist_discards_deferred_events_of_a_pod_that_is_gone(tmp_path: Path) -> None:
    async def test(listener: Listener) -> None:
        async def delete() -> None:
            await listener.client.write(Delete(_key("a"), grace_seconds=0))

        listener.client.meddle, listener.client.error = delete, Expired("history is gone")  # type: ignore[method-assign]
        await listener.create("a")
        await listener.bind("a")
        await asyncio.sleep(5)
        assert listener.told[-1] == ("a", None)
        assert listener.informer.cache.get(_key("a")) is None
        assert not listener.informer.has_deferred

    await in_virtual_time(tmp_path, test)


async def test_watch_continues_after_the_last_event_when_it_fails(tmp_path: Path) -> None:
    """From its start, the cache would go back in time and handlers would act twice."""

    async def test(listener: Listener) -> None:
        await listener.create("a")
        listener.client.error = InternalError("no answer")
        await listener.bind("a")
        await asyncio.sleep(5)
        await listener.create("b")
        await asyncio.sleep(5)
        assert listener.told == [("a", "Pending"), ("a", "Pending"), ("b", "Pending")]

    await in_virtual_time(tmp_path, test)
