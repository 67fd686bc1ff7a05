"""Conditions of the Node, and their causes."""

import asyncio
import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Selection
from onejob.clock import SystemClock
from onejob.node.conditions import ConditionEvent, NodeCondition, NodeConditions
from onejob.node.process.pressure import Pressures, short_of_space
from onejob.node.supervisor.pressure import DESCRIPTORS, DISK, MEMORY, PROCESSES, pressure_of
from onejob.objects.meta import EVENTS, NODES, Key
from onejob.wire.errors import NotFound
from tests.client.full_disk_support import a_disk_and_a_client
from tests.node.conditions_support import the_condition
from tests.node.support import NODE, Document, a_node, an_api, process_runtime, shell

SHORT = NodeCondition(DISK, True, "NoDiskSpace", "the disk is full")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Scene:
    def __init__(self) -> None:
        self.now = BEGAN
        self.events: list[ConditionEvent | None] = []
        self.conditions = NodeConditions(lambda: self.now, self.events.append)

    def shown(self, kind: str) -> Document:
        (found,) = (c for c in self.conditions.documents() if c["type"] == kind)
        return found


def test_a_condition_changes_its_time_only_with_its_status() -> None:
    scene = Scene()
    scene.now += timedelta(hours=1)
    scene.conditions.set(SHORT)
    scene.now += timedelta(hours=1)
    scene.conditions.set(NodeCondition(DISK, True, "NoDiskSpace", "fuller"))
    scene.conditions.set(NodeCondition(DISK, True, "NoDiskSpace", "fuller"))
    assert scene.shown(DISK) == {
        "type": "DiskPressure",
        "status": "True",
        "reason": "NoDiskSpace",
        "message": "fuller",
        "lastHeartbeatTime": "2026-01-01T02:00:00Z",
        "lastTransitionTime": "2026-01-01T01:00:00Z",
    }
    scene.conditions.clear(DISK, "there is room")
    scene.conditions.clear(DISK, "there is room")
    assert scene.shown(DISK)["lastTransitionTime"] == "2026-01-01T02:00:00Z"
    assert (scene.shown(DISK)["status"], scene.shown(DISK)["reason"]) == ("False", "EnoughDisk")
    assert scene.events == [
        ConditionEvent("Warning", "NodeHasDiskPressure", "DiskPressure is True: the disk is full"),
        None,
        ConditionEvent("Normal", "NodeHasNoDiskPressure", "DiskPressure is False: there is room"),
    ]


def test_a_condition_of_any_other_kind_can_be_set_and_cleared() -> None:
    scene = Scene()
    scene.conditions.clear(DESCRIPTORS, "never was")
    assert len(scene.conditions.documents()) == 4
    scene.conditions.set(NodeCondition(DESCRIPTORS, True, "DescriptorLimitReached", "EMFILE"))
    scene.conditions.clear(DESCRIPTORS, "over")
    assert [event and (event.type, event.reason) for event in scene.events] == [
        ("Warning", "DescriptorLimitReached"),
        ("Normal", "NoPressure"),
    ]


def test_since_when_things_are_as_they_are_survives_a_restart() -> None:
    before = Scene()
    before.now += timedelta(hours=1)
    before.conditions.set(SHORT)
    after = Scene()
    after.now = BEGAN + timedelta(hours=2)
    after.conditions = NodeConditions(lambda: after.now, after.events.append)
    document = {"status": {"conditions": before.conditions.documents()}}
    after.conditions.inherit(json.dumps(document).encode())
    assert after.shown("Ready")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    # No longer true, as far as is known yet.
    assert after.shown(DISK)["status"] == "False"
    assert after.shown(DISK)["lastTransitionTime"] == "2026-01-01T02:00:00Z"


