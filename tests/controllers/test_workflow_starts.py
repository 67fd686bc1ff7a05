"""Exactly one Job per task, whenever the controller is killed and its Jobs are deleted."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onejob.client.base import Op, Patch, Propagation, Written
from onejob.client.local import LocalClient
from onejob.controllers import workflow
from onejob.informers.cache import Delta
from onejob.objects.meta import JOBS, WORKFLOWS, Key
from onejob.objects.workflow import Workflow
from onejob.wire.errors import ApiError, Forbidden
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


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statuses of small workflows are held back, too, and for long."""
    monkeypatch.setattr(workflow, "MANY_TASKS", 1)
    monkeypatch.setattr(workflow, "BATCH_SECONDS", 60.0)


@asynccontextmanager
async def a_server(folder: Path, *more: str) -> AsyncIterator[House]:
    async with a_house(folder, "workflows", *more, staged=True) as house:
        yield house


CHAIN = (a_task("a"), a_task("b", "a"), a_task("c", "b"))


@pytest.mark.usefixtures("held_back")
async def test_status_is_derived_again_after_a_crash(tmp_path: Path) -> None:
    async with a_server(tmp_path) as house:
        await house.create(WORKFLOWS, a_workflow("wf", *CHAIN))
        await asyncio.sleep(1)
        await house.finish(JOB)
        await asyncio.sleep(1)
        assert await house.names(JOBS) == ["wf-a", "wf-b"]
        assert await states(house) == {"a": "Running", "b": "Waiting", "c": "Waiting"}
        before = await house.get(Key(JOBS, "default", "wf-b"))
    async with a_server(tmp_path) as house:
        await asyncio.sleep(70)
        assert await house.get(Key(JOBS, "default", "wf-b")) == before
        assert await states(house) == {"a": "Complete", "b": "Running", "c": "Waiting"}


@pytest.mark.usefixtures("held_back")
async def test_removed_jobs_count_after_a_crash_though_no_status_has_them(tmp_path: Path) -> None:
    async with a_server(tmp_path) as house:
        await house.create(WORKFLOWS, a_workflow("wf", *CHAIN))
        await asyncio.sleep(1)
        await house.finish(JOB)
        await asyncio.sleep(1)
        await house.delete(JOB)
        await house.delete(Key(JOBS, "default", "wf-b"))
    async with a_server(tmp_path) as house:
        await asyncio.sleep(70)
        assert await house.names(JOBS) == []
        assert await states(house) == {"a": "Complete", "b": "Failed", "c": "Skipped"}
        reasons = [
            task.get("reason", "") for task in (await house.get(WORKFLOW))["status"]["tasks"]
        ]
        assert reasons == ["", "JobDeleted", "DependencyNotMet"]
        uid = (await house.get(WORKFLOW))["metadata"]["uid"]
        removed_job = house.cluster.service.history.removed_job
        assert removed_job("default", uid, "wf-a") is not None
        await house.delete(WORKFLOW)
        assert removed_job("default", uid, "wf-a") is None


@pytest.mark.usefixtures("held_back")
async def test_failure_is_recorded_at_once_with_all_that_was_held_back(tmp_path: Path) -> None:
    async with a_server(tmp_path) as house:
        await house.create(WORKFLOWS, a_workflow("wf", *CHAIN))
        await asyncio.sleep(1)
        await house.finish(JOB)
        await asyncio.sleep(1)
        await house.finish(Key(JOBS, "default", "wf-b"), "Failed")
        await asyncio.sleep(1)
        assert await states(house) == {"a": "Complete", "b": "Failed", "c": "Skipped"}


