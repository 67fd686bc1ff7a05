"""Process throughput: thousands of `/bin/true`, by onejob and by dedicated process launchers."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import chdir
from importlib.util import find_spec

from onejob.benchmarks.counting import since
from onejob.benchmarks.plane import a_job, a_plane, completions, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.usage import cpu_seconds, cpu_seconds_of_family, peak_rss_mb

_TRUE = "/bin/true"


def by_onejob(*, processes: int, at_once: int) -> Measurement:
    """Measure the Job alone, then the whole `onejob run` command."""
    seconds, cost = run_like_a_server(_by_onejob(processes, at_once))
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        whole = _timed([
            *onejob_command(), "run", "--quiet", "--data-dir", folder,
            "--completions", str(processes), "--parallelism", str(at_once), "--", _TRUE,
        ])  # fmt: skip
    figures = {"seconds": seconds, "processes/s": processes / seconds}
    return Measurement({**figures, "whole command, seconds": whole}, cost)


def one_job(*, completions: int, parallelism: int) -> Measurement:
    """Measure the same as `control_plane:one_job`, with Pods that are real processes."""
    seconds, cost = run_like_a_server(_by_onejob(completions, parallelism))
    return Measurement({"seconds": seconds, "pods/s": completions / seconds}, cost)


async def _by_onejob(processes: int, at_once: int) -> tuple[float, Cost]:
    async with (
        a_plane("process", pods_end_with_server=True) as measured,
        completions(measured) as seen,
    ):
        before, cpu, start = measured.operations(), cpu_seconds_of_family(), time.perf_counter()
        await measured.client.write(
            a_job("many", completions=processes, parallelism=at_once, command=(_TRUE,))
        )
        seconds = await seen.of("many") - start
        cpu = cpu_seconds_of_family() - cpu
        counts = since(before, measured.operations())
    return seconds, Cost(processes, cpu, peak_rss_mb(), counts)


def by_xargs(*, processes: int, at_once: int) -> Measurement:
    return _by_program("xargs", [f"-P{at_once}", "-n1", _TRUE], processes)


def by_gnu_parallel(*, processes: int, at_once: int) -> Measurement:
    return _by_program("parallel", [f"-j{at_once}", _TRUE], processes)


def by_hyperqueue(*, processes: int, at_once: int) -> Measurement:
    if find_spec("hyperqueue") is None:
        return Measurement(skipped="not installed (pip install hyperqueue)")
    # mypy cannot resolve the package: it is a peer, not a dependency.
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    # HyperQueue writes two files per process into its working directory.
    with tempfile.TemporaryDirectory() as folder, chdir(folder), LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=at_once))
        client = cluster.client()
        job = Job()
        for _ in range(processes):
            job.program([_TRUE])
        start = time.perf_counter()
        client.wait_for_jobs([client.submit(job)])
        return _rate(processes, time.perf_counter() - start)


def by_a_spawn_loop(*, processes: int, at_once: int) -> Measurement:
    """Measure only spawning and waiting: the limit."""
    cpu = cpu_seconds(children=True)
    start = time.perf_counter()
    running = 0
    for _ in range(processes):
        if running == at_once:
            os.wait()
            running -= 1
        os.posix_spawn(_TRUE, [_TRUE], {})
        running += 1
    while running:
        os.wait()
        running -= 1
    seconds = time.perf_counter() - start
    cost = Cost(processes, cpu_seconds(children=True) - cpu, peak_rss_mb())
    return Measurement(_rate(processes, seconds).figures, cost)


def onejob_command() -> list[str]:
    return [sys.executable, "-m", "onejob"]


def _by_program(name: str, arguments: Sequence[str], processes: int) -> Measurement:
    found = shutil.which(name)
    if found is None:
        return Measurement(skipped="not installed")
    lines = "".join(f"{number}\n" for number in range(processes))
    cpu = cpu_seconds(children=True)
    figures = _rate(processes, _timed([found, *arguments], lines)).figures
    cost = Cost(processes, cpu_seconds(children=True) - cpu, peak_rss_mb())
    return Measurement(figures, cost)


def _timed(command: Sequence[str], lines: str = "") -> float:
    start = time.perf_counter()
    subprocess.run(command, input=lines, text=True, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _rate(processes: int, seconds: float) -> Measurement:
    return Measurement({"seconds": seconds, "processes/s": processes / seconds})
