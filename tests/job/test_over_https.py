"""Job controller over a network, as on a real cluster."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create, Delete, Selection
from onejob.client.events import EventRecorder
from onejob.clock import LoopClock, SystemClock
from onejob.controllers.context import ControllerContext
from onejob.controllers.job import JobController
from onejob.informers.shared import SharedInformers
from onejob.metrics import Metrics
from onejob.objects.job import Job, read_job
from onejob.objects.meta import EVENTS, JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.operator_settings import Settings
from tests import build
from tests.harness import HttpPlane, running_http
from tests.job.terms import template
from tests.scripted_cluster import ScriptedNode


async def create(plane: HttpPlane, resource: str, document: dict[str, Any]) -> Key:
    await plane.client.write(Create(resource, "default", msgspec.json.encode(document)))
    return Key(resource, "default", document["metadata"]["name"])


def a_job(**spec: Any) -> dict[str, Any]:
    # The field would not survive on a real cluster.
    annotations = {"onejob.dev/backoff-seconds": "0"}
    return build.a_job("job", metadata={"annotations": annotations}, **spec)


async def until_finished(plane: HttpPlane, key: Key) -> Job:
    async for batch in plane.client.watch(Selection(JOBS), after=0):
        for event in batch:
            if event.type != "BOOKMARK" and event.key == key:
                job = read_job(event.document)
                if job.finished:
                    return job
    raise AssertionError("the watch ended")


async def over_https(
    folder: Path,
    script: Callable[[Pod], int | None],
    test: Callable[[HttpPlane, JobController], Coroutine[Any, Any, None]],
) -> None:
    async with running_http(folder) as plane, asyncio.timeout(60):
        clock = LoopClock(asyncio.get_running_loop(), SystemClock().now())
        node = ScriptedNode(plane.client, clock, script, runs_seconds=0.01)
        informers = SharedInformers(plane.http)
        recorder = EventRecorder(plane.http, "job-controller", clock)
        context = ControllerContext(plane.http, informers, recorder, clock, Metrics())
        controller = JobController(context, settings=Settings())
        await informers.start()
        tasks = [
            asyncio.create_task(part) for part in (node.run(), controller.run(), recorder.run())
        ]
        try:
            await test(plane, controller)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await informers.stop()


async def pods_of(plane: HttpPlane) -> list[Pod]:
    listing = await plane.client.list(Selection(PODS))
    return [read_pod(document) for document in listing.documents]


async def eventually(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - remote state without an event
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
async def test_a_job_is_run_and_counted_exactly(tmp_path: Path, mode: str) -> None:
    seen: list[str] = []

    def every_fourth_fails(pod: Pod) -> int:
        seen.append(pod.metadata.uid)
        return int(len(seen) % 4 == 0)

    async def test(plane: HttpPlane, controller: JobController) -> None:
        key = await create(
            plane,
            JOBS,
            a_job(completions=12, parallelism=4, backoffLimit=100, completionMode=mode),
        )
        job = await until_finished(plane, key)
        assert job.condition_is_true("Complete")
        assert job.status.succeeded == 12
        assert job.status.failed == len(seen) // 4
        pods = await pods_of(plane)
        assert len(pods) == len(seen) == 12 + job.status.failed
        assert not any(pod.metadata.finalizers for pod in pods)

        async def is_forgotten() -> bool:
            return controller.remembered_jobs == 0

        await eventually(is_forgotten)

        async def end_is_told() -> bool:
            documents = (await plane.client.list(Selection(EVENTS))).documents
            reasons = [msgspec.json.decode(document)["reason"] for document in documents]
            return {"SuccessfulCreate", "Completed", "JobFinish"} <= set(reasons)

        await eventually(end_is_told)

    await over_https(tmp_path, every_fourth_fails, test)


async def test_strays_are_adopted_and_orphans_freed(tmp_path: Path) -> None:
    async def test(plane: HttpPlane, controller: JobController) -> None:
        labelled = template()
        labelled["metadata"]["labels"] = {"app": "x"}
        await create(plane, PODS, build.a_pod("stray", metadata={"labels": {"app": "x"}}))
        key = await create(
            plane,
            JOBS,
            a_job(
                completions=2,
                parallelism=2,
                template=labelled,
                manualSelector=True,
                selector={"matchLabels": {"app": "x"}},
            ),
        )

        async def both_are_owned() -> bool:
            pods = await pods_of(plane)
            return len(pods) == 2 and all(pod.metadata.controller_ref for pod in pods)

        await eventually(both_are_owned)
        await plane.client.write(Delete(key, "Background"))
        for pod in await pods_of(plane):
            await plane.client.write(Delete(pod.key))

        async def nothing_is_left() -> bool:
            return not await pods_of(plane) and controller.remembered_jobs == 0

        await eventually(nothing_is_left)

    await over_https(tmp_path, lambda pod: None, test)
