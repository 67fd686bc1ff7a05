"""Errors in response to any write: the Job has the same outcome."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Create, Delete, Op, Patch, Result
from onejob.client.local import LocalClient
from onejob.diagnosis.jobs import explain_job
from onejob.objects.meta import EVENTS, JOBS, PODS
from onejob.objects.pod import Pod
from onejob.virtual_time import run_virtual
from onejob.wire.errors import (
    ApiError,
    Conflict,
    Forbidden,
    InternalError,
    NotFound,
    Timeout,
    TooManyRequests,
)
from tests.controllers.housekeeping import a_house
from tests.job.clients import Interceptor
from tests.job.memory_support import start_with_collector
from tests.scripted_cluster import Script, a_cluster

pytestmark = pytest.mark.virtual_time

IS: dict[str, Callable[[Op], bool]] = {
    "creation": lambda op: isinstance(op, Create) and op.resource == PODS,
    "status": lambda op: isinstance(op, Patch) and op.key.resource == JOBS,
    "freeing": lambda op: isinstance(op, Patch) and op.key.resource == PODS,
    "deletion": lambda op: isinstance(op, Delete) and op.key.resource == PODS,
}
ERRORS: list[ApiError] = [
    Conflict("changed"),
    Forbidden("no"),
    NotFound("gone"),
    TooManyRequests("slow down"),
    InternalError("broken"),
    Timeout("too slow"),
]


def some_fail() -> Script:
    seen: dict[str, int] = {}

    def script(pod: Pod) -> int:
        number = seen.setdefault(pod.metadata.uid, len(seen))
        return 1 if number in (1, 4) else 0

    return script


def troubles() -> Iterator[Any]:
    """Yield a kind of write, its response, and whether it was carried out nevertheless."""
    for write, error in itertools.product(IS, ERRORS):
        if isinstance(error, NotFound) and write in ("freeing", "deletion"):
            continue  # Then the Pod is gone, and there is nothing left to do.
        name = f"{write}-{type(error).__name__}"
        yield pytest.param(write, error, False, id=name)
        if error.code >= 500:
            yield pytest.param(write, error, True, id=f"{name}-answer lost")


@pytest.mark.parametrize(("write", "error", "happened"), list(troubles()))
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
async def test_any_write_may_be_answered_with_any_error(
    tmp_path: Path, mode: str, write: str, error: ApiError, happened: bool
) -> None:
    async with a_cluster(tmp_path) as cluster:
        # The one surplus Pod is deleted by one write.
        trouble = [error] * (1 if write == "deletion" else 3)

        async def before(op: Op) -> Result | None:
            return trouble.pop() if not happened and IS[write](op) and trouble else None

        async def after(op: Op, result: Result) -> Result:
            return trouble.pop() if happened and IS[write](op) and trouble else result

        client = Interceptor(cluster.client, before, after)
        node = cluster.start_node(some_fail())
        controller = await cluster.start_job_controller(client)
        job = await cluster.until_finished(
            await cluster.create_job(
                completions=6,
                parallelism=3,
                completionMode=mode,
                backoffSeconds=0,
                failedPodsLimit=1,
            )
        )
        await asyncio.sleep(300)
        assert not trouble, "the trouble was met"
        assert job.condition_is_true("Complete")
        assert (job.status.succeeded, job.status.failed) == (6, 2)
        assert (node.succeeded, node.failed) == (6, 2)
        pods = await cluster.pods()
        assert sum(pod.phase == "Failed" for pod in pods) == 1
        assert not any(pod.metadata.finalizers for pod in pods)
        assert controller.controller.remembered_jobs == 0
        await controller.stop()


async def test_job_controller_reports_finalizers_that_it_may_not_remove(tmp_path: Path) -> None:
    """Otherwise the Job would seem to wait for Pods that have ended."""
    allowed = False

    class MayNotPatchPods(LocalClient):
        async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
            if not allowed and any(IS["freeing"](op) for op in ops):
                return [Forbidden("cannot patch pods") for _ in ops]
            return await super().write_many(ops)

    async with a_house(tmp_path, "jobs", script=lambda pod: 0, client_of=MayNotPatchPods) as house:
        key = await house.a_job("stuck")
        await asyncio.sleep(120)
        (event,) = (
            event
            for event in await house.all_of(EVENTS)
            if event["reason"] == "FailedFinalizerRemoval"
        )
        assert event["type"] == "Warning"
        assert event["message"] == "Error removing tracking finalizer: cannot patch pods"
        assert event["count"] > 1
        pods = await house.all_of(PODS)
        answer = explain_job(await house.get(key), pods, house.clock.now(), events=[event])
        assert answer.state == "job/stuck has an outcome, but its ended Pods cannot be counted."
        allowed = True
        await asyncio.sleep(600)
        conditions = (await house.get(key))["status"]["conditions"]
        assert "Complete" in {condition["type"] for condition in conditions}


async def _with_deletion(folder: Path, position: int, propagation: Any, again: bool) -> int:
    """Delete the Job after the write with this number. Return the number of writes."""
    async with a_cluster(folder) as cluster:
        count = 0
        deleted = asyncio.Event()

        async def after(op: Op, result: Result) -> Result:
            nonlocal count
            count += 1
            if count == position:
                await cluster.client.write(Delete(key, propagation))
                deleted.set()
            return result

        client = Interceptor(cluster.client, after=after)
        node = cluster.start_node(some_fail())
        controller = await start_with_collector(cluster, client)
        spec: dict[str, Any] = {"completions": 4, "parallelism": 2, "backoffSeconds": 0}
        key = await cluster.create_job(**spec)
        if position:
            await deleted.wait()
            if propagation != "Background":
                # It stays until its dependents are processed.
                await asyncio.sleep(60)
            if again:
                key = await cluster.create_job(**spec)
                job = await cluster.until_finished(key)
                assert job.status.succeeded == 4
        else:
            await cluster.until_finished(key)
        await asyncio.sleep(300)
        pods = await cluster.pods()
        assert not any(pod.metadata.finalizers for pod in pods)
        if propagation != "Orphan":
            uids = {job.metadata.uid} if again else set()
            owners = {pod.metadata.controller_ref for pod in pods}
            assert {owner.uid for owner in owners if owner is not None} <= uids
        assert controller.controller.remembered_jobs == 0
        await controller.stop()
        assert node.started
        return count


@pytest.mark.parametrize(
    ("propagation", "again"),
    [
        ("Background", True),
        ("Foreground", False),
        pytest.param("Background", False, marks=pytest.mark.nightly),
        pytest.param("Foreground", True, marks=pytest.mark.nightly),
        pytest.param("Orphan", False, marks=pytest.mark.nightly),
        pytest.param("Orphan", True, marks=pytest.mark.nightly),
    ],
)
def test_a_job_may_be_deleted_after_any_write(
    tmp_path: Path, propagation: str, again: bool
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    writes = run_virtual(_with_deletion(whole, 0, "Orphan", again=False))
    for position in range(1, writes):
        folder = tmp_path / str(position)
        folder.mkdir()
        run_virtual(_with_deletion(folder, position, propagation, again))
