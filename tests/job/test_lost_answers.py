"""A write that happened, but was never answered: nothing is decided on caches that lack it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from onejob.client.base import Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.objects.meta import JOBS
from onejob.virtual_time import run_virtual
from onejob.wire.errors import InternalError
from tests.scripted_cluster import a_cluster


class LosesAnAnswer(LocalClient):
    """Once, when it is told to; and what it tells of Jobs from then on comes late."""

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


def test_an_index_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    """Its Pod is counted and freed, and only the Job's status tells that it has failed."""

    async def main() -> None:
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

    run_virtual(main())
