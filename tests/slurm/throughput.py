"""Throughput of short tasks on one Slurm: `python -m tests.slurm.throughput --pods 1000`.

Runs the same number of `true` three ways, one after the other, on the same node of a cluster that
it starts: Pods of onejob in one allocation, tasks of HyperQueue in one allocation (`pip install
hyperqueue` into an environment of its own, given with --hq), and tasks of `sbatch --array`. Each
time includes the start of all programs. Those of onejob from the creation of the Job include the
submission of the allocation, those of HyperQueue from the submission of the tasks do not; its
client looks once per second.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.slurm.cluster import SlurmCluster, problem

_PATIENCE_SECONDS = 900.0

#: The cluster of the package has the server and the worker of the program `hq`.
_HQ = """
import sys, time
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

tasks, cores = map(int, sys.argv[1:])
with LocalCluster(worker_config=WorkerConfig(cores=cores)) as cluster:
    client, job = cluster.client(), Job()
    for _ in range(tasks):
        job.program(["true"], stdout=None, stderr=None)
    began = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    seconds = time.monotonic() - began
    print(f"of these, {seconds:.2f} s from the submission: {tasks / seconds:.1f} /s")
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="throughput", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--array", type=int, help="tasks of sbatch, which are slow")
    parser.add_argument("--hq", help="a Python with the package hyperqueue")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    if reason := problem():
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="onejob-slurm-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        cluster = SlurmCluster(place / "cluster", nodes=1, cpus=os.cpu_count() or 1)
        cluster.start()
        os.environ.update(cluster.environment)
        try:
            for turn in range(options.turns):
                folder = place / f"turn-{turn}"
                folder.mkdir()
                _measure("onejob", options.pods, partial(_onejob, folder, options.pods))
                if options.hq:
                    hq = partial(_hq, folder, options.hq, options.pods)
                    _measure("hyperqueue", options.pods, hq)
                tasks = min(options.array or options.pods, 1000)
                _measure("sbatch --array", tasks, partial(_array, folder, tasks))
        finally:
            cluster.stop()
    return 0


def _measure(name: str, tasks: int, work: Callable[[], None]) -> None:
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    print(f"{name:<15} {tasks} tasks {seconds:7.2f} s {tasks / seconds:8.1f} /s", flush=True)


def _onejob(folder: Path, pods: int) -> None:
    shown = _run(
        sys.executable, "-m", "onejob", "run", "--on", "slurm", "--data-dir", str(folder),
        "--max-nodes", "1", "--plain", "--name", "short", "--completions", str(pods),
        "--parallelism", "100", "--indexed", "--", "true",
    )  # fmt: skip
    (took,) = re.findall(r"short: Complete in ([0-9.]+)s", shown)
    rate = pods / float(took)
    print(f"  of these, {took} s from the creation of the Job: {rate:.1f} /s", flush=True)


def _array(folder: Path, tasks: int) -> None:
    script = folder / "array.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    _run("sbatch", f"--array=0-{tasks - 1}", "--output=/dev/null", str(script))
    _until_no_job()


def _hq(folder: Path, python: str, tasks: int) -> None:
    """Run tasks in an allocation, with server and worker of HyperQueue in one process."""
    program = folder / "hq.py"
    program.write_text(_HQ)
    worker = f"exec {python} {program} {tasks} {os.cpu_count()}"
    _run(
        "sbatch", f"--cpus-per-task={os.cpu_count()}", f"--output={folder}/hq.out",
        f"--wrap={worker}",
    )  # fmt: skip
    _until_no_job()
    print(f"  {(folder / 'hq.out').read_text().strip().splitlines()[-1]}", flush=True)


def _until_no_job() -> None:
    """Wait for all jobs; `sbatch --wait` looks only every ten seconds."""
    while _run("squeue", "--noheader", "--format=%i"):
        time.sleep(0.1)


def _run(*words: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
