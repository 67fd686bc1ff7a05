"""Memory of the Job controller: only unfinished Jobs are kept."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onejob.client.base import Delete
from tests.build import a_pod, creation
from tests.job.memory_support import start_with_collector
from tests.scripted_cluster import a_cluster

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_a_deleted_job_is_forgotten_with_its_pods(tmp_path: Path, propagation: Any) -> None:
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(lambda pod: None)
        controller = await start_with_collector(cluster)
        key = await cluster.create_job(completions=3, parallelism=3)
        await asyncio.sleep(5)
        assert controller.controller.remembered_jobs == 1
        await cluster.client.write(Delete(key, propagation))
        await asyncio.sleep(60)
        pods = await cluster.pods()
        assert len(pods) == (3 if propagation == "Orphan" else 0)
        assert all(not pod.metadata.finalizers for pod in pods)
        assert controller.controller.remembered_jobs == 0
        await controller.stop()


@pytest.mark.parametrize(
    "spec",
    [
        {"completions": 3, "parallelism": 2},
        {"completions": 2, "parallelism": 2, "completionMode": "Indexed"},
        {"backoffLimit": 1, "failedPodsLimit": 1, "annotations": {"fails": "yes"}},
    ],
)
async def test_a_finished_job_is_forgotten(tmp_path: Path, spec: dict[str, Any]) -> None:
    fails = "annotations" in spec
    async with a_cluster(tmp_path) as cluster:
        cluster.start_node(lambda pod: int(fails))
        controller = await cluster.start_job_controller()
        await cluster.until_finished(await cluster.create_job(**spec))
        await asyncio.sleep(60)
        assert controller.controller.remembered_jobs == 0
        for pod in await cluster.pods():
            await cluster.client.write(Delete(pod.key))
        await asyncio.sleep(60)
        assert controller.controller.remembered_jobs == 0
        await controller.stop()


async def test_jobs_of_other_controllers_are_not_remembered(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        controller = await cluster.start_job_controller()
        await cluster.create_job(managedBy="example.com/other")
        await asyncio.sleep(5)
        assert controller.controller.remembered_jobs == 0
        await controller.stop()


async def test_pods_of_other_kinds_of_jobs_are_not_remembered(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as cluster:
        controller = await cluster.start_job_controller()
        owner = {
            "apiVersion": "batch.example.com/v1", "kind": "Job", "name": "theirs",
            "uid": "theirs", "controller": True,
        }  # fmt: skip
        pod = a_pod("pod", metadata={"ownerReferences": [owner]})
        await cluster.client.write(creation(pod))
        await asyncio.sleep(5)
        assert controller.controller.remembered_jobs == 0
        await controller.stop()
