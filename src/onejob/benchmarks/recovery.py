"""Crash recovery: time until a killed server resumes work.

Measured with thousands of live Pods, and with a great many finished objects.
"""

import asyncio
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from onejob.benchmarks import load_client
from onejob.benchmarks.backlog import fill
from onejob.benchmarks.plane import NAMESPACE, a_job, a_plane, completions, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.serving import a_server
from onejob.benchmarks.usage import cpu_seconds, cpu_seconds_of, peak_rss_mb
from onejob.client.base import Client, Selection
from onejob.clock import SystemClock
from onejob.objects.meta import PODS, Key

_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
#: Accept header of kubectl.
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_PAGE = 500
_LOOK_SECONDS = 0.05
#: Longer than any measurement.
_LIVE_SECONDS = 86_400.0


def restart(*, pods: int) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        _be_killed(_run_until_killed, Path(folder), pods)
        return run_like_a_server(_start_again(Path(folder), pods))


def among_finished(*, jobs: int, pods: int) -> Measurement:
    """Measure `onejob serve` on the state of a killed server with many finished Jobs and Pods."""
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        _be_killed(_finish, Path(folder) / "server", jobs, pods)
        return run_like_a_server(_serve_again(Path(folder), jobs))


def _be_killed(live: Callable[..., None], *what: object) -> None:
    """Run `live` in its own process, whose memory is not counted, and kill it once it is ready."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=live, args=(*what, theirs), daemon=True)
    process.start()
    theirs.close()
    ours.recv()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _run_until_killed(folder: Path, pods: int, ready: Connection) -> None:
    async def live() -> None:
        async with a_plane(folder=folder) as measured:
            await measured.client.write(
                a_job("giant", completions=pods, parallelism=pods, runs_seconds=_LIVE_SECONDS)
            )
            await _all_running(measured.client, pods)
            ready.send("all are live")
            await asyncio.Event().wait()

    run_like_a_server(live())


def _finish(folder: Path, jobs: int, pods: int, ready: Connection) -> None:
    async def live() -> None:
        async with a_plane(folder=folder) as measured:
            await fill(measured.client, SystemClock(), jobs, pods)
            ready.send("all have finished")
            await asyncio.Event().wait()

    folder.mkdir(mode=0o700)
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


async def _serve_again(folder: Path, jobs: int) -> Measurement:
    start = time.perf_counter()
    async with a_server("simulated", folder) as server:
        started = time.perf_counter() - start
        cpu = cpu_seconds_of(server.pid)
        client = load_client.LoadConnection(server.address)
        await client.open()
        running = asyncio.create_task(_run_a_job(server.address))
        rows, seconds = await _list(client, _TABLE, limit=_PAGE)
        assert jobs <= rows <= jobs + 1, f"{rows} Jobs were listed, there were {jobs}"
        listed_cpu = cpu_seconds_of(server.pid)
        done = await running - start
        whole, whole_seconds = await _list(client, "application/json", limit=0)
        assert whole == jobs + 1
        await client.close()
        peak = peak_rss_mb(server.pid)
    return Measurement(
        {
            "started after, s": started,
            "CPU until then, s": cpu,
            "kubectl get jobs, s": seconds,
            "CPU until it has listed, s": listed_cpu,
            "next Job complete after, s": done,
            "one list of all Jobs, s": whole_seconds,
            "peak RSS, MB": peak,
        }
    )


async def _run_a_job(address: load_client.Address) -> float:
    """Create a Job and return when it is Complete.

    Runs concurrently with other requests; the controllers may not have started yet.
    """
    client = load_client.LoadConnection(address)
    await client.open()
    job = a_job("next", completions=1, parallelism=1)
    reply = await client.ask("POST", _JOBS, job.document)
    assert reply.code == 201, reply.body.decode()
    while b'"type":"Complete"' not in (await client.ask("GET", f"{_JOBS}/next")).body:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)
    done = time.perf_counter()
    await client.close()
    return done


async def _list(client: load_client.LoadConnection, accept: str, limit: int) -> tuple[int, float]:
    """List all Jobs in pages, as kubectl does; return their number and the duration in seconds."""
    start, found, token = time.perf_counter(), 0, ""
    while True:
        target = f"{_JOBS}?limit={limit}&continue={token}"
        reply = await client.ask("GET", target, accept=accept)
        assert reply.code == 200, reply.body.decode()
        page = msgspec.json.decode(reply.body, type=_Page)
        found += len(page.items) + len(page.rows)
        token = page.metadata.continue_
        if not token:
            return found, time.perf_counter() - start


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []
    rows: list[msgspec.Raw] = []
