"""`make kill-rounds`: repeated kills of the server in the middle of a Job of 50 real Pods.

Each Pod appends its UID to one file: a UID that occurs twice ran twice, one that is missing never
ran. After each round no process of its Pods may be left.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.e2e.serving import Server, end_supervisors

PODS = 50

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: round-{number}}}
spec:
  completions: {pods}
  parallelism: 10
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: busybox
        command: [sh, -c, 'echo $UID_OF_POD >> {folder}/begun; sleep 0.1; echo . >> {folder}/ended']
        env:
        - {{name: UID_OF_POD, valueFrom: {{fieldRef: {{fieldPath: metadata.uid}}}}}}
        - {{name: ONEJOB_ROUND, value: "{folder}"}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="killing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="onejob-kill-") as name:
        folder = Path(name)
        server = Server(folder / "state")
        server.data_dir.mkdir()
        server.start()
        try:
            for number in range(options.rounds):
                problems = play(server, folder / str(number), number, rng)
                failed += bool(problems)
                for problem in problems:
                    print(f"round {number}: {problem}", flush=True)
        finally:
            server.stop()
            end_supervisors(server.data_dir)
    print(f"{options.rounds - failed} passed, {failed} failed")
    return 1 if failed else 0


def play(server: Server, folder: Path, number: int, rng: random.Random) -> list[str]:
    folder.mkdir()
    manifest = JOB.format(number=number, pods=PODS, folder=folder)
    server.kubectl("create", "-f", "-", stdin=manifest)
    time.sleep(rng.random() * 0.6)
    server.kill()
    server.start()
    server.kubectl("wait", "--for=condition=complete", f"job/round-{number}", "--timeout=100s")
    status = json.loads(server.kubectl("get", "job", f"round-{number}", "-o", "json"))["status"]
    begun = (folder / "begun").read_text().split()
    problems = []
    if status.get("succeeded") != PODS or status.get("failed", 0):
        problems.append(f"counted {status}")
    twice = [uid for uid, times in Counter(begun).items() if times > 1]
    if twice:
        problems.append(f"ran twice: {twice}")
    if len(set(begun)) != PODS:
        problems.append(f"{len(set(begun))} Pods ran")
    if left := processes_of(folder):
        problems.append(f"left behind: {left}")
    server.kubectl("delete", "job", f"round-{number}", "--wait=false")
    return problems


def processes_of(folder: Path) -> list[int]:
    mark = f"ONEJOB_ROUND={folder}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


if __name__ == "__main__":
    sys.exit(main())
