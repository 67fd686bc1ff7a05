"""Event expiry on the real store and API, in virtual time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from onejob.client.base import Delete, Op, Result
from onejob.client.events import About, EventRecorder
from onejob.client.local import LocalClient
from onejob.controllers.event_expiry import FIRST_LOOK_SECONDS
from onejob.objects.meta import EVENTS, Key
from onejob.wire.errors import InsufficientStorage
from tests.controllers.housekeeping import a_house

pytestmark = pytest.mark.virtual_time

SUBJECT = About("batch/v1", "Job", "default", "job", "uid")


async def test_an_event_goes_an_hour_after_it_was_last_seen(tmp_path: Path) -> None:
    async with a_house(tmp_path, "events") as house:
        recorder = EventRecorder(house.client, "test", house.clock)
        recorder.record(SUBJECT, "Normal", "Once", "once")
        recorder.record(SUBJECT, "Normal", "Again", "again")
        await recorder.flush()
        await asyncio.sleep(1800)
        recorder.record(SUBJECT, "Normal", "Again", "again")
        await recorder.flush()
        await asyncio.sleep(1790)
        assert len(await house.names(EVENTS)) == 2
        await asyncio.sleep(20)
        assert await house.reasons() == ["Again", "Again"]
        await asyncio.sleep(1800)
        assert await house.names(EVENTS) == []
        assert house.events is not None
        assert len(house.events) == 0


async def test_old_events_are_removed_after_the_start_and_new_ones_stay(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        recorder = EventRecorder(house.client, "test", house.clock)
        recorder.record(SUBJECT, "Normal", "Old", "old")
        await recorder.flush()
        await asyncio.sleep(4000)
        recorder.record(SUBJECT, "Normal", "New", "new")
        await recorder.flush()
    async with a_house(tmp_path, "events") as house:
        assert house.events is not None
        await asyncio.sleep(FIRST_LOOK_SECONDS - 1)
        # Other controllers begin first: a server may have more Events than anything else.
        assert sorted(await house.reasons()) == ["New", "Old"]
        await asyncio.sleep(2)
        assert await house.reasons() == ["New"]


async def test_events_of_the_newer_api_expire_by_their_own_times(tmp_path: Path) -> None:
    async with a_house(tmp_path, "events") as house:
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Job", "namespace": "default", "name": "job"},
            "eventTime": "2026-01-01T12:00:00.000000Z",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T12:00:00.000000Z"},
            "reportingComponent": "example.org/x",
            "reportingInstance": "x",
            "action": "Look",
            "reason": "R",
            "type": "Normal",
        }
        key = await house.create(EVENTS, document)
        await asyncio.sleep(1800)
        again = {"count": 3, "lastObservedTime": "2026-01-01T12:30:00.000000Z"}
        await house.patch(key, {"series": again})
        await asyncio.sleep(3500)
        assert await house.exists(Key(EVENTS, "default", "e"))
        await asyncio.sleep(200)
        assert not await house.exists(key)


class FullAtFirst(LocalClient):
    """Client whose disk has no space for the first deletions."""

    refusals = 2

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        if self.refusals and any(isinstance(op, Delete) for op in ops):
            self.refusals -= 1
            raise InsufficientStorage("no room")
        return await super().write_many(ops)


async def test_a_full_disk_only_delays_the_end_of_events(tmp_path: Path) -> None:
    async with a_house(tmp_path, "events", client_of=FullAtFirst) as house:
        recorder = EventRecorder(house.client, "test", house.clock)
        recorder.record(SUBJECT, "Normal", "Once", "once")
        await recorder.flush()
        await asyncio.sleep(3700)
        assert len(await house.names(EVENTS)) == 1
        await asyncio.sleep(100)
        assert await house.names(EVENTS) == []
