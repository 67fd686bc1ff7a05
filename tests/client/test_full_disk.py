"""Writes while the disk of the store is full: refused as such, and repeated later."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Create, Selection
from onejob.client.events import About, EventRecorder
from onejob.objects.meta import EVENTS
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import InsufficientStorage
from tests.client.full_disk_support import a_disk_and_a_client

pytestmark = pytest.mark.virtual_time

JOB = About("batch/v1", "Job", "default", "job", "uid-1", "7")


def a_config_map(name: str) -> Create:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return Create("configmaps", "default", msgspec.json.encode(document))


async def test_a_write_that_the_disk_has_no_room_for_is_refused_as_such(tmp_path: Path) -> None:
    async with a_disk_and_a_client(tmp_path, virtual_clock()) as (disk, client):
        disk.full = True
        with pytest.raises(InsufficientStorage, match="disk is full") as refused:
            await client.write(a_config_map("a"))
        assert (refused.value.code, refused.value.reason) == (507, "InsufficientStorage")
        assert not (await client.list(Selection("configmaps", "default"))).documents
        disk.full = False
        await client.write(a_config_map("a"))


async def test_events_wait_for_disk_space_and_are_written_once(tmp_path: Path) -> None:
    clock = virtual_clock()
    async with a_disk_and_a_client(tmp_path, clock) as (disk, client):
        recorder = EventRecorder(client, "job-controller", clock)
        task = asyncio.create_task(recorder.run())
        disk.full = True
        recorder.record(JOB, "Warning", "First", "one")
        await asyncio.sleep(3)
        recorder.record(JOB, "Warning", "Second", "two")
        await asyncio.sleep(30)
        recorder.record(JOB, "Warning", "First", "one")
        await asyncio.sleep(30)
        disk.full = False
        await asyncio.sleep(10)
        listing = await client.list(Selection(EVENTS))
        events = [msgspec.json.decode(document) for document in listing.documents]
        told = sorted((event["reason"], event["count"]) for event in events)
        assert told == [("First", 2), ("Second", 1)]
        task.cancel()
