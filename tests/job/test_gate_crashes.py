"""Tracking gate switched off and on by servers that crash after every write.

Pods that ended before are counted by exactly one of the servers.
"""

import asyncio
from itertools import count
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Delete, Patch
from onejob.gates import parse_gates
from onejob.virtual_time import run_virtual
from tests.job.terms import a_term, settled
from tests.scripted_cluster import CountingClient, a_cluster

OFF = "JobTrackingWithFinalizers=false"


async def _live(folder: Path, mode: str, phase: str, dies_after: int, *, deleted: bool) -> bool:
    """Run a Job with two Pods that ended unseen.

    Return whether the second server crashed as planned.
    """
    async with a_term(folder) as term:
        job = await term.cluster.create_job(
            completions=4, parallelism=2, completionMode=mode, backoffLimit=50
        )
        await settled()
        await term.controller.stop()
        for pod in await term.cluster.pods():
            body = msgspec.json.encode({"status": {"phase": phase}})
            await term.cluster.client.write(Patch(pod.key, body, "strategic", "status"))
            if deleted:
                await term.cluster.client.write(Delete(pod.key))
    async with a_cluster(folder, seed=dies_after, gates=parse_gates(OFF)) as cluster:
        client = CountingClient(cluster.client, dies_after=dies_after)
        controller = await cluster.start_job_controller(client)
        await asyncio.sleep(30)
        await controller.stop()
    async with a_term(folder) as term:
        await settled()
        status = (await term.cluster.job(job)).status
        assert (status.succeeded if phase == "Succeeded" else status.failed) == 2
        return client.dead.is_set()


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_a_pod_is_counted_once_whenever_a_server_dies_that_switches_tracking_off(
    tmp_path: Path, mode: str, phase: str, deleted: bool
) -> None:
    for dies_after in count(1):
        folder = tmp_path / str(dies_after)
        folder.mkdir()
        if not run_virtual(_live(folder, mode, phase, dies_after, deleted=deleted)):
            break
