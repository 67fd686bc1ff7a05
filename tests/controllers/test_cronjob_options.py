"""Options of CronJobs on the real store and API, in virtual time. It begins at noon."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Patch
from onejob.gates import FeatureGates
from onejob.objects.meta import CRONJOBS, JOBS, Key
from tests import build
from tests.controllers.housekeeping import TEMPLATE, House, a_house

pytestmark = pytest.mark.virtual_time

NOON_MINUTES = 29454480  # of 2026-01-01T12:00Z since 1970
NEXT_TIME = FeatureGates({"CronJobsNextScheduleTime": True})
CATCH_UP = {"onejob.dev/catch-up": "all"}


async def a_cronjob(house: House, annotations: dict[str, str] | None = None, **spec: Any) -> Key:
    document = build.a_cronjob("tick", **{"jobTemplate": {"spec": {"template": TEMPLATE}}, **spec})
    document["metadata"]["annotations"] = annotations or {}
    return await house.create(CRONJOBS, document)


def job(minute: int) -> str:
    return f"tick-{NOON_MINUTES + minute}"


async def next_time(house: House, key: Key) -> str | None:
    status: dict[str, str] = (await house.get(key)).get("status", {})
    return status.get("nextScheduleTime")


async def test_cronjob_status_has_the_next_slot_while_its_gate_is_on(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs", gates=NEXT_TIME) as house:
        key = await a_cronjob(house, schedule="*/10 * * * *")
        await asyncio.sleep(1)
        assert await next_time(house, key) == "2026-01-01T12:10:00Z"
        await asyncio.sleep(700)
        assert await next_time(house, key) == "2026-01-01T12:20:00Z"
        await house.patch(key, {"spec": {"suspend": True}})
        await asyncio.sleep(1)
        assert await next_time(house, key) is None


async def test_next_slot_of_a_cronjob_honours_its_time_zone(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs", gates=NEXT_TIME) as house:
        key = await a_cronjob(house, schedule="0 15 * * *", timeZone="Europe/Berlin")
        await asyncio.sleep(1)
        assert await next_time(house, key) == "2026-01-01T14:00:00Z"


async def test_cronjob_status_has_no_next_slot_without_the_gate(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house)
        body = b'{"status": {"nextScheduleTime": "2026-01-01T12:10:00Z"}}'
        await house.client.write(Patch(key, body, "merge", "status"))
        await asyncio.sleep(90)
        assert await next_time(house, key) is None


async def test_cronjob_that_catches_up_runs_every_missed_slot_in_order(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, CATCH_UP, suspend=True, successfulJobsHistoryLimit=9)
        await asyncio.sleep(3 * 60 + 1)
        await house.patch(key, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        for minute in (1, 2, 3):
            # The next missed slot waits for the end of the previous one.
            assert await house.names(JOBS) == [job(each) for each in range(1, minute + 1)]
            await house.finish(Key(JOBS, "default", job(minute)))
            await asyncio.sleep(1)
        assert await house.names(JOBS) == [job(1), job(2), job(3)]
        await asyncio.sleep(60)
        assert await house.names(JOBS) == [job(1), job(2), job(3), job(4)]


async def test_cronjob_that_catches_up_skips_no_slot_of_a_long_run(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        await a_cronjob(house, CATCH_UP, concurrencyPolicy="Forbid")
        await asyncio.sleep(4 * 60 + 1)
        assert await house.names(JOBS) == [job(1)]
        await house.finish(Key(JOBS, "default", job(1)))
        await asyncio.sleep(1)
        assert await house.names(JOBS) == [job(1), job(2)]


async def test_cronjob_that_catches_up_skips_slots_beyond_its_deadline(tmp_path: Path) -> None:
    async with a_house(tmp_path, "cronjobs") as house:
        key = await a_cronjob(house, CATCH_UP, suspend=True, startingDeadlineSeconds=90)
        await asyncio.sleep(10 * 60 + 1)
        await house.patch(key, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        assert await house.names(JOBS) == [job(9)]
