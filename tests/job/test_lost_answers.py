"""Lost responses to successful writes: no decision is based on caches that lack the write."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from onejob.client.base import Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.objects.meta import JOBS
from onejob.wire.errors import InternalError
from tests.scripted_cluster import a_cluster

pytestmark = pytest.mark.virtual_time


class LosesAnAnswer(LocalClient):
    """Client that loses one response on command, and delivers Jobs late from then on."""

    loses = False

    async def durable(self, revision: int) -> None:
        await super().durable(revision)
        if self.loses:
            self.loses = False
            raise InternalError("the answer was lost")

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        async for batch in super().watch(what, after=after):
            if what.resource == JOBS:
                await asyncio.sleep(3)
            yield batch


async def test_an_index_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    """Its Pod is counted and gone, and only the Job's status records the failure."""
    async with a_cluster(tmp_path) as cluster:
        node = cluster.start_node(lambda pod: 1)
        node.runs_seconds = 10
        client = LosesAnAnswer(cluster.service)
        controller = await cluster.start_job_controller(client)
        job = await cluster.create_job(
            completionMode="Indexed", completions=1, parallelism=1, backoffLimitPerIndex=0,
            backoffSeconds=0,
        )  # fmt: skip
        await asyncio.sleep(12)
        client.loses = True
        finished = await cluster.until_finished(job)
        await asyncio.sleep(60)
        assert not client.loses
        assert (finished.status.failed, finished.status.failed_indexes) == (1, "0")
        assert len(await cluster.pods()) == 1
        await controller.stop()
