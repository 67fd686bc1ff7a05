"""Watch that fails after it has delivered events."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from onejob.client.base import Delete, Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import InternalError
from tests.build import a_pod, creation
from tests.node.support import an_api

pytestmark = pytest.mark.virtual_time


class FailingWatches(LocalClient):
    """Client that ends its first watch with an error once `failing` is set.

    A server does so by sending an ERROR event other than 410.
    """

    def __init__(self, client: LocalClient) -> None:
        super().__init__(client._service)
        self.failing = asyncio.Event()
        self.resumed_from: list[int] = []

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        self.resumed_from.append(after)
        async for batch in super().watch(what, after=after):
            yield batch
            if self.failing.is_set() and len(self.resumed_from) == 1:
                raise InternalError("the server failed")


async def test_informer_resumes_after_the_last_event_when_a_watch_fails(tmp_path: Path) -> None:
    async with an_api(tmp_path, virtual_clock(), in_this_thread=True) as api:
        client = FailingWatches(api)
        informer: Informer[Pod] = Informer(client, Selection(PODS), read_pod, lambda pod: pod.key)
        heard: list[tuple[str, bool]] = []

        def hear(deltas: Sequence[Delta[Pod]]) -> None:
            heard.extend((delta.key.name, delta.new is not None) for delta in deltas)

        informer.on_change(hear)
        following = asyncio.create_task(informer.run())
        await informer.synced()
        await api.write(creation(a_pod("a")))
        await api.write(Delete(Key(PODS, "default", "a"), grace_seconds=0))
        await asyncio.sleep(1)
        client.failing.set()
        written = await api.write(creation(a_pod("b")))
        await asyncio.sleep(1)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        # Not from the list: that would show the deleted Pod once more.
        assert client.resumed_from[1:] == [written.revision]
        assert heard == [("a", True), ("a", False), ("b", True)]
