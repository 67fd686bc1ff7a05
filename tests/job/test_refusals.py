"""Whatever the server answers to whichever write, the Job comes to the same end."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Create, Delete, Op, Patch, Result
from onejob.objects.meta import JOBS, PODS
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
from tests.job.clients import Interceptor
from tests.job.memory_support import start_with_collector
from tests.scripted_cluster import Script, a_cluster

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
    """What kind of write, answered how, and whether it was carried out all the same."""
    for write, error in itertools.product(IS, ERRORS):
        if isinstance(error, NotFound) and write in ("freeing", "deletion"):
            continue  # Then the Pod is gone, and nothing is left to be done.
        name = f"{write}-{type(error).__name__}"
        yield pytest.param(write, error, False, id=name)
        if error.code >= 500:
            yield pytest.param(write, error, True, id=f"{name}-answer lost")


@pytest.mark.parametrize(("write", "error", "happened"), list(troubles()))
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_any_write_may_be_answered_with_any_error(
    tmp_path: Path, mode: str, write: str, error: ApiError, happened: bool
) -> None:
    async def main() -> None:
        async with a_cluster(tmp_path) as cluster:
            # The one Pod too many is deleted by one write.
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

    run_virtual(main())


async def _with_deletion(folder: Path, position: int, propagation: Any, again: bool) -> int:
    """Delete the Job after the write of this number. Returns how many there were."""
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
                # It stays until its dependents are seen to.
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


@pytest.mark.parametrize("again", [False, True], ids=["", "and created again"])
@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
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
