"""Pods that are about to exist: the node takes them before they do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.benchmarks.plane import a_job
from onejob.node.options import NodeOptions
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import read_pod
from onejob.server import ControlPlane, Settings, World
from onejob.store.writer import Committer, LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from tests.client.write_series_support import FailingCommitter


@asynccontextmanager
async def a_plane(
    folder: Path, committer: Committer, **options: Any
) -> AsyncIterator[ControlPlane]:
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated", name="node", **options)),
        World(clock=virtual_clock(), rng=Random(1), committer=committer),
    )
    try:
        yield plane
    finally:
        await plane.stop()


async def until_finished(plane: ControlPlane) -> Job:
    for _ in range(3600):
        job = read_job(await plane.client.get(Key(JOBS, "default", "j")))
        if job.finished:
            return job
        await asyncio.sleep(1)
    raise AssertionError("the Job does not end")


def test_the_pods_of_a_job_are_placed_by_the_commit_that_creates_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_plane(tmp_path, LoopCommitter(0.001)) as plane:
            changes = plane.store.watch(PODS, after=plane.store.revision)
            await plane.client.write(a_job("j", completions=3, parallelism=3))
            nodes = [
                read_pod(change.value or b"").spec.node_name for change in await anext(changes)
            ]
            assert nodes == ["", "", "", "node", "node", "node"]

    run_virtual(main())


def test_pods_that_must_wait_are_placed_in_their_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_plane(tmp_path, LoopCommitter(0.001), capacity={"pods": "2"}) as plane:
            changes = plane.store.watch(PODS, after=plane.store.revision)
            await plane.client.write(a_job("j", completions=3, parallelism=3, runs_seconds=10))
            nodes = [
                read_pod(change.value or b"").spec.node_name for change in await anext(changes)
            ]
            assert nodes == ["", "", "", "node", "node"]
            assert (await until_finished(plane)).status.succeeded == 3

    run_virtual(main())


@pytest.mark.parametrize("indexed", [False, True])
def test_a_disk_that_is_full_at_any_moment_costs_neither_pods_nor_room(
    tmp_path: Path, indexed: bool
) -> None:
    async def live(folder: Path, failing: range) -> int:
        committer = FailingCommitter()
        async with a_plane(folder, committer, capacity={"pods": "2"}) as plane:
            await plane.client.write(a_job("j", completions=5, parallelism=2, indexed=indexed))
            first = committer.commits
            committer.fails_at = {first + number for number in failing}
            finished = await until_finished(plane)
            assert (finished.status.succeeded, finished.status.failed) == (5, 0), failing
            return committer.commits - first

    commits = run_virtual(live(tmp_path, range(0)))
    assert commits > 5
    for position in range(1, commits):
        for length in (1, 2):
            folder = tmp_path / f"{position}-{length}"
            folder.mkdir()
            run_virtual(live(folder, range(position, position + length)))
