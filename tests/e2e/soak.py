"""Soak test, `make soak`: hours of churn with faults on one server of real processes.

Memory, descriptors and disk must not grow. Each round creates Jobs that end, fail, are deleted
while they run, and are deleted by their TTL. A life of the server is many rounds, then it is
killed, now and then its supervisor as well. Growth is checked within a life for memory and
descriptors, and between lives for the disk.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.ledger import kill_supervisor
from tests.e2e.serving import Server, end_supervisors

#: Maximum ratio of the last third of a life to the one before it.
_GROWTH = 1.10
_SLACK_BYTES = 4 << 20
_SLACK_DESCRIPTORS = 8
#: Maximum ratio of disk usage after the last life to that after the second.
_DISK_GROWTH = 1.25
_DISK_SLACK_BYTES = 8 << 20

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: soak-{number}-{kind}}}
spec:
  completions: {completions}
  parallelism: 5
  backoffLimit: 2
  ttlSecondsAfterFinished: 2
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {{name: main, image: busybox, command: [sh, -c, '{script}']}}
"""
SCRIPTS = {"ends": "echo done", "fails": "exit 3", "deleted": "sleep 30"}


@dataclass(frozen=True)
class Sample:
    """Resources of the server at the end of a round."""

    memory_bytes: int
    descriptors: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=480, help="in all (default 480)")
    parser.add_argument("--life", type=float, default=40, help="minutes of a life (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    problems: list[str] = []
    disk: list[int] = []
    give_up = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="onejob-soak-") as name:
        server = Server(Path(name) / "state")
        server.data_dir.mkdir()
        number = 0
        try:
            while time.monotonic() < give_up:
                samples: list[Sample] = []
                server.start()
                until = min(give_up, time.monotonic() + options.life * 60)
                while time.monotonic() < until:
                    play(server, number, rng)
                    samples.append(measure(server))
                    number += 1
                problems += judge_life(samples)
                problems += left_over(server)
                disk.append(size_of(server.data_dir))
                print(describe(len(disk), samples, disk[-1]), flush=True)
                server.kill()
                if rng.random() < 0.3:
                    kill_supervisor(server.data_dir)
        finally:
            server.stop()
            end_supervisors(server.data_dir)
    problems += judge_disk(disk)
    for problem in problems:
        print(problem)
    print(f"{number} rounds in {len(disk)} lives, {len(problems)} problems")
    return 1 if problems else 0


def play(server: Server, number: int, rng: random.Random) -> None:
    for kind, script in SCRIPTS.items():
        completions = rng.randint(1, 10)
        job = JOB.format(number=number, kind=kind, completions=completions, script=script)
        server.kubectl("create", "-f", "-", stdin=job)
    server.kubectl("delete", "job", f"soak-{number}-deleted", "--wait=true")
    for kind, condition in (("ends", "complete"), ("fails", "failed")):
        # Its TTL may have deleted it before the wait.
        name = f"job/soak-{number}-{kind}"
        if server.kubectl("get", name, "--ignore-not-found"):
            awaited = ["wait", f"--for=condition={condition}", name, "--timeout=60s"]
            try:
                server.kubectl(*awaited)
            except AssertionError as error:
                if "NotFound" not in str(error):
                    raise


def measure(server: Server) -> Sample:
    assert server.process is not None
    place = Path(f"/proc/{server.process.pid}")
    pages = int((place / "statm").read_text().split()[1])
    return Sample(pages * os.sysconf("SC_PAGE_SIZE"), len(list((place / "fd").iterdir())))


def judge_life(samples: Sequence[Sample]) -> list[str]:
    """Compare the last third of a life with the second: the first fills caches."""
    third = len(samples) // 3
    if third < 3:
        return []
    middle, last = samples[third : 2 * third], samples[-third:]
    problems = []
    before = statistics.median(one.memory_bytes for one in middle)
    after = statistics.median(one.memory_bytes for one in last)
    if after > before * _GROWTH + _SLACK_BYTES:
        problems.append(f"memory grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB in one life")
    before = statistics.median(one.descriptors for one in middle)
    after = statistics.median(one.descriptors for one in last)
    if after > before + _SLACK_DESCRIPTORS:
        problems.append(f"descriptors grew from {before:.0f} to {after:.0f} in one life")
    return problems


def judge_disk(sizes: Sequence[int]) -> list[str]:
    """Compare the last life with the second.

    The first leaves permanent data, such as keys and pages.
    """
    if len(sizes) < 3 or sizes[-1] <= sizes[1] * _DISK_GROWTH + _DISK_SLACK_BYTES:
        return []
    return [f"the data dir grew from {sizes[1] / 1e6:.1f} to {sizes[-1] / 1e6:.1f} MB"]


def left_over(server: Server) -> list[str]:
    """Wait until Jobs and Pods are deleted by themselves; return the remaining ones."""
    give_up = time.monotonic() + 60
    while True:
        found = json.loads(server.kubectl("get", "jobs,pods", "-o", "json"))["items"]
        if not found or time.monotonic() > give_up:
            return [f"{one['kind']} {one['metadata']['name']} is left over" for one in found]
        time.sleep(1)


def size_of(folder: Path) -> int:
    sizes = (path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
    return sum(sizes)


def describe(life: int, samples: Sequence[Sample], disk: int) -> str:
    first, last = samples[0], samples[-1]
    return (
        f"life {life}: {len(samples)} rounds, memory {first.memory_bytes / 1e6:.0f} to "
        f"{last.memory_bytes / 1e6:.0f} MB, descriptors {first.descriptors} to "
        f"{last.descriptors}, disk {disk / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
