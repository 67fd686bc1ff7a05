"""Job controller on the real store and API, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Patch, Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.objects.job import Job
from onejob.objects.meta import EVENTS, JOBS, Key
from onejob.objects.pod import Pod
from tests.scripted_cluster import a_cluster

pytestmark = pytest.mark.virtual_time


def succeed(pod: Pod) -> int:
    return 0


async def test_a_job_runs_its_pods_to_completion(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        node = cluster.start_node(succeed)
        controller = await cluster.start_job_controller()
        job = await cluster.until_finished(await cluster.create_job(completions=7, parallelism=3))
        assert job.condition_is_true("Complete")
        assert job.status.succeeded == node.succeeded == 7
        assert job.status.active == 0
        assert all(not pod.metadata.finalizers for pod in await cluster.pods())
        await controller.stop()


async def test_a_failed_job_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(lambda pod: 1)
        controller = await cluster.start_job_controller()
        await cluster.until_finished(await cluster.create_job(backoffLimit=0))
        await controller.stop()
    lines = [record.getMessage() for record in caplog.records if "failed:" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("job default/")
    assert lines[0].endswith(
        " failed: BackoffLimitExceeded: Job has reached the specified backoff limit"
    )


async def test_a_failing_job_backs_off_and_stops_at_its_limit(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        node = cluster.start_node(lambda pod: 1)
        controller = await cluster.start_job_controller()
        started = cluster.clock.now()
        job = await cluster.until_finished(await cluster.create_job(backoffLimit=2))
        assert job.condition_is_true("Failed")
        assert job.status.failed == node.failed == 3
        waited = (cluster.clock.now() - started).total_seconds()
        assert 30 <= waited < 40, "two back-offs of 10 s and 20 s"
        await asyncio.sleep(1)
        reasons = set()
        listing = await cluster.client.list(Selection(EVENTS))
        for document in listing.documents:
            reasons.add(document.split(b'"reason":"')[1].split(b'"')[0].decode())
        assert {"SuccessfulCreate", "BackoffLimitExceeded", "JobStart", "JobFinish"} <= reasons
        await controller.stop()


async def test_an_indexed_job_runs_each_index_once(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(succeed)
        controller = await cluster.start_job_controller()
        job = await cluster.until_finished(
            await cluster.create_job(completions=12, parallelism=5, completionMode="Indexed")
        )
        assert job.status.completed_indexes == "0-11"
        indexes = sorted(
            int(pod.metadata.labels["batch.kubernetes.io/job-completion-index"])
            for pod in await cluster.pods()
        )
        assert indexes == list(range(12))
        await controller.stop()


class HoldsAll:
    """Gate that lets no Job begin."""

    def __init__(self) -> None:
        self.let_go: Callable[[Key], None]

    def holds(self, job: Job) -> bool:
        return not job.spec.suspend

    def on_admitted(self, handler: Callable[[Key], None]) -> None:
        self.let_go = handler


class GatheringWatch(LocalClient):
    """Client that holds back all changes of Jobs after the first, until `telling` is set.

    They are then delivered together with the next one.
    """

    telling = True

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        kept: list[WatchEvent] = []
        async for batch in super().watch(what, after=after):
            kept += batch
            if what.resource != JOBS or self.telling:
                yield kept
                kept = []
            if what.resource == JOBS:
                self.telling = False


async def test_a_job_that_is_resumed_while_its_sync_waits_is_held(tmp_path: Path) -> None:
    """The sync began with a suspended Job, and goes on with the newest version."""
    async with a_cluster(tmp_path) as cluster:
        gate, watching = HoldsAll(), GatheringWatch(cluster.service)
        controller = await cluster.start_job_controller(watching, gate)
        job = await cluster.create_job(suspend=True)
        await asyncio.sleep(1)
        assert (await cluster.job(job)).condition_is_true("Suspended")
        # This sync waits until the watch shows the last sync's writes.
        gate.let_go(job)
        await asyncio.sleep(1)
        resume = msgspec.json.encode({"spec": {"suspend": False}})
        await cluster.client.write(Patch(job, resume, "merge"))
        await asyncio.sleep(1)
        watching.telling = True
        await cluster.create_job("other", suspend=True)
        await asyncio.sleep(30)
        assert await cluster.pods() == []
        await controller.stop()