@pytest.mark.usefixtures("held_back")
async def test_edited_workflow_keeps_what_was_held_back(tmp_path: Path) -> None:
    async with a_server(tmp_path) as house:
        await house.create(WORKFLOWS, a_workflow("wf", *CHAIN))
        await asyncio.sleep(1)
        await house.finish(JOB)
        await asyncio.sleep(1)
        await house.patch(WORKFLOW, {"spec": {"suspend": True}})
        await asyncio.sleep(1)
        assert await states(house) == {"a": "Complete", "b": "Running", "c": "Waiting"}
        await house.finish(Key(JOBS, "default", "wf-b"))
        await asyncio.sleep(70)
        assert await house.names(JOBS) == ["wf-a", "wf-b"]
        await house.patch(WORKFLOW, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        # Someone else's status is the one that counts; the Jobs are read again.
        await house.patch(WORKFLOW, {"status": {"tasks": None}}, "status")
        await asyncio.sleep(70)
        assert await states(house) == {"a": "Complete", "b": "Complete", "c": "Running"}


async def test_chain_writes_fewer_statuses_than_tasks(tmp_path: Path) -> None:
    tasks = 60
    seen: list[int] = []

    def note(deltas: Sequence[Delta[Workflow]]) -> None:
        seen.extend(delta.new.metadata.revision for delta in deltas if delta.new is not None)

    async with a_server(tmp_path) as house:
        house.informers.workflows.on_change(note)
        chain = [a_task(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(tasks)]
        await house.create(WORKFLOWS, a_workflow("wf", *chain))
        for n in range(tasks):
            await asyncio.sleep(0.01)
            await house.finish(Key(JOBS, "default", f"wf-t{n}"))
        await asyncio.sleep(1)
        assert set((await states(house)).values()) == {"Complete"}
        assert len(set(seen)) < tasks // 4


class Refusing(LocalClient):
    """Client that is refused each status with a running task."""

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Written | ApiError]:
        if any(isinstance(op, Patch) and b'"Running"' in op.body for op in ops):
            return [Forbidden("refused")] * len(ops)
        return super().stage_many(ops)


async def test_decisions_are_on_disk_with_the_jobs_that_follow_from_them(tmp_path: Path) -> None:
    """Task "b" started because "a" was skipped by `when`; then another task fails."""
    async with a_house(tmp_path, "workflows", staged=True, client_of=Refusing) as house:
        tasks = (a_task("a", when="false"), a_task("b", "a"), a_task("f"))
        await house.create(WORKFLOWS, a_workflow("wf", *tasks))
        await asyncio.sleep(1)
        assert await house.names(JOBS) == ["wf-b", "wf-f"]
    async with a_house(tmp_path) as house:
        await house.finish(Key(JOBS, "default", "wf-f"), "Failed")
    async with a_house(tmp_path, "workflows", staged=True) as house:
        await asyncio.sleep(20)
        assert await states(house) == {"a": "Skipped", "b": "Running", "f": "Failed"}
        assert (await house.get(WORKFLOW))["status"]["tasks"][0]["reason"] == "WhenFalse"


DIAMOND = (a_task("a"), a_task("b", "a"), a_task("c", "a"), a_task("d", "b", "c"))


async def finish_jobs(house: House, uids: dict[str, set[str]]) -> None:
    """Finish one Job that runs, and note the UIDs of all Jobs by name."""
    jobs = await house.all_of(JOBS)
    for job in jobs:
        uids.setdefault(job["metadata"]["name"], set()).add(job["metadata"]["uid"])
    running = [
        job["metadata"]["name"]
        for job in jobs
        if not job["status"].get("conditions") and "deletionTimestamp" not in job["metadata"]
    ]
    if running:
        await house.finish(Key(JOBS, "default", running[0]))


@pytest.mark.usefixtures("held_back")
@pytest.mark.parametrize("staged", [True, False], ids=["server", "other cluster"])
async def test_no_crash_and_no_deletion_starts_a_task_twice(tmp_path: Path, staged: bool) -> None:
    """Every moment of a run is continued once for each Job that is deleted there."""
    moments: dict[int, dict[str, set[str]]] = {}
    uids: dict[str, set[str]] = {}
    (tmp_path / "run").mkdir()
    async with a_house(tmp_path / "run", "workflows", staged=staged) as house:
        store = house.cluster.store

        def note(change: object) -> None:
            if store.revision not in moments:
                moments[store.revision] = {name: set(seen) for name, seen in uids.items()}
                shutil.copytree(tmp_path / "run", tmp_path / str(store.revision))

        house.informers.workflows.on_change(note)
        house.informers.jobs.on_change(note)
        await house.create(WORKFLOWS, a_workflow("wf", *DIAMOND))
        for _ in DIAMOND:
            await asyncio.sleep(1)
            await finish_jobs(house, uids)
        await asyncio.sleep(70)
        assert set((await states(house)).values()) == {"Complete"}
    assert len(moments) > 8
    for revision, seen in moments.items():
        for task in ("", "a", "b", "c", "d"):
            await continue_from(tmp_path / str(revision), task, seen, staged=staged)


async def continue_from(
    moment: Path, task: str, seen: dict[str, set[str]], *, staged: bool
) -> None:
    """Delete the Job of a task before the next controller starts, and run the rest."""
    uids = {name: set(known) for name, known in seen.items()}
    folder = moment.with_name(f"{moment.name}-{task}")
    shutil.copytree(moment, folder)
    finished = None
    async with a_house(folder) as house:
        job = Key(JOBS, "default", f"wf-{task}")
        for each in await house.all_of(JOBS):
            uids.setdefault(each["metadata"]["name"], set()).add(each["metadata"]["uid"])
        if task and await house.exists(job):
            finished = bool((await house.get(job))["status"].get("conditions"))
            await house.delete(job)
    async with a_house(folder, "workflows", staged=staged) as house:
        for _ in range(8):
            await finish_jobs(house, uids)
            await asyncio.sleep(20)
        ends = await states(house)
        assert all(len(known) == 1 for known in uids.values()), (moment.name, task, uids)
        if finished is None or (finished and staged):
            assert set(ends.values()) == {"Complete"}, (moment.name, task, ends)
        elif not finished:
            assert ends[task] == "Failed", (moment.name, task, ends)
