"""How long one waits: for a small Job alone, beside a giant one, and after a process has ended."""

import asyncio
import os
import tempfile
import time

from onejob.benchmarks.plane import (
    Completions,
    MeasuredPlane,
    a_job,
    a_plane,
    completions,
    run_like_a_server,
)
from onejob.benchmarks.results import Cost, Measurement, percentile
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb

_TICK_SECONDS = 0.002


def one_pod_jobs(*, jobs: int) -> Measurement:
    """Created → Complete seen on a watch, one after the other, each alone."""
    return run_like_a_server(_one_after_the_other(jobs))


def beside_a_giant(*, giant: int, parallelism: int) -> Measurement:
    """The same while a Job runs whose Pods keep the control plane busy."""
    return run_like_a_server(_beside_a_giant(giant, parallelism))


def exit_to_complete(*, jobs: int) -> Measurement:
    """From the end of a real process to its Job seen Complete."""
    return run_like_a_server(_exit_to_complete(jobs))


async def _one_after_the_other(jobs: int) -> Measurement:
    async with a_plane() as measured, completions(measured) as seen:
        cpu = cpu_seconds()
        latencies = [await _one_job(measured, seen, f"small-{number}") for number in range(jobs)]
        cost = Cost(jobs, cpu_seconds() - cpu, peak_rss_mb())
    return Measurement(_spread(latencies), cost)


async def _beside_a_giant(giant: int, parallelism: int) -> Measurement:
    async with a_plane() as measured, completions(measured) as seen:
        cpu = cpu_seconds()
        await measured.client.write(
            a_job("giant", completions=giant, parallelism=parallelism, indexed=True)
        )
        giants_end = asyncio.create_task(seen.of("giant"))
        ticking = asyncio.create_task(_longest_pause(giants_end))
        latencies: list[float] = []
        while not giants_end.done():
            latencies.append(await _one_job(measured, seen, f"small-{len(latencies)}"))
        figures = _spread(latencies)
        figures["Jobs beside it"] = len(latencies)
        figures["longest pause of the loop, ms"] = await ticking * 1e3
        cost = Cost(giant + len(latencies), cpu_seconds() - cpu, peak_rss_mb())
    return Measurement(figures, cost)


async def _one_job(measured: MeasuredPlane, seen: Completions, name: str) -> float:
    start = time.perf_counter()
    await measured.client.write(a_job(name, completions=1, parallelism=1))
    return await seen.of(name) - start


async def _longest_pause(end: "asyncio.Task[float]") -> float:
    """By how much a short sleep took longer than it should have."""
    longest = 0.0
    while not end.done():
        before = time.perf_counter()
        await asyncio.sleep(_TICK_SECONDS)
        longest = max(longest, time.perf_counter() - before - _TICK_SECONDS)
    return longest


async def _exit_to_complete(jobs: int) -> Measurement:
    latencies: list[float] = []
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        async with (
            a_plane("process", pods_end_with_us=True) as measured,
            completions(measured) as seen,
        ):
            cpu = cpu_seconds()
            for number in range(jobs):
                held = f"{folder}/{number}"
                os.mkfifo(held)
                end = asyncio.create_task(asyncio.to_thread(_end_of_writer, held))
                name, command = f"small-{number}", ("/bin/sh", "-c", f"exec true 3> {held}")
                await measured.client.write(
                    a_job(name, completions=1, parallelism=1, command=command)
                )
                latencies.append(await seen.of(name) - await end)
            cost = Cost(jobs, cpu_seconds() - cpu, peak_rss_mb())
    return Measurement(_spread(latencies), cost)


def _end_of_writer(pipe: str) -> float:
    """When the only process that holds a named pipe open has ended."""
    with open(pipe, "rb") as held:
        held.read()
    return time.perf_counter()


def _spread(latencies: list[float]) -> dict[str, float]:
    milliseconds = [latency * 1e3 for latency in latencies]
    return {"p50, ms": percentile(milliseconds, 50), "p99, ms": percentile(milliseconds, 99)}