async def test_the_node_shows_a_condition_at_once_with_an_event(tmp_path: Path) -> None:
    async with an_api(tmp_path) as client, a_node(client, process_runtime(tmp_path)) as node:
        node.agent._node.conditions.set(SHORT)
        shown = await the_condition(client, DISK, "True")
        assert shown["message"] == "the disk is full"
        await node.agent._recorder.flush()
        page = await client.list(Selection(EVENTS))
        events = [json.loads(document) for document in page.documents]
        (event,) = (e for e in events if e["reason"] == "NodeHasDiskPressure")
        assert event["involvedObject"]["kind"] == "Node"
        assert event["involvedObject"]["name"] == NODE


async def test_a_node_begins_on_a_full_disk_and_is_registered_once_there_is_room(
    tmp_path: Path,
) -> None:
    async with a_disk_and_a_client(tmp_path, SystemClock()) as (disk, client):
        disk.full = True
        async with a_node(client, process_runtime(tmp_path)) as node:
            with pytest.raises(NotFound):
                await client.get(Key(NODES, "", NODE))
            disk.full = False
            await the_condition(client, "Ready", "True")
            assert (await node.run(shell("exit 0")))["status"]["phase"] == "Succeeded"


@pytest.mark.virtual_time
async def test_a_pressure_is_over_when_nothing_was_blocked_for_a_while() -> None:
    scene = Scene()
    still_short = "still"
    pressures = Pressures(lambda: still_short)
    pressures.report_to(scene.conditions)
    pressures.report(PROCESSES, "fork: EAGAIN")
    pressures.report(DISK, "full")
    await asyncio.sleep(10)
    pressures.report(PROCESSES, "fork: EAGAIN")
    await asyncio.sleep(10)
    assert scene.conditions.is_set(PROCESSES)
    await asyncio.sleep(20)
    assert not scene.conditions.is_set(PROCESSES)
    assert scene.conditions.is_set(DISK)
    still_short = ""
    await asyncio.sleep(20)
    assert not scene.conditions.is_set(DISK)
    pressures.close()


@pytest.mark.virtual_time
async def test_a_disk_that_fills_up_is_noticed_though_nothing_is_started() -> None:
    scene = Scene()
    short = ""
    pressures = Pressures(lambda: short)
    pressures.report_to(scene.conditions)
    pressures.watch_disk()
    await asyncio.sleep(30)
    assert not scene.conditions.is_set(DISK)
    short = "No space left on device"
    await asyncio.sleep(15)
    assert scene.conditions.is_set(DISK)
    short = ""
    await asyncio.sleep(30)
    assert not scene.conditions.is_set(DISK)
    pressures.close()


@pytest.mark.parametrize(
    ("number", "pressure"),
    [
        (errno.EAGAIN, PROCESSES),
        (errno.ENOMEM, MEMORY),
        (errno.EMFILE, DESCRIPTORS),
        (errno.ENFILE, DESCRIPTORS),
        (errno.ENOSPC, DISK),
        (errno.EDQUOT, DISK),
        (errno.ENOENT, ""),
        (errno.EACCES, ""),
    ],
)
def test_node_errors_are_distinguished_from_workload_errors(number: int, pressure: str) -> None:
    error = OSError(number, os.strerror(number))
    assert pressure_of(error) == pressure
    outer = ValueError("cannot")
    outer.__cause__ = error
    assert pressure_of(outer) == pressure
    assert pressure_of(OSError(errno.ENOSPC, "unshare: No space left on device")) == PROCESSES


def test_a_disk_is_short_below_a_share_of_it_and_below_a_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk(blocks: int, free: int, files: int = 0, free_files: int = 0) -> str:
        numbers: dict[str, Any] = {"f_frsize": 4096, "f_blocks": blocks, "f_files": files}
        numbers |= {"f_bfree": free, "f_bavail": free, "f_favail": free_files}
        found = type("statvfs", (), numbers)
        monkeypatch.setattr(os, "statvfs", lambda _: found)
        return short_of_space(tmp_path)

    assert disk(4096, 300) == ""
    assert "less than 819 KiB" in disk(4096, 200)
    assert disk(2**30, 9000) == ""
    assert "less than 32768 KiB" in disk(2**30, 8000)
    assert "fewer than 64 free inodes" in disk(4096, 4000, 1000, 10)
    # No limit is no shortage.
    assert disk(0, 0) == ""
