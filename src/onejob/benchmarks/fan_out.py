"""Watch fan-out over HTTPS: cost of many watchers of a large Job, and of one slow watcher."""

import asyncio
import time

import msgspec

from onejob.benchmarks.load_client import LoadConnection
from onejob.benchmarks.plane import NAMESPACE, a_job, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.serving import Server, a_server
from onejob.benchmarks.usage import cpu_seconds_of, peak_rss_mb

_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_JOB = "followed"
#: Name of the last Pod, which is never scheduled: a watcher that received it has received all.
_END = "the-end"


def one_job(*, completions: int, parallelism: int, watchers: int, slow: int) -> Measurement:
    """Measure until the Job is Complete, and until each watcher has received all Pod changes.

    `slow` additional watchers hardly read.
    """
    return run_like_a_server(_one_job(completions, parallelism, watchers, slow))


async def _one_job(completions: int, parallelism: int, watchers: int, slow: int) -> Measurement:
    async with a_server("simulated") as server:
        client = await _connected(server)
        follower = await _connected(server)
        everything = f"{_PODS}?watch=1&resourceVersion={await _revision(client)}"
        complete = f"{_JOBS}?watch=1&resourceVersion={await _revision(client)}"
        cpu, start = cpu_seconds_of(server.pid), time.perf_counter()
        following = [asyncio.create_task(_follow(server, everything)) for _ in range(watchers)]
        dawdling = [asyncio.create_task(_read_slowly(server, everything)) for _ in range(slow)]
        job = a_job(_JOB, completions=completions, parallelism=parallelism)
        await _create(client, _JOBS, job.document)
        await follower.until(complete, b'"type":"Complete"')
        seconds = time.perf_counter() - start
        await _create(client, _PODS, msgspec.json.encode(_last_pod()))
        seen = [await one for one in following]
        cpu = cpu_seconds_of(server.pid) - cpu
        for one in dawdling:
            one.cancel()
        await asyncio.gather(*dawdling, return_exceptions=True)
        cost = Cost(completions, cpu, peak_rss_mb(server.pid))
        for connection in (client, follower):
            await connection.close()
    figures = {"Complete after, s": seconds}
    if seen:
        figures["last watcher has seen all after, s"] = max(seen) - start
    return Measurement({**figures, "CPU of the server, s": cpu}, cost)


async def _follow(server: Server, target: str) -> float:
    """Watch until the last Pod was received; return that time."""
    connection = await _connected(server)
    await connection.until(target, b'"name":"%b"' % _END.encode())
    at = time.perf_counter()
    await connection.close()
    return at


async def _read_slowly(server: Server, target: str) -> None:
    """Watch without reading, as a slow client."""
    connection = await _connected(server)
    try:
        await connection.hardly_read(target)
    finally:
        await connection.close()


async def _connected(server: Server) -> LoadConnection:
    connection = LoadConnection(server.address)
    await connection.open()
    return connection


async def _revision(client: LoadConnection) -> str:
    listed = msgspec.json.decode((await client.ask("GET", f"{_PODS}?limit=1")).body)
    revision: str = listed["metadata"]["resourceVersion"]
    return revision


async def _create(client: LoadConnection, target: str, document: bytes) -> None:
    reply = await client.ask("POST", target, document)
    if reply.code != 201:
        raise RuntimeError(f"POST {target}: {reply.code} {reply.body.decode()}")


def _last_pod() -> object:
    containers = [{"name": "main", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _END},
        "spec": {"schedulerName": "nobody", "containers": containers},
    }
