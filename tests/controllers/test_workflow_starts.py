"""Exactly one Job per task, whenever the controller is killed and its Jobs are deleted."""

import asyncio
from pathlib import Path

import pytest

from onejob.client.base import Op, Patch, Propagation, Written
from onejob.client.local import LocalClient
from onejob.objects.meta import JOBS, WORKFLOWS, Key
from tests.build import a_task, a_workflow
from tests.controllers.housekeeping import House, a_house

pytestmark = pytest.mark.virtual_time

WORKFLOW = Key(WORKFLOWS, "default", "wf")
JOB = Key(JOBS, "default", "wf-a")


class CutOff(LocalClient):
    """Client of a controller that is killed when it would write the status of a workflow."""

    async def write(self, op: Op) -> Written:
        if isinstance(op, Patch) and op.key.resource == WORKFLOWS:
            await asyncio.Event().wait()
        return await super().write(op)


async def killed_after_creating_a_job(folder: Path) -> None:
    """Run a controller of another cluster until it has created the Job of task "a"."""
    async with a_house(folder, "workflows", client_of=CutOff) as house:
        await house.create(WORKFLOWS, a_workflow("wf", a_task("a"), a_task("b", "a")))
        await asyncio.sleep(1)
        assert await house.names(JOBS) == ["wf-a"]
        assert not (await house.get(WORKFLOW)).get("status"), "no status was written"


async def states(house: House) -> dict[str, str]:
    status = (await house.get(WORKFLOW)).get("status", {})
    return {task["name"]: task["state"] for task in status.get("tasks", ())}


async def test_task_is_not_started_again_after_a_crash_and_a_deletion_of_its_job(
    tmp_path: Path,
) -> None:
    await killed_after_creating_a_job(tmp_path)
    async with a_house(tmp_path, "garbage") as house:
        await house.delete(JOB)
        await asyncio.sleep(5)
    async with a_house(tmp_path, "workflows") as house:
        await asyncio.sleep(20)
        assert await house.names(JOBS) == []
        assert await states(house) == {"a": "Failed", "b": "Skipped"}
        task = (await house.get(WORKFLOW))["status"]["tasks"][0]
        assert task["reason"] == "JobDeleted"


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_job_can_be_deleted_if_its_workflow_was_deleted_after_a_crash(
    tmp_path: Path, propagation: Propagation
) -> None:
    await killed_after_creating_a_job(tmp_path)
    async with a_house(tmp_path, "garbage") as house:
        await house.delete(WORKFLOW, propagation)
        await asyncio.sleep(60)
    async with a_house(tmp_path, "garbage", "workflows") as house:
        if propagation == "Orphan":
            await asyncio.sleep(20)
            assert "finalizers" not in (await house.get(JOB))["metadata"]
            await house.delete(JOB)
        await asyncio.sleep(60)
        assert await house.names(JOBS) == []
        assert await house.names(WORKFLOWS) == []


async def test_started_job_has_no_finalizer(tmp_path: Path) -> None:
    async with a_house(tmp_path, "workflows") as house:
        await house.create(WORKFLOWS, a_workflow("wf", a_task("a"), a_task("b", "a")))
        await asyncio.sleep(1)
        assert "finalizers" not in (await house.get(JOB))["metadata"]
        await house.finish(JOB)
        await asyncio.sleep(1)
        assert "finalizers" not in (await house.get(Key(JOBS, "default", "wf-b")))["metadata"]
