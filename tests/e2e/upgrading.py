"""Upgrade rounds, `make upgrade-rounds FROM=REVISION`: kill the old version, go on with this one.

The earlier version is killed in the middle of Jobs of real processes; then this one is killed, too,
and the earlier one must refuse to start. Each process records its start and end in a ledger outside
of onejob. The final counters must match it.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from onejob.benchmarks.comparing.trees import NoSuchTree, Tree, both_trees
from tests.e2e.killing import processes_of
from tests.e2e.serving import Server, end_supervisors

#: Finished before the first kill, running during it, and one with a single failing index: with more
#: of them the back-off would take minutes.
COMPLETIONS = {"done": 3, "running": 16, "failing": 6}
FAILURES = {"done": 0, "running": 0, "failing": 1}
WORK = {
    "done": "true",
    "running": "sleep 2",
    "failing": "sleep 0.5; test $JOB_COMPLETION_INDEX != 2 || test -e {folder}/once || "
    "{{ touch {folder}/once; echo failed >> {folder}/failing.ended; exit 3; }}",
}

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  completions: {completions}
  parallelism: 5
  backoffLimit: 100
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: busybox
        command:
        - sh
        - -c
        - 'echo $UID_OF_POD >> {folder}/{name}.begun; {work}; echo ok >> {folder}/{name}.ended'
        env:
        - {{name: UID_OF_POD, valueFrom: {{fieldRef: {{fieldPath: metadata.uid}}}}}}
        - {{name: ONEJOB_ROUND, value: "{folder}"}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="upgrading", description=__doc__)
    parser.add_argument("--from", dest="revision", required=True, help="of git")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    failed = 0
    try:
        with both_trees(options.revision) as (earlier, this):
            for number in range(options.rounds):
                with tempfile.TemporaryDirectory(prefix="onejob-upgrade-") as folder:
                    problems = play(Path(folder), earlier, this, rng)
                failed += bool(problems)
                for problem in problems:
                    print(f"round {number}: {problem}", flush=True)
    except NoSuchTree as error:
        sys.exit(str(error))
    print(f"{options.rounds - failed} passed, {failed} failed")
    return 1 if failed else 0


def play(folder: Path, earlier: Tree, this: Tree, rng: random.Random) -> list[str]:
    state = folder / "state"
    state.mkdir(mode=0o700)
    old, new = (
        Server(state, ("--capacity", "cpu=100,pods=20"), environment=dict(tree.environment()))
        for tree in (earlier, this)
    )
    problems: list[str] = []
    try:
        old.start()
        create(old, folder, "done")
        wait(old, "done")
        before = status(old, "done")
        for name in ("running", "failing"):
            create(old, folder, name)
        time.sleep(0.5 + 2 * rng.random())
        old.kill()
        new.start()
        time.sleep(2 * rng.random())
        new.kill()
        if schema(earlier) < schema(this):
            problems += refusal(old)
        new.start()
        if status(new, "done") != before:
            problems.append(f"done is {status(new, 'done')}, and was {before}")
        for name in COMPLETIONS:
            wait(new, name)
            problems += compare(new, folder, name)
        if left := processes_of(folder):
            problems.append(f"left behind: {left}")
        if new.stop():
            problems.append(f"it did not stop orderly:\n{new.log}")
    finally:
        for server in (old, new):
            if server.process is not None and server.process.poll() is None:
                server.kill()
        end_supervisors(state)
    return problems


def create(server: Server, folder: Path, name: str) -> None:
    work = WORK[name].format(folder=folder)
    manifest = JOB.format(name=name, completions=COMPLETIONS[name], folder=folder, work=work)
    server.kubectl("create", "-f", "-", stdin=manifest)


def wait(server: Server, name: str) -> None:
    server.kubectl("wait", "--for=condition=complete", f"job/{name}", "--timeout=100s")


def status(server: Server, name: str) -> dict[str, object]:
    job: dict[str, dict[str, object]] = json.loads(server.kubectl("get", "job", name, "-o", "json"))
    return job["status"]


def compare(server: Server, folder: Path, name: str) -> list[str]:
    """Compare the counters with the ledger; return the differences."""
    counted = status(server, name)
    succeeded, failed = counted.get("succeeded", 0), counted.get("failed", 0)
    begun = (folder / f"{name}.begun").read_text().split()
    ended = Counter((folder / f"{name}.ended").read_text().split())
    problems = []
    if (succeeded, failed) != (COMPLETIONS[name], FAILURES[name]):
        problems.append(f"{name}: counted {counted}")
    if (ended["ok"], ended["failed"]) != (COMPLETIONS[name], FAILURES[name]):
        problems.append(f"{name}: {dict(ended)} ended")
    if len(begun) != COMPLETIONS[name] + FAILURES[name] or len(set(begun)) != len(begun):
        problems.append(f"{name}: {len(begun)} began, of {len(set(begun))} Pods")
    return problems


def schema(tree: Tree) -> int:
    text = "from onejob.store.migrations import STEPS; print(len(STEPS))"
    command = [sys.executable, "-c", text]
    return int(subprocess.check_output(command, env=dict(tree.environment()), text=True))


def refusal(server: Server) -> list[str]:
    """Check that an earlier version refuses in one line and changes nothing; return problems."""
    database = server.data_dir / "server" / "onejob.db"
    before = database.read_bytes(), database.with_name("onejob.db-wal").read_bytes()
    done = subprocess.run(
        [*server.command, "serve", "--data-dir", str(server.data_dir), "--listen", "127.0.0.1:0"],
        env=server.environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stderr.strip()
    problems = []
    if not done.returncode or "newer onejob" not in said or "Traceback" in said:
        problems.append(f"the earlier version ended with {done.returncode} and said: {said}")
    if before != (database.read_bytes(), database.with_name("onejob.db-wal").read_bytes()):
        problems.append("the earlier version changed the database")
    print(f"refused: {said}", flush=True)
    return problems


if __name__ == "__main__":
    sys.exit(main())
