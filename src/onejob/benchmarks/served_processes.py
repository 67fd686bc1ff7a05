"""Process throughput of `onejob serve`, as the current user and as an unprivileged one.

As root, each container has a PID namespace of its own; for other users it has none.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from onejob.benchmarks.load_client import LoadConnection
from onejob.benchmarks.plane import NAMESPACE, a_job, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.serving import a_server
from onejob.benchmarks.usage import cpu_seconds_of, descendants, peak_rss_mb

_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
#: The user `nobody`.
_UNPRIVILEGED = 65534


def by_server(*, processes: int, at_once: int) -> Measurement:
    """Measure a Job of `onejob serve`, from its creation until a watch shows it as complete."""
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        return run_like_a_server(_by_server(processes, at_once, Path(folder), ()))


def by_unprivileged_server(*, processes: int, at_once: int) -> Measurement:
    """Measure the same with a server that does not run as root."""
    if os.geteuid() != 0:
        return Measurement(skipped="not possible: every server runs as this user")
    if shutil.which("setpriv") is None:
        return Measurement(skipped="not installed: setpriv")
    user = str(_UNPRIVILEGED)
    before = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    if subprocess.run([*before, "test", "-x", sys.executable], check=False).returncode:
        return Measurement(skipped=f"not possible: user {user} has no access to {sys.executable}")
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        os.chown(folder, _UNPRIVILEGED, _UNPRIVILEGED)
        return run_like_a_server(_by_server(processes, at_once, Path(folder), before))


async def _by_server(
    processes: int, at_once: int, folder: Path, before: Sequence[str]
) -> Measurement:
    async with a_server(folder=folder, before=before) as server:
        client, follower = LoadConnection(server.address), LoadConnection(server.address)
        await client.open()
        await follower.open()
        cpu, start = _cpu_seconds_of_family(server.pid), time.perf_counter()
        job = a_job("many", completions=processes, parallelism=at_once)
        reply = await client.ask("POST", _JOBS, job.document)
        assert reply.code == 201, f"the Job was answered with {reply.code}"
        await follower.until(f"{_JOBS}?watch=1", b'"type":"Complete"')
        seconds = time.perf_counter() - start
        cpu = _cpu_seconds_of_family(server.pid) - cpu
        cost = Cost(processes, cpu, peak_rss_mb(server.pid))
        for connection in (client, follower):
            await connection.close()
    return Measurement({"seconds": seconds, "processes/s": processes / seconds}, cost)


def _cpu_seconds_of_family(pid: int) -> float:
    """Return the CPU time of a server, its supervisor, and all processes that they reaped."""
    total = cpu_seconds_of(pid)
    for below in list(descendants(pid)):
        try:
            total += cpu_seconds_of(below)
        except FileNotFoundError:
            # It has just ended, and is counted by its parent.
            continue
    return total
