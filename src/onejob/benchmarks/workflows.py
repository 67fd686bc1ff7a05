"""Workflows on the simulated node: cost per task beyond its Job.

The Jobs alone are started in the same order, each of a chain when the one before is seen Complete.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from onejob.benchmarks.plane import (
    NAMESPACE,
    MeasuredPlane,
    a_job,
    a_plane,
    completions,
    run_like_a_server,
)
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb
from onejob.client.base import Create, Selection
from onejob.objects.meta import WORKFLOWS, Key
from onejob.wire.errors import ApiError

_NAME = "flow"


@dataclass(frozen=True, slots=True)
class _Run:
    seconds: float
    cpu_seconds: float
    status_bytes: int = 0


def chain(*, tasks: int) -> Measurement:
    """Measure a chain against as many Jobs, one after the other."""
    return run_like_a_server(_compare(tasks, chained=True))


def side_by_side(*, tasks: int) -> Measurement:
    """Measure tasks without edges against as many Jobs, created at once."""
    return run_like_a_server(_compare(tasks, chained=False))


def status_size(*, tasks: int, pods: int) -> Measurement:
    """Measure the status of a chain of Indexed Jobs with this many Pods in all."""
    return run_like_a_server(_status_size(tasks, pods // tasks))


async def _compare(tasks: int, *, chained: bool) -> Measurement:
    alone = await _jobs(tasks, chained=chained)
    flow = await _workflow([task_of(n, chained=chained) for n in range(tasks)])
    figures = {
        # Of few tasks, the difference may be less than the noise.
        "beyond the Job, ms/task": max(0.0, flow.seconds - alone.seconds) / tasks * 1000,
        "CPU of the Job, ×": flow.cpu_seconds / alone.cpu_seconds,
        "ms/task": flow.seconds / tasks * 1000,
        "Job alone, ms": alone.seconds / tasks * 1000,
        "status, kB": flow.status_bytes / 1000,
    }
    return Measurement(figures, Cost(tasks, flow.cpu_seconds, peak_rss_mb()))


async def _status_size(tasks: int, completions_each: int) -> Measurement:
    documents = [task_of(n, chained=True, completions=completions_each) for n in range(tasks)]
    flow = await _workflow(documents)
    figures = {"status, kB": flow.status_bytes / 1000, "seconds": flow.seconds}
    pods = tasks * completions_each
    return Measurement(figures, Cost(pods, flow.cpu_seconds, peak_rss_mb()))


async def _jobs(count: int, *, chained: bool) -> _Run:
    async with a_plane() as measured:
        return await run_jobs(measured, count, chained=chained)


async def run_jobs(
    measured: MeasuredPlane, count: int, *, chained: bool, prefix: str = "job"
) -> _Run:
    """Run Jobs of one Pod each, in a chain each when the one before is seen Complete."""
    names = [f"{prefix}-{number}" for number in range(count)]
    ops = [a_job(name, completions=1, parallelism=1) for name in names]
    async with completions(measured) as seen:
        cpu, start = cpu_seconds(), time.perf_counter()
        if chained:
            for name, op in zip(names, ops, strict=True):
                await measured.client.write(op)
                await seen.of(name)
        else:
            for result in await measured.client.write_many(ops):
                if isinstance(result, ApiError):
                    raise result
        seconds = await seen.of_all(names) - start
        return _Run(seconds, cpu_seconds() - cpu)


async def _workflow(tasks: Sequence[dict[str, Any]]) -> _Run:
    async with a_plane() as measured:
        return await run_workflow(measured, tasks)


async def run_workflow(
    measured: MeasuredPlane, tasks: Sequence[dict[str, Any]], *, name: str = _NAME
) -> _Run:
    """Run a workflow until it is seen Complete."""
    document = {
        "apiVersion": "onejob.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"tasks": list(tasks)},
    }
    cpu, start = cpu_seconds(), time.perf_counter()
    after = measured.plane.store.revision
    await measured.client.write(Create(WORKFLOWS, NAMESPACE, msgspec.json.encode(document)))
    seconds = await _completed(measured, after) - start
    used = cpu_seconds() - cpu
    stored = msgspec.json.decode(await measured.client.get(Key(WORKFLOWS, NAMESPACE, name)))
    return _Run(seconds, used, len(msgspec.json.encode(stored["status"])))


async def _completed(measured: MeasuredPlane, after: int) -> float:
    """Return when (`perf_counter`) the workflow was seen Complete. Raises if it failed."""
    watch = measured.client.watch(Selection(WORKFLOWS), after=after)
    async with aclosing(watch) as batches:
        async for batch in batches:
            for event in batch:
                if b'"type":"Failed"' in event.document:
                    raise RuntimeError(f"{event.key} failed: {event.document[-2000:].decode()}")
                if b'"type":"Complete"' in event.document:
                    return time.perf_counter()
            await asyncio.sleep(0)
    raise RuntimeError("the watch ended")


def task_of(number: int, *, chained: bool, completions: int = 1) -> dict[str, Any]:
    job = msgspec.json.decode(
        a_job("x", completions=completions, parallelism=1000, indexed=completions > 1).body
    )
    task: dict[str, Any] = {"name": f"t{number}", "template": {"spec": job["spec"]}}
    if chained and number:
        task["dependsOn"] = [{"task": f"t{number - 1}"}]
    return task
