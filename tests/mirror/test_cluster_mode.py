"""`onejob controller --mirror`: mirroring over HTTP on both sides."""

import asyncio
from pathlib import Path
from random import Random

from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.cluster.manager import Manager, Settings
from onejob.controllers.selection import ALL, MIRROR
from onejob.objects.meta import JOBS, Key
from tests.mirror.pairs import a_pair, condition, is_complete, until_gone


async def test_the_controller_mirrors_jobs_of_a_cluster(tmp_path: Path) -> None:
    async with a_pair(tmp_path, controllers=ALL - {MIRROR}) as pair:
        connection = load_kubeconfig(pair.here.kubeconfig, SystemClock())
        settings = Settings(mirror=True, leader_elect=True, own_namespace="default")
        manager = Manager(settings, connection, rng=Random(1))
        await manager.check()
        stopping = asyncio.Event()
        running = asyncio.create_task(manager.run(stopping))
        await pair.create(completions=2)
        job = await pair.until(is_complete)
        assert job["status"]["succeeded"] == 2
        assert condition(job)["status"] == "True"
        assert len(await pair.pods(pair.remote)) == 2
        assert not await pair.pods(pair.local), "no Pods stand in on somebody else's cluster"
        await pair.delete()
        await until_gone(pair.local, Key(JOBS, "default", "x"))
        assert not (await pair.pods(pair.remote))
        stopping.set()
        await running


async def test_without_the_option_mirrored_jobs_are_left_alone(tmp_path: Path) -> None:
    async with a_pair(tmp_path, controllers=ALL - {MIRROR}) as pair:
        connection = load_kubeconfig(pair.here.kubeconfig, SystemClock())
        manager = Manager(Settings(), connection, rng=Random(1))
        stopping = asyncio.Event()
        running = asyncio.create_task(manager.run(stopping))
        await pair.create()
        await pair.create("ours", annotations={}, managedBy="onejob.dev/job-controller")
        await pair.until(is_complete, "ours")
        assert "finalizers" not in (await pair.job())["metadata"]
        stopping.set()
        await running
