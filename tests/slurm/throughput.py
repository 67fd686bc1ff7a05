"""Throughput of short tasks on one Slurm: `python -m tests.slurm.throughput --pods 1000`.

Runs the same number of `true` three ways, one after the other, on the same node of a cluster that
it starts: Pods of onejob in one allocation, tasks of `sbatch --array`, and tasks of HyperQueue in
one allocation if its program is given with --hq. Each time includes the submission; those of onejob
and HyperQueue include that of the allocation, and onejob's the start of its server.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.slurm.cluster import SlurmCluster, problem

_PATIENCE_SECONDS = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="throughput", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--array", type=int, help="tasks of sbatch, which are slow")
    parser.add_argument("--hq", help="program of HyperQueue")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    if reason := problem():
        print(reason, file=sys.stderr)
        return 1
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
    _run(
        sys.executable, "-m", "onejob", "run", "--on", "slurm", "--data-dir", str(folder),
        "--max-nodes", "1", "--quiet", "--completions", str(pods), "--parallelism", "100",
        "--indexed", "--", "true",
    )  # fmt: skip


def _array(folder: Path, tasks: int) -> None:
    script = folder / "array.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    _run("sbatch", "--wait", f"--array=0-{tasks - 1}", "--output=/dev/null", str(script))


def _hq(folder: Path, program: str, tasks: int) -> None:
    """Run tasks with a server here and a worker in an allocation."""
    state = folder / "hq"
    hq = [program, "--server-dir", str(state)]
    with subprocess.Popen([*hq, "server", "start"], stdout=subprocess.DEVNULL) as server:
        try:
            while not (state / "hq-current").exists():
                time.sleep(0.01)
            worker = f"exec {program} --server-dir {state} worker start"
            _run("sbatch", f"--cpus-per-task={os.cpu_count()}", "--output=/dev/null",
                 f"--wrap={worker}")  # fmt: skip
            _run(*hq, "submit", "--wait", "--stdout=none", "--stderr=none",
                 f"--array=0-{tasks - 1}", "true")  # fmt: skip
            _run(*hq, "server", "stop")
        finally:
            server.kill()
    _run("scancel", "--user=root")
    while _run("squeue", "--noheader"):
        time.sleep(0.2)


def _run(*words: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
