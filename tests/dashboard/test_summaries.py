"""Summaries of Jobs: bounded, shared, and renewed when it matters."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Create
from onejob.control_plane import ControlPlane
from onejob.dashboard.summaries import Summaries
from onejob.objects.meta import JOBS, Key
from tests.server_support import a_plane

pytestmark = pytest.mark.virtual_time

KEY = Key(JOBS, "default", "work")


async def _start(plane: ControlPlane, seconds: int, **spec: Any) -> Summaries:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {
            "completionMode": "Indexed",
            **spec,
            "template": {
                "metadata": {"annotations": {"onejob.dev/simulated-duration": str(seconds)}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    await plane.client.write(Create(JOBS, "default", json.dumps(job).encode()))
    return Summaries(plane.client, plane.store, plane.informers.pods.cache, plane.clock, "UTC")


async def test_concurrent_requests_share_one_summary(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        summaries = await _start(plane, 600, completions=8, parallelism=4)
        await asyncio.sleep(2)
        found = await asyncio.gather(*(summaries.job(KEY) for _ in range(20)))
        assert summaries.made == 1
        assert all(summary is found[0] for summary in found)
        assert found[0]["podIndexes"].running == "0-3"
        await asyncio.sleep(30)
        await summaries.job(KEY)
        assert summaries.made == 2


async def test_the_end_of_a_job_is_not_hidden_by_an_older_summary(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        summaries = await _start(plane, 2, completions=1)
        state = ""
        while "Complete" not in state:
            await asyncio.sleep(0.05)
            state = (await summaries.job(KEY))["state"]
            assert ("Complete" in state) == await _finished(plane)


async def _finished(plane: ControlPlane) -> bool:
    status = json.loads(await plane.client.get(KEY)).get("status", {})
    return any(c["type"] == "Complete" for c in status.get("conditions", ()))


async def test_of_a_large_job_only_a_part_is_read(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await _start(plane, 0, completions=60, parallelism=60)
        await asyncio.sleep(60)
        assert await _finished(plane)
        pods = plane.informers.pods.cache
        for most, all_of_them in ((25, False), (100, True)):
            summaries = Summaries(
                plane.client, plane.store, pods, plane.clock, "UTC", most_looked_at=most
            )
            summary = await summaries.job(KEY)
            assert summary["endedPodsLookedAt"] == min(most, 60)
            assert summary["allPodsLookedAt"] is all_of_them
            assert len(summary["pods"]) == min(most, 60)
            (row,) = (await summaries.index(KEY, 59))["pods"]
            assert (row.index, row.phase) == (59, "Succeeded")
            assert (await summaries.index(KEY, 5))["pods"][0].index == 5
            assert (await summaries.index(KEY, 60))["pods"] == []
