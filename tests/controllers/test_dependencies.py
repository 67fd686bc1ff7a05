"""Jobs that wait for other Jobs, on a whole control plane with a simulated node."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Patch
from onejob.control_plane import ControlPlane
from onejob.node.simulated import EXIT_CODE
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, Key
from onejob.planning.names import AFTER_HELD_ANNOTATION
from onejob.wire.errors import Invalid
from tests.queue import support
from tests.queue.support import StartsInOrder, a_plane, create, job
from tests.queue.support import a_job as a_timed_job

pytestmark = pytest.mark.virtual_time


def a_job(name: str, after: str = "", *, fails: bool = False, **spec: Any) -> Create:
    creation = a_timed_job(name, **spec)
    document = msgspec.json.decode(creation.document)
    if after:
        document["metadata"]["annotations"] = {"onejob.dev/after": after}
    if fails:
        document["spec"]["backoffLimit"] = 0
        document["spec"]["template"]["metadata"]["annotations"][EXIT_CODE] = "1"
    return Create(JOBS, "default", msgspec.json.encode(document))


async def until_finished(plane: ControlPlane) -> None:
    """Wait until all Jobs are finished, once the cache contains those just created."""
    await asyncio.sleep(1)
    await support.until_finished(plane)


def end_of(found: Job) -> tuple[str, str, str]:
    condition = found.finished_condition
    assert condition is not None
    return condition.type, condition.reason, condition.message


async def delete(plane: ControlPlane, name: str) -> None:
    await plane.client.write(Delete(Key(JOBS, "default", name), "Background"))


async def test_chain_runs_in_order(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        seen = StartsInOrder(plane)
        await create(plane, a_job("c", "b"), a_job("b", "a"), a_job("a"))
        await asyncio.sleep(5)
        waiting = await job(plane, "c")
        assert waiting.spec.suspend
        assert waiting.condition_is_true("Suspended"), "so that kubectl shows it as suspended"
        await until_finished(plane)
        assert seen.order == ["a", "b", "c"]
        assert seen.most == 1
        assert AFTER_HELD_ANNOTATION not in (await job(plane, "c")).metadata.annotations


async def test_met_dependencies_cost_no_further_write(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a"))
        await until_finished(plane)
        await create(plane, a_job("b"))
        before = plane.store.writes
        await until_finished(plane)
        plain = plane.store.writes - before
        await create(plane, a_job("c", "a"))
        before = plane.store.writes
        await until_finished(plane)
        assert plane.store.writes - before == plain


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
async def test_failed_dependency_fails_waiting_jobs_unless_awaited(
    tmp_path: Path, condition: str
) -> None:
    async with a_plane(tmp_path) as plane:
        await create(
            plane, a_job("a", fails=True), a_job("b", f"a:{condition}"), a_job("c", "b:Finished")
        )
        await until_finished(plane)
        kind, reason, message = end_of(await job(plane, "b"))
        if condition == "Failed":
            assert kind == "Complete"
        else:
            assert (kind, reason) == ("Failed", "DependencyFailed")
            assert message == "job a failed (BackoffLimitExceeded), but had to be Complete"
            assert (await job(plane, "b")).status.failed == 0
        assert end_of(await job(plane, "c"))[0] == "Complete"


async def test_deleted_dependency_fails_waiting_job(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", seconds=1000), a_job("b", "a"))
        await asyncio.sleep(5)
        await delete(plane, "a")
        await create(plane, a_job("a2"))
        await until_finished(plane)
        assert end_of(await job(plane, "b"))[1:] == (
            "DependencyFailed",
            "job a was deleted before it was seen to finish",
        )


async def test_later_job_of_same_name_satisfies_nothing(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", seconds=1000), a_job("b", "a"))
        await delete(plane, "a")
        await create(plane, a_job("a", seconds=1))
        await until_finished(plane)
        assert end_of(await job(plane, "a"))[0] == "Complete"
        assert end_of(await job(plane, "b"))[1] == "DependencyFailed"


async def test_dependency_removed_by_ttl_counts(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(
            plane,
            a_job("a", seconds=5, ttlSecondsAfterFinished=0),
            a_job("slow", seconds=100),
            a_job("b", "a,slow"),
        )
        await until_finished(plane)
        names = {one.metadata.name for one in plane.informers.jobs.cache}
        assert names == {"slow", "b"}
        assert end_of(await job(plane, "b"))[0] == "Complete"


async def test_recorded_end_counts_after_crash_before_controllers_saw_it(tmp_path: Path) -> None:
    """The dependency ends and is removed while no controller observes it."""
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", seconds=5), a_job("b", "a", suspend=True))
        await asyncio.sleep(1)
    async with a_plane(tmp_path, controllers=frozenset()) as plane:
        condition = {"type": "Complete", "status": "True", "lastTransitionTime": None}
        interim = {**condition, "type": "SuccessCriteriaMet"}
        now = "2026-01-01T00:00:00Z"
        for each in (interim, condition):
            each["lastTransitionTime"] = now
        start = (await job(plane, "a")).status.start_time
        assert start is not None
        status = {
            "conditions": [interim, condition],
            "active": 0,
            "ready": 0,
            "succeeded": 1,
            "completionTime": msgspec.to_builtins(start),
        }
        body = msgspec.json.encode({"status": status})
        await plane.client.write(Patch(Key(JOBS, "default", "a"), body, "merge", "status"))
        assert plane.service.history.end_of("default", (await job(plane, "a")).metadata.uid) is None
        plane.service.awaits_end = lambda namespace, name, uid: True
        await delete(plane, "a")
    async with a_plane(tmp_path) as plane:
        await asyncio.sleep(1)
        found = await job(plane, "b")
        assert not found.finished
        assert found.spec.suspend, "the user's own suspension stays"
        assert '"released":true' in found.metadata.annotations["onejob.dev/after-state"]


async def test_user_suspension_survives_release(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", seconds=5), a_job("b", "a", suspend=True))
        await asyncio.sleep(60)
        assert (await job(plane, "b")).spec.suspend
        body = msgspec.json.encode({"spec": {"suspend": False}})
        await plane.client.write(Patch(Key(JOBS, "default", "b"), body, "merge"))
        await until_finished(plane)
        assert end_of(await job(plane, "b"))[0] == "Complete"


async def test_resume_by_hand_does_not_bypass_dependencies(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        seen = StartsInOrder(plane)
        await create(plane, a_job("a", seconds=100), a_job("b", "a"))
        await asyncio.sleep(5)
        body = msgspec.json.encode({"spec": {"suspend": False}})
        await plane.client.write(Patch(Key(JOBS, "default", "b"), body, "merge"))
        await asyncio.sleep(5)
        assert (await job(plane, "b")).spec.suspend
        await until_finished(plane)
        assert seen.most == 1


async def test_removed_annotation_releases_job(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("b", "never"))
        await asyncio.sleep(5)
        body = msgspec.json.encode({"metadata": {"annotations": {"onejob.dev/after": None}}})
        await plane.client.write(Patch(Key(JOBS, "default", "b"), body, "merge"))
        await until_finished(plane)
        assert end_of(await job(plane, "b"))[0] == "Complete"


async def test_queue_holds_job_after_its_dependencies_are_met(tmp_path: Path) -> None:
    async with a_plane(tmp_path, "*=1") as plane:
        seen = StartsInOrder(plane)
        await create(plane, a_job("a", seconds=10), a_job("b", "a"))
        await asyncio.sleep(1)
        assert "onejob.dev/queued" not in (await job(plane, "b")).metadata.annotations
        await create(plane, *(a_job(f"other-{n}", seconds=10) for n in range(3)))
        await until_finished(plane)
        assert seen.most == 1
        assert seen.order[0] == "a"
        assert sorted(seen.order) == ["a", "b", "other-0", "other-1", "other-2"]


@pytest.mark.parametrize("pause", [0.0, 0.002, 0.02, 3.0])
async def test_restart_loses_no_dependency(tmp_path: Path, pause: float) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", seconds=3), a_job("b", "a"), a_job("c", "b"))
        await asyncio.sleep(pause)
    async with a_plane(tmp_path) as plane:
        seen = StartsInOrder(plane)
        await until_finished(plane)
        assert seen.most <= 1
        assert {end_of(one)[0] for one in plane.informers.jobs.cache} == {"Complete"}


async def rejection(plane: ControlPlane, creation: Create) -> str:
    with pytest.raises(Invalid) as refused:
        await plane.client.write(creation)
    return str(refused.value)


async def test_bad_annotations_are_rejected(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", "b"), a_job("b", "c"))
        text = await rejection(plane, a_job("c", "a"))
        assert "metadata.annotations[onejob.dev/after]" in text
        assert "c → a → b → c" in text
        assert "names the Job itself" in await rejection(plane, a_job("d", "d"))
        assert "unknown condition" in await rejection(plane, a_job("d", "x:y"))
        many = ",".join(f"j{n}" for n in range(101))
        assert "the maximum is 100" in await rejection(plane, a_job("d", many))


async def test_annotation_of_existing_job_cannot_change(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await create(plane, a_job("a", "x"), a_job("b", seconds=1000))
        for name in ("a", "b"):
            body = msgspec.json.encode({"metadata": {"annotations": {"onejob.dev/after": "y"}}})
            with pytest.raises(Invalid, match="only when the Job is created"):
                await plane.client.write(Patch(Key(JOBS, "default", name), body, "merge"))
