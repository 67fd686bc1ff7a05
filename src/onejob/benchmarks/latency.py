"""Job latency: a small Job alone, next to a giant one, and after the end of a real process."""

import asyncio
import os
import tempfile
import time

from onejob.benchmarks.callbacks import Pauses, TimedLoop
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


def one_pod_jobs(*, jobs: int) -> Measurement:
    """Measure from creation to Complete seen on a watch.

    Jobs run one after the other, each alone.
    """
    return run_like_a_server(_one_after_the_other(jobs))


def beside_a_giant(*, giant: int, parallelism: int) -> Measurement:
    """Measure the same while the Pods of a giant Job keep the control plane busy."""
    loop = TimedLoop()
    return run_like_a_server(_with_large_job(giant, parallelism, loop), on=loop)


def exit_to_complete(*, jobs: int) -> Measurement:
    """Measure from the end of a real process to its Job seen Complete."""
    return run_like_a_server(_exit_to_complete(jobs))


async def _one_after_the_other(jobs: int) -> Measurement:
    async with a_plane() as measured, completions(measured) as seen:
        cpu = cpu_seconds()
        latencies = [await _one_job(measured, seen, f"small-{number}") for number in range(jobs)]
        cost = Cost(jobs, cpu_seconds() - cpu, peak_rss_mb())
    return Measurement(_percentiles(latencies), cost)


async def _with_large_job(giant: int, parallelism: int, loop: TimedLoop) -> Measurement:
    async with a_plane() as measured, completions(measured) as seen:
        # Exclude start-up, which no client waited for.
        loop.longest_callback = 0.0
        cpu = cpu_seconds()
        await measured.client.write(
            a_job("giant", completions=giant, parallelism=parallelism, indexed=True)
        )
        giants_end = asyncio.create_task(seen.of("giant"))
        pauses = Pauses()
        ticking = asyncio.create_task(pauses.watch(giants_end))
        latencies: list[float] = []
        while not giants_end.done():
            latencies.append(await _one_job(measured, seen, f"small-{len(latencies)}"))
        figures = _percentiles(latencies)
        figures["Jobs beside it"] = len(latencies)
        await ticking
        figures["longest callback, CPU ms"] = loop.longest_callback * 1e3
        figures["longest pause of the loop, CPU ms"] = pauses.longest_cpu * 1e3
        figures["longest pause of the loop, ms"] = pauses.longest * 1e3
        cost = Cost(giant + len(latencies), cpu_seconds() - cpu, peak_rss_mb())
    return Measurement(figures, cost)


async def _one_job(measured: MeasuredPlane, seen: Completions, name: str) -> float:
    start = time.perf_counter()
    await measured.client.write(a_job(name, completions=1, parallelism=1))
    return await seen.of(name) - start


async def _exit_to_complete(jobs: int) -> Measurement:
    latencies: list[float] = []
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        async with (
            a_plane("process", pods_end_with_server=True) as measured,
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
    return Measurement(_percentiles(latencies), cost)


def _end_of_writer(pipe: str) -> float:
    """Return when the only process that holds a named pipe open has ended."""
    with open(pipe, "rb") as held:
        held.read()
    return time.perf_counter()


def _percentiles(latencies: list[float]) -> dict[str, float]:
    milliseconds = [latency * 1e3 for latency in latencies]
    return {"p50, ms": percentile(milliseconds, 50), "p99, ms": percentile(milliseconds, 99)}
