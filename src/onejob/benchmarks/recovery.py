"""A server that was killed while thousands of Pods were live, and the time until it works on."""

import asyncio
import multiprocessing
import os
import signal
import tempfile
import time
from contextlib import aclosing
from multiprocessing.connection import Connection
from pathlib import Path

from onejob.benchmarks.plane import a_job, a_plane, completions, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb
from onejob.client.base import Client, Selection
from onejob.objects.meta import PODS, Key

#: Longer than any measurement.
_LIVE_SECONDS = 86_400.0


def restart(*, pods: int) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        _live_and_be_killed(Path(folder), pods)
        return run_like_a_server(_start_again(Path(folder), pods))


def _live_and_be_killed(folder: Path, pods: int) -> None:
    """In a process of its own, whose memory is not ours to account for."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_live, args=(folder, pods, theirs), daemon=True)
    process.start()
    theirs.close()
    ours.recv()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _live(folder: Path, pods: int, ready: Connection) -> None:
    async def live() -> None:
        async with a_plane(folder=folder) as measured:
            await measured.client.write(
                a_job("giant", completions=pods, parallelism=pods, runs_seconds=_LIVE_SECONDS)
            )
            await _all_running(measured.client, pods)
            ready.send("all are live")
            await asyncio.Event().wait()

    run_like_a_server(live())


async def _all_running(client: Client, pods: int) -> None:
    running: set[Key] = set()
    async with aclosing(client.watch(Selection(PODS), after=1)) as batches:
        async for batch in batches:
            running.update(event.key for event in batch if b'"phase":"Running"' in event.document)
            if len(running) == pods:
                return


async def _start_again(folder: Path, pods: int) -> Measurement:
    cpu, start = cpu_seconds(), time.perf_counter()
    async with a_plane(folder=folder) as measured, completions(measured) as seen:
        started = time.perf_counter()
        await measured.client.write(a_job("next", completions=1, parallelism=1))
        done = await seen.of("next")
        cost = Cost(pods, cpu_seconds() - cpu, peak_rss_mb())
    return Measurement(
        {"started after, s": started - start, "next Job complete after, s": done - start}, cost
    )
