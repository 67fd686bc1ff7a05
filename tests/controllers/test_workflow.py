"""Workflow controller on the real store and API, in virtual time."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Create
from onejob.client.local import LocalClient
from onejob.controllers.workflow import settle_delay
from onejob.informers.cache import Delta
from onejob.objects.meta import CRONWORKFLOWS, JOBS, PODS, WORKFLOWS, Key
from onejob.objects.workflow import Workflow
from onejob.wire.errors import InternalError, Invalid
from tests import build
from tests.build import a_task, a_workflow
from tests.controllers.housekeeping import House, LateWatch, a_house

pytestmark = pytest.mark.virtual_time

NOON_MINUTES = 29454480  # of 2026-01-01T12:00Z since 1970

ETL = (a_task("extract"), a_task("train", "extract"), a_task("report", "train"))


@asynccontextmanager
async def a_running(folder: Path, *more: str) -> AsyncIterator[House]:
    async with a_house(folder, "workflows", *more, staged=True) as house:
        yield house


async def start(house: House, *tasks: dict[str, Any], **spec: Any) -> Key:
    key = await house.create(WORKFLOWS, a_workflow("wf", *tasks, **spec))
    await asyncio.sleep(1)
    return key


async def finish(house: House, task: str, condition: str = "Complete") -> None:
    await house.finish(Key(JOBS, "default", f"wf-{task}"), condition)
    await asyncio.sleep(1)


async def states(house: House, key: Key) -> dict[str, str]:
    status = (await house.get(key)).get("status", {})
    return {task["name"]: task["state"] for task in status.get("tasks", ())}


async def condition(house: House, key: Key, kind: str) -> dict[str, Any] | None:
    status = (await house.get(key)).get("status", {})
    found = [each for each in status.get("conditions", ()) if each["type"] == kind]
    return found[0] if found else None


async def test_controller_starts_tasks_in_order_and_completes_the_workflow(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, *ETL)
        assert await house.names(JOBS) == ["wf-extract"]
        job = await house.get(Key(JOBS, "default", "wf-extract"))
        status = (await house.get(key))["status"]
        assert status["tasks"][0]["jobUID"] == job["metadata"]["uid"]
        assert status["running"] == 1
        assert status["waiting"] == 2
        assert job["metadata"]["labels"]["onejob.dev/task"] == "extract"
        assert job["metadata"]["ownerReferences"][0]["kind"] == "Workflow"
        await finish(house, "extract")
        await finish(house, "train")
        assert await states(house, key) == {
            "extract": "Complete", "train": "Complete", "report": "Running",
        }  # fmt: skip
        await finish(house, "report")
        complete = await condition(house, key, "Complete")
        assert complete is not None
        assert complete["status"] == "True"
        assert "completionTime" in (await house.get(key))["status"]
        assert house.metrics.workflows_finished.value(result="succeeded", reason="TasksEnded") == 1
        assert house.metrics.workflow_tasks_ended.value(state="Complete") == 3


async def test_controller_stops_at_an_unhandled_failure_and_runs_finally(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        tasks = (a_task("a"), a_task("b"), a_task("c", "a"), a_task("d", "b"))
        key = await start(house, *tasks, **{"finally": [a_task("clean")]})
        await finish(house, "a", "Failed")
        assert await states(house, key) == {
            "a": "Failed", "b": "Running", "c": "Skipped", "d": "Skipped", "clean": "Waiting",
        }  # fmt: skip
        assert await condition(house, key, "FailureTarget") is not None
        assert await condition(house, key, "Failed") is None
        await finish(house, "b")
        assert (await states(house, key))["clean"] == "Running"
        await finish(house, "clean")
        failed = await condition(house, key, "Failed")
        assert failed is not None
        assert failed["reason"] == "TaskFailed"
        assert 'Task "a" failed' in failed["message"]


async def test_controller_continues_after_a_handled_failure(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, a_task("a"), a_task("alarm", "a:Failed"), a_task("b", "a"))
        await finish(house, "a", "Failed")
        assert await states(house, key) == {"a": "Failed", "alarm": "Running", "b": "Skipped"}
        await finish(house, "alarm")
        assert await condition(house, key, "Complete") is not None


async def test_controller_passes_results_from_the_termination_message(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        reading = build.template(build.container("echo", "$(tasks.extract.results.rows)", name="c"))
        key = await start(
            house,
            a_task("extract", results=[{"name": "rows"}]),
            a_task("report", "extract", when="tasks.extract.results.rows != '0'",
                   job={"template": reading}),
        )  # fmt: skip
        job = await house.get(Key(JOBS, "default", "wf-extract"))
        container = job["spec"]["template"]["spec"]["containers"][0]
        assert container["env"] == [{"name": "ONEJOB_RESULT", "value": "/dev/termination-log"}]
        await a_pod_with_message(house, job, '{"rows": 42}')
        await finish(house, "extract")
        task = (await house.get(key))["status"]["tasks"][0]
        assert task["results"] == {"rows": "42"}
        report = await house.get(Key(JOBS, "default", "wf-report"))
        assert report["spec"]["template"]["spec"]["containers"][0]["command"] == ["echo", "42"]


async def test_workflow_finishes_only_after_the_pods_of_a_deleted_job(tmp_path: Path) -> None:
    def late(service: Service) -> LocalClient:
        # The Pod is still missing from the cache when the deletion of its Job is handled.
        return LateWatch(service, PODS, 5.0)

    async with a_house(tmp_path, "workflows", staged=True, client_of=late) as house:
        key = await start(house, a_task("a"))
        job = Key(JOBS, "default", "wf-a")
        pod = await a_pod_of(house, await house.get(job))
        await house.delete(job)
        await asyncio.sleep(1)
        assert await states(house, key) == {"a": "Running"}
        await asyncio.sleep(10)
        assert await condition(house, key, "Failed") is None
        await house.patch(pod, {"status": {"phase": "Failed"}}, "status")
        await asyncio.sleep(10)
        assert await states(house, key) == {"a": "Failed"}
        assert await condition(house, key, "Failed") is not None


async def test_controller_records_an_end_before_the_next_start_on_other_clusters(
    tmp_path: Path,
) -> None:
    seen: list[int] = []

    def note(deltas: Sequence[Delta[Workflow]]) -> None:
        seen.extend(
            delta.new.metadata.revision
            for delta in deltas
            if delta.new is not None
            and (delta.new.status.complete, delta.new.status.running) == (1, 0)
        )

    async with a_house(tmp_path, "workflows") as house:
        house.informers.workflows.on_change(note)
        key = await start(house, *ETL)
        await finish(house, "extract")
        job = await house.get(Key(JOBS, "default", "wf-train"))
        assert len(seen) == 1
        assert seen[0] < int(job["metadata"]["resourceVersion"])
        await finish(house, "train")
        await finish(house, "report")
        assert await condition(house, key, "Complete") is not None


class LostAnswer(LateWatch):
    """Client with late Jobs, whose first commit succeeds with an error as its response."""

    lost = False

    @property
    def durable(self) -> Callable[[int], Coroutine[Any, Any, None]]:
        commit = super().durable

        async def durable(revision: int) -> None:
            await commit(revision)
            if revision and not self.lost:
                self.lost = True
                raise InternalError("the response was lost")

        return durable


async def test_running_job_is_not_taken_for_deleted_after_a_lost_response(tmp_path: Path) -> None:
    def forgetful(service: Service) -> LocalClient:
        return LostAnswer(service, JOBS, 5.0)

    async with a_house(tmp_path, "workflows", staged=True, client_of=forgetful) as house:
        key = await start(house, a_task("a"))
        await asyncio.sleep(3)
        assert await states(house, key) == {"a": "Running"}
        await asyncio.sleep(10)
        assert await states(house, key) == {"a": "Running"}
        assert await house.names(JOBS) == ["wf-a"]


async def a_pod_with_message(house: House, job: dict[str, Any], message: str) -> Key:
    key = await a_pod_of(house, job)
    terminated = {"exitCode": 0, "message": message}
    status = {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "c", "image": "i", "imageID": "i", "ready": False, "restartCount": 0,
             "state": {"terminated": terminated}}
        ],
    }  # fmt: skip
    await house.patch(key, {"status": status}, "status")
    return key


async def a_pod_of(house: House, job: dict[str, Any]) -> Key:
    metadata = job["metadata"]
    return await house.create(
        PODS,
        build.a_pod(
            f"{metadata['name']}-0",
            metadata={
                "labels": {"batch.kubernetes.io/controller-uid": metadata["uid"]},
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                    }
                ],
            },
        ),
    )


async def test_task_fails_if_a_result_is_missing(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        reading = build.template(build.container("echo", "$(tasks.a.results.x)"))
        key = await start(
            house, a_task("a", results=[{"name": "x"}]), a_task("b", "a", job={"template": reading})
        )
        await finish(house, "a")
        task = (await house.get(key))["status"]["tasks"][1]
        assert (task["state"], task["reason"]) == ("Failed", "ResultMissing")
        assert 'task "a" wrote no result "x"' in task["message"]
        assert (await house.get(key))["status"]["tasks"][0]["message"] == (
            "its Pod was deleted before its results were read"
        )
        assert await condition(house, key, "Failed") is not None


async def test_workflow_fails_if_a_started_task_is_removed_from_its_spec(tmp_path: Path) -> None:
    async with a_house(tmp_path, "workflows") as house:
        key = await start(house, a_task("a", results=[{"name": "x"}]), a_task("b", "a"))
        store = house.cluster.service.store
        stored = store.newest(key)
        assert stored is not None
        document = msgspec.json.decode(stored.value)
        document["spec"]["tasks"] = [a_task("b")]
        document["metadata"]["generation"] += 1

        def edited(revision: int) -> bytes:
            # The API server of another cluster knows only the schema.
            document["metadata"]["resourceVersion"] = str(revision)
            return msgspec.json.encode(document)

        store.stage(key, stored.revision, edited)
        await asyncio.sleep(5)
        failed = await condition(house, key, "Failed")
        assert failed is not None
        assert failed["reason"] == "InvalidWorkflow"
        assert failed["message"] == 'spec.tasks: task "a" was removed after it had started'
        await a_pod_with_message(house, await house.get(Key(JOBS, "default", "wf-a")), '{"x": 1}')
        await asyncio.sleep(5)
        assert await house.names(JOBS) == ["wf-a"]


async def test_parallelism_limits_running_tasks(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, *(a_task(f"t{n}") for n in range(4)), parallelism=2)
        assert await house.names(JOBS) == ["wf-t0", "wf-t1"]
        task = (await house.get(key))["status"]["tasks"][2]
        assert task["reason"] == "ParallelismReached"
        await finish(house, "t1")
        assert await house.names(JOBS) == ["wf-t0", "wf-t1", "wf-t2"]


async def test_suspended_workflow_suspends_its_jobs_and_resumes_them(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        own = a_task("own", job={"suspend": True})
        key = await start(house, a_task("a"), own, a_task("b", "a"))
        await house.patch(key, {"spec": {"suspend": True}})
        await asyncio.sleep(1)
        suspended = await condition(house, key, "Suspended")
        assert suspended is not None
        assert suspended["status"] == "True"
        assert (await house.get(Key(JOBS, "default", "wf-a")))["spec"]["suspend"]
        await house.patch(key, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        assert not (await house.get(Key(JOBS, "default", "wf-a")))["spec"]["suspend"]
        # The template's own suspension survives.
        assert (await house.get(Key(JOBS, "default", "wf-own")))["spec"]["suspend"]


async def test_deadline_ends_running_jobs_and_fails_the_workflow(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        held = a_task("held", job={"suspend": True})
        key = await start(house, a_task("a"), held, a_task("b", "a"), activeDeadlineSeconds=60)
        await asyncio.sleep(61)
        job = await house.get(Key(JOBS, "default", "wf-a"))
        assert job["spec"]["activeDeadlineSeconds"] == 0
        assert await house.names(JOBS) == ["wf-a"]
        await finish(house, "a", "Failed")
        assert await states(house, key) == {"a": "Failed", "held": "Failed", "b": "Skipped"}
        failed = await condition(house, key, "Failed")
        assert failed is not None
        assert failed["reason"] == "DeadlineExceeded"


async def test_task_fails_if_its_job_is_deleted(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, *ETL)
        await house.delete(Key(JOBS, "default", "wf-extract"))
        await asyncio.sleep(1)
        # Its controller might still create Pods.
        assert (await states(house, key))["extract"] == "Running"
        await asyncio.sleep(2)
        task = (await house.get(key))["status"]["tasks"][0]
        assert (task["state"], task["reason"]) == ("Failed", "JobDeleted")
        assert await house.names(JOBS) == []


async def test_finished_job_deleted_before_its_end_was_recorded_counts(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, a_task("a"))
        job = Key(JOBS, "default", "wf-a")
        await house.finish(job)
        await house.delete(job)
        await asyncio.sleep(1)
        assert await states(house, key) == {"a": "Complete"}


async def test_task_fails_if_its_job_name_is_taken(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        await house.a_job("wf-a")
        key = await start(house, a_task("a"), a_task("b"))
        task = (await house.get(key))["status"]["tasks"][0]
        assert (task["state"], task["reason"]) == ("Failed", "JobNameTaken")
        assert "without an owner" in task["message"]
        assert await house.names(JOBS) == ["wf-a"]


async def test_recreated_workflow_waits_for_jobs_of_the_previous_one(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, a_task("a"))
        await house.delete(key)
        key = await start(house, a_task("a"))
        assert await states(house, key) == {"a": "Waiting"}
        await house.delete(Key(JOBS, "default", "wf-a"))
        await asyncio.sleep(6)
        assert await states(house, key) == {"a": "Running"}


async def test_finished_job_of_a_previous_workflow_is_not_that_of_the_new_one(
    tmp_path: Path,
) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, a_task("a"))
        job = Key(JOBS, "default", "wf-a")
        uid = (await house.get(job))["metadata"]["uid"]
        await house.delete(key)
        key = await start(house, a_task("a"))
        await finish(house, "a")
        await house.delete(job)
        await asyncio.sleep(6)
        assert await states(house, key) == {"a": "Running"}
        assert (await house.get(job))["metadata"]["uid"] != uid


async def test_no_job_is_created_if_the_workflow_has_changed_meanwhile(tmp_path: Path) -> None:
    def late(service: Service) -> LocalClient:
        return LateWatch(service, WORKFLOWS, 5.0)

    async with a_house(tmp_path, "workflows", staged=True, client_of=late) as house:
        key = await start(house, a_task("a"))
        await asyncio.sleep(3)
        await house.patch(key, {"metadata": {"labels": {"changed": "meanwhile"}}})
        await asyncio.sleep(2)
        # Its start could not be recorded in the same commit: the status write conflicts.
        assert house.workflows is not None
        assert house.workflows.controller is not None
        assert await house.names(JOBS) == []
        await asyncio.sleep(30)
        job = await house.get(Key(JOBS, "default", "wf-a"))
        task = (await house.get(key))["status"]["tasks"][0]
        assert (task["state"], task["jobUID"]) == ("Running", job["metadata"]["uid"])


@pytest.mark.parametrize("gone_for", [math.nextafter(2.0, 0), 1.9999999999, 1.999])
def test_deleted_job_is_not_looked_at_again_before_time_has_passed(gone_for: float) -> None:
    # A remainder of rounding that is added to the time of a long-running process is lost.
    assert settle_delay(gone_for) >= 0.01
    assert settle_delay(0.5) == 1.5


@pytest.mark.parametrize("spec", [{"suspend": True}, {"activeDeadlineSeconds": 0}])
async def test_change_of_a_job_is_repeated_after_a_conflict(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    def late(service: Service) -> LocalClient:
        return LateWatch(service, JOBS, 5.0)

    async with a_house(tmp_path, "workflows", staged=True, client_of=late) as house:
        key = await start(house, a_task("a"))
        await asyncio.sleep(10)
        job = Key(JOBS, "default", "wf-a")
        await house.patch(job, {"metadata": {"labels": {"changed": "meanwhile"}}})
        await house.patch(key, {"spec": spec})
        await asyncio.sleep(60)
        changed = (await house.get(job))["spec"]
        assert {name: changed[name] for name in spec} == spec


async def test_job_gets_its_ttl_only_after_its_end_is_recorded(tmp_path: Path) -> None:
    async with a_running(tmp_path, "ttl", "garbage") as house:
        key = await start(house, a_task("a", job={"ttlSecondsAfterFinished": 10}), a_task("b", "a"))
        job = Key(JOBS, "default", "wf-a")
        assert "ttlSecondsAfterFinished" not in (await house.get(job))["spec"]
        await finish(house, "a")
        assert (await house.get(job))["spec"]["ttlSecondsAfterFinished"] == 10
        await asyncio.sleep(12)
        assert not await house.exists(job)
        await finish(house, "b")
        assert await states(house, key) == {"a": "Complete", "b": "Complete"}


async def test_finished_workflow_is_deleted_after_its_ttl(tmp_path: Path) -> None:
    async with a_running(tmp_path, "ttl", "garbage") as house:
        key = await start(house, a_task("a"), ttlSecondsAfterFinished=30)
        await finish(house, "a")
        assert await house.exists(key)
        await asyncio.sleep(40)
        assert not await house.exists(key)
        assert await house.names(JOBS) == []


async def test_deleted_workflow_takes_its_jobs_along(tmp_path: Path) -> None:
    async with a_running(tmp_path, "garbage") as house:
        key = await start(house, *ETL)
        await house.delete(key, "Foreground")
        await asyncio.sleep(5)
        assert not await house.exists(key)
        assert await house.names(JOBS) == []


async def test_orphaned_jobs_stay(tmp_path: Path) -> None:
    async with a_running(tmp_path, "garbage") as house:
        key = await start(house, *ETL)
        await house.delete(key, "Orphan")
        await asyncio.sleep(5)
        assert not await house.exists(key)
        job = await house.get(Key(JOBS, "default", "wf-extract"))
        assert "ownerReferences" not in job["metadata"]


async def test_task_of_a_deleted_job_ends_once_its_pod_is_orphaned(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, a_task("a"))
        job = Key(JOBS, "default", "wf-a")
        uid = (await house.get(job))["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "wf-a", "uid": uid}
        metadata = {
            "labels": {"batch.kubernetes.io/controller-uid": uid},
            "ownerReferences": [{**owner, "controller": True}],
        }
        pod = await house.a_pod("p", metadata=metadata)
        await house.delete(job)
        # No collector runs, so that the Pod keeps its owner.
        await asyncio.sleep(20)
        assert await states(house, key) == {"a": "Running"}
        await house.patch(pod, {"metadata": {"ownerReferences": None}})
        await asyncio.sleep(20)
        assert await states(house, key) == {"a": "Failed"}


async def test_workflow_of_another_manager_is_left_alone(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        key = await start(house, *ETL, managedBy="example.com/flows")
        assert (await house.get(key))["status"] == {}
        assert await house.names(JOBS) == []


async def test_server_without_workflows_imports_nothing_of_them(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        assert house.workflows is not None
        assert house.workflows.controller is None
        await house.a_job("j")
        await asyncio.sleep(1)
        assert house.workflows.controller is None


async def test_creating_a_cycle_is_rejected_by_name(tmp_path: Path) -> None:
    async with a_running(tmp_path) as house:
        document = a_workflow(
            "wf", a_task("a", "b"), a_task("b", "a"), metadata={"namespace": "default"}
        )
        with pytest.raises(Invalid, match="a → b → a"):
            await house.client.write(Create(WORKFLOWS, "default", msgspec.json.encode(document)))


async def test_cronworkflow_creates_a_workflow_per_slot_and_keeps_few(tmp_path: Path) -> None:
    async with a_running(tmp_path, "cronworkflows", "garbage") as house:
        spec = a_workflow("x", a_task("a"))["spec"]
        document = {
            "apiVersion": "onejob.dev/v1alpha1",
            "kind": "CronWorkflow",
            "metadata": {"name": "tick"},
            "spec": {
                "schedule": "* * * * *",
                "workflowTemplate": {"metadata": {"labels": {"from": "tick"}}, "spec": spec},
                "concurrencyPolicy": "Forbid",
                "successfulWorkflowsHistoryLimit": 1,
            },
        }
        key = await house.create(CRONWORKFLOWS, document)
        for minute in (1, 2, 3):
            await asyncio.sleep(60 + (minute == 1))
            name = f"tick-{NOON_MINUTES + minute}"
            assert name in await house.names(WORKFLOWS)
            active = (await house.get(key))["status"]["active"]
            assert [each["name"] for each in active] == [name]
            assert active[0]["kind"] == "Workflow"
            await house.finish(Key(JOBS, "default", f"{name}-a"))
            await asyncio.sleep(1)
        assert await house.names(WORKFLOWS) == [f"tick-{NOON_MINUTES + 3}"]
        workflow = await house.get(Key(WORKFLOWS, "default", f"tick-{NOON_MINUTES + 3}"))
        assert workflow["metadata"]["labels"] == {"from": "tick"}
        assert workflow["metadata"]["ownerReferences"][0]["kind"] == "CronWorkflow"
        assert "SawCompletedJob" in await house.reasons()
