"""Operations per Pod in virtual time: identical on every machine, so that tests can bound them."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from random import Random

from onejob.benchmarks.counting import CountingCommitter, counting_calls, operations, since
from onejob.benchmarks.plane import MeasuredPlane, a_job, completions
from onejob.benchmarks.results import Measurement
from onejob.benchmarks.used_nodes import record_node
from onejob.benchmarks.workflows import run_jobs, run_workflow, task_of
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock

#: Simulated duration of a commit; all other work takes no virtual time.
_COMMIT_SECONDS = 0.001
#: Virtual time after which all consequences of a start or of the end of a Job have happened.
_SETTLED_SECONDS = 5.0


def per_pod(*, completions: int, parallelism: int, indexed: int = 0) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        counting = _count(Path(folder), completions, parallelism, bool(indexed))
        # In a context of its own: the caller's may have audit notes, for which more is evaluated.
        counts = Context().run(run_virtual, counting)
    return Measurement({f"{name} per pod": count / completions for name, count in counts.items()})


def per_finished_job(*, jobs: int) -> Measurement:
    """Count the operations of a restart per finished Job, each with one Pod, until it is idle."""
    counted = []
    for count in (jobs, 2 * jobs):
        with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
            counted.append(run_virtual(_count_restart(Path(folder), count)))
    few, many = counted
    return Measurement(
        {f"{name} per finished job": (many[name] - few[name]) / jobs for name in many}
    )


def per_task(*, tasks: int) -> Measurement:
    """Count the operations per task of a chain, and how many times as many as its Jobs need."""
    alone = _count_chain(tasks, as_workflow=False)
    flow = _count_chain(tasks, as_workflow=True)
    figures = {f"{name} per task": flow[name] / tasks for name in flow}
    return Measurement(figures | {f"{name}, ×": flow[name] / alone[name] for name in flow})


def _count_chain(tasks: int, *, as_workflow: bool) -> dict[str, int]:
    async def count(folder: Path) -> dict[str, int]:
        async with _a_plane(folder) as measured:
            await run_jobs(measured, 3, chained=False)
            await run_workflow(measured, [task_of(0, chained=True)], name="first")
            before = measured.operations()
            with counting_calls() as calls:
                if as_workflow:
                    chain = [task_of(number, chained=True) for number in range(tasks)]
                    await run_workflow(measured, chain)
                else:
                    await run_jobs(measured, tasks, chained=True, prefix="counted")
            return {**since(before, measured.operations()), **calls}

    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        return Context().run(run_virtual, count(Path(folder)))


async def _count_restart(folder: Path, jobs: int) -> dict[str, int]:
    async with _a_plane(folder) as measured, completions(measured) as seen:
        names = [f"job-{number}" for number in range(jobs)]
        for name in names:
            await measured.client.write(a_job(name, completions=1, parallelism=1))
        await seen.of_all(names)
        await asyncio.sleep(_SETTLED_SECONDS)
    with counting_calls() as calls:
        async with _a_plane(folder) as measured:
            await asyncio.sleep(_SETTLED_SECONDS)
            counts = {**measured.operations(), **calls}
    del counts["writes"], counts["commits"]
    return counts


@asynccontextmanager
async def _a_plane(folder: Path) -> AsyncIterator[MeasuredPlane]:
    committer = CountingCommitter(LoopCommitter(_COMMIT_SECONDS))
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime=record_node("simulated"), name="node")),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=committer),
    )
    committer.revision = lambda: plane.store.revision
    try:
        yield MeasuredPlane(plane, committer)
    finally:
        await plane.stop()


async def _count(folder: Path, pods: int, parallelism: int, indexed: bool) -> dict[str, int]:
    async with _a_plane(folder) as measured:
        plane, committer = measured.plane, measured.committer
        async with completions(measured) as seen:

            async def run(name: str, size: int) -> None:
                job = a_job(name, completions=size, parallelism=parallelism, indexed=indexed)
                await plane.client.write(job)
                await seen.of(name)

            # Warm-up: imports and caches of the first Pods are not counted.
            await run("first", parallelism)
            before = operations(plane, committer)
            with counting_calls() as calls:
                await run("counted", pods)
            return {**since(before, operations(plane, committer)), **calls}
