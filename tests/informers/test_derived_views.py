"""Views of Pods that follow from the last view, because only their finalizers have changed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Create, Patch
from onejob.client.local import LocalClient
from onejob.informers.cache import Delta
from onejob.informers.shared import SharedInformers
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.claiming import REMOVE_TRACKING_PATCH
from onejob.planning.names import TRACKING
from onejob.virtual_time import virtual_clock
from onejob.wire.requests import WriteOptions
from tests.build import a_pod
from tests.node.support import an_api

pytestmark = pytest.mark.virtual_time

KEY = Key(PODS, "default", "a")


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[LocalClient, list[Delta[Pod]]]]:
    async with an_api(folder, virtual_clock(), in_this_thread=True) as api:
        client = LocalClient(api._service)
        informers = SharedInformers(client)
        seen: list[Delta[Pod]] = []

        def note(deltas: Sequence[Delta[Pod]]) -> None:
            seen.extend(deltas)

        informers.pods.on_change(note)
        await informers.start()
        pod = a_pod("a")
        pod["metadata"]["finalizers"] = [TRACKING]
        await client.write(Create(PODS, "default", msgspec.json.encode(pod)))
        yield client, seen
        for task in informers.tasks:
            task.cancel()
        await asyncio.gather(*informers.tasks, return_exceptions=True)


async def test_view_without_finalizer_equals_the_decoded_one(tmp_path: Path) -> None:
    async with listening(tmp_path) as (client, seen):
        await client.write(Patch(KEY, REMOVE_TRACKING_PATCH))
        await asyncio.sleep(1)
        last = seen[-1]
        assert last.old is not None
        assert last.new is not None
        # Shared, so it was not decoded.
        assert last.new.status is last.old.status
        assert last.new == read_pod(last.document)
        assert last.new.metadata.finalizers == ()


async def test_view_is_decoded_if_another_version_was_in_between(tmp_path: Path) -> None:
    async with listening(tmp_path) as (client, seen):
        people = LocalClient(client._service, WriteOptions(field_manager="test"))
        label = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}}
        running = msgspec.json.encode({"status": label["status"]})
        # Quiet, so the cache does not have this version yet.
        await client.write(Patch(KEY, running, subresource="status"))
        await people.write(Patch(KEY, msgspec.json.encode({"metadata": label["metadata"]})))
        await client.write(Patch(KEY, REMOVE_TRACKING_PATCH))
        await asyncio.sleep(1)
        last = seen[-1].new
        assert last is not None
        assert last == read_pod(seen[-1].document)
        assert (last.phase, last.metadata.labels["x"]) == ("Running", "y")
