"""Rounds of kills on a real Slurm: `python -m tests.slurm.rounds --rounds 100`.

A real `onejob serve --runtime slurm` runs on a cluster of three nodes. Each round runs an Indexed
Job while some of server, pilot, supervisor, batch script, slurmd and slurmctld are killed with
SIGKILL, and the daemons started again. The processes of the Job keep a ledger: begin, end with
code, and `overlap` if another process of the same index is alive, which holds a lock as long as any
of its processes does. Then the ledger is compared with the API:

- overlap: an index ran twice at the same time;
- lost: a process ended by itself, and its Pod is not counted with that exit code;
- doubled: a Pod was begun twice, or counted without having run;
- counts: the Job's counters differ from the Pods'.

Pods of killed pilots, supervisors and scripts may be disrupted, which these Jobs ignore.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.ledger import exit_code, is_disrupted, wait_for_end, wait_for_entries
from tests.e2e.serving import Server
from tests.slurm.cluster import SlurmCluster, problem
from tests.slurm.support import pilots, scripts, supervisors

_PATIENCE_SECONDS = 300.0
VICTIMS = ("server", "pilot", "supervisor", "both", "script", "slurmd", "slurmctld")

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: round-{number}}}
spec:
  completions: {pods}
  parallelism: {parallelism}
  completionMode: Indexed
  backoffLimitPerIndex: 100
  podFailurePolicy:
    rules:
    - action: Ignore
      onPodConditions: [{{type: DisruptionTarget}}]
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: example
        command: [sh, -c, '. {folder}/work.sh']
        resources: {{requests: {{cpu: 400m}}}}
        env:
        - {{name: UID_OF_POD, valueFrom: {{fieldRef: {{fieldPath: metadata.uid}}}}}}
        - {{name: LEDGER, value: "{folder}"}}
"""

#: Every sixth index fails the first time it ends, if the folder `failing` exists.
WORK = """
exec 9>> $LEDGER/lock-$JOB_COMPLETION_INDEX
flock --nonblock 9 || echo "overlap $UID_OF_POD $JOB_COMPLETION_INDEX" >> $LEDGER/ledger
echo "begin $UID_OF_POD $JOB_COMPLETION_INDEX" >> $LEDGER/ledger
sleep $((JOB_COMPLETION_INDEX % 3)).$((JOB_COMPLETION_INDEX * 37 % 9 + 1))
code=0
first=$LEDGER/failing/$JOB_COMPLETION_INDEX
if [ $((JOB_COMPLETION_INDEX % 6)) = 2 ] && mkdir $first 2> /dev/null; then
  code=3
fi
echo "end $UID_OF_POD $code" >> $LEDGER/ledger
exit $code
"""


@dataclass
class Tally:
    rounds: int = 0
    begun: int = 0
    ended: int = 0
    disrupted: int = 0
    #: Disrupted in rounds without a kill that does so: Slurm may end an allocation late after the
    #: death of a slurmd.
    late: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass
class Scene:
    cluster: SlurmCluster
    server: Server
    folder: Path
    rng: random.Random
    tally: Tally
    pods: int
    parallelism: int
    keep: Path | None = None

    @property
    def allocations(self) -> list[Path]:
        folder = self.server.data_dir / "server" / "slurm"
        return [each for each in folder.iterdir() if pilots(each)] if folder.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods", type=int, default=16)
    parser.add_argument("--only", action="append", choices=VICTIMS, help="kill these, in order")
    parser.add_argument("--keep", type=Path, help="copy the state of rounds with problems here")
    options = parser.parse_args()
    if reason := problem():
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    tally = play_rounds(
        options.rounds,
        seed=options.seed,
        pods=options.pods,
        only=options.only or (),
        keep=options.keep,
    )
    return 1 if tally.problems else 0


def play_rounds(
    rounds: int, *, seed: int, pods: int, only: Sequence[str] = (), keep: Path | None = None
) -> Tally:
    """Play rounds on a cluster of their own; print a line for each, and the totals."""
    tally, rng = Tally(), random.Random(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onejob-slurm-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        cluster = SlurmCluster(place / "cluster")
        state = place / "state"
        state.mkdir(mode=0o700)
        options = ("--runtime", "slurm", "--max-nodes", "3", "--slurm", "query=1s",
                   "--slurm", "lost=6s", "--slurm", "idle=20s")  # fmt: skip
        server = Server(state, options, environment=cluster.environment, patience_seconds=120)
        scene = Scene(cluster, server, place, rng, tally, pods, pods // 2, keep)
        try:
            cluster.start()
            server.start()
            for number in range(rounds):
                chosen = list(only) if only else _choose(rng, number)
                before = len(tally.problems)
                _play(scene, number, chosen)
                print(_progress(tally, number, chosen, time.monotonic() - began), flush=True)
                for each in tally.problems[before:]:
                    print(f"round {number}: {each}", flush=True)
        finally:
            if server.process is not None and server.process.poll() is None:
                server.stop()
            cluster.stop()
    print(_progress(tally, rounds - 1, sorted(tally.kills), time.monotonic() - began))
    return tally


def _choose(rng: random.Random, number: int) -> list[str]:
    """Return each victim in turn, with up to two others."""
    first = VICTIMS[number % len(VICTIMS)]
    others = rng.sample([each for each in VICTIMS if each != first], rng.randrange(3))
    return [first, *others]


def _play(scene: Scene, number: int, chosen: list[str]) -> None:
    folder, rng = scene.folder / f"round-{number}", scene.rng
    # Slurm drains a node on which a restarted slurmctld has started a running job again.
    scene.cluster.run("scontrol", "update", "NodeName=ALL", "State=RESUME")
    folder.mkdir()
    (folder / "ledger").touch()
    if number % 3 == 0:
        # Retries wait ten seconds.
        (folder / "failing").mkdir()
    (folder / "work.sh").write_text(WORK)
    manifest = JOB.format(
        number=number, pods=scene.pods, parallelism=scene.parallelism, folder=folder
    )
    scene.server.kubectl("create", "-f", "-", stdin=manifest)
    wait_for_entries(folder / "ledger", rng.randrange(1, scene.pods))
    disruptive = False
    for victim in chosen:
        time.sleep(rng.random())
        disruptive = _kill(scene, victim) or disruptive
    _compare(scene, number, folder, chosen, disruptive=disruptive)
    scene.tally.rounds += 1


def _kill(scene: Scene, victim: str) -> bool:
    """Kill a victim, and start what is a daemon again; return whether Pods may be disrupted."""
    scene.tally.kills[victim] += 1
    cluster, rng = scene.cluster, scene.rng
    if victim == "server":
        scene.server.kill()
        time.sleep(rng.random())
        scene.server.start()
        return False
    if victim == "slurmctld":
        cluster.kill("slurmctld")
        time.sleep(rng.random() * 2)
        cluster.start_controller()
        return False
    if victim == "slurmd":
        node = rng.choice(cluster.nodes)
        cluster.kill(f"slurmd-{node}")
        time.sleep(rng.random() * 2)
        cluster.start_node(node)
        # Slurm may fence a node that has registered again.
        return True
    for allocation in rng.sample(scene.allocations, min(len(scene.allocations), 1)):
        victims = {"pilot": pilots, "supervisor": supervisors, "script": scripts}
        if victim == "both":
            pids = [*supervisors(allocation), *pilots(allocation)]
        else:
            pids = victims[victim](allocation)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return True


def _compare(
    scene: Scene, number: int, folder: Path, chosen: list[str], *, disruptive: bool
) -> None:
    tally = scene.tally
    job = wait_for_end(scene.server, number)
    if job is None:
        status = json.loads(scene.server.kubectl("get", "job", f"round-{number}", "-o", "json"))
        tally.problems.append(f"stuck: {chosen}: {status['status']}")
        return
    label = f"batch.kubernetes.io/job-name=round-{number}"
    listed = scene.server.kubectl("get", "pods", "-l", label, "-o", "json")
    pods = {pod["metadata"]["uid"]: pod for pod in json.loads(listed)["items"]}
    entries = [line.split() for line in (folder / "ledger").read_text().splitlines()]
    problems = find_problems(scene.pods, job, pods, entries)
    tally.late += 0 if disruptive else sum(map(is_disrupted, pods.values()))
    tally.begun += sum(entry[0] == "begin" for entry in entries)
    tally.ended += sum(entry[0] == "end" for entry in entries)
    tally.disrupted += sum(map(is_disrupted, pods.values()))
    tally.problems += [f"{each} ({', '.join(chosen)})" for each in problems]
    if problems and scene.keep is not None:
        shutil.copytree(scene.server.data_dir / "server" / "slurm", scene.keep / f"round-{number}")
        shutil.copy(folder / "ledger", scene.keep / f"round-{number}")
    scene.server.kubectl("delete", "job", f"round-{number}", "--wait=false")


def find_problems(
    wanted: int,
    job: dict[str, Any],
    pods: dict[str, dict[str, Any]],
    entries: list[list[str]],
) -> list[str]:
    """Return the contradictions between the ledger and the API."""
    begun = Counter(entry[1] for entry in entries if entry[0] == "begin")
    ended = {entry[1]: int(entry[2]) for entry in entries if entry[0] == "end"}
    found = [f"overlap: index {entry[2]}" for entry in entries if entry[0] == "overlap"]
    found += [f"doubled: {uid} began {times} times" for uid, times in begun.items() if times > 1]
    found += [f"lost: {uid} is unknown to the API" for uid in begun if uid not in pods]
    counted: Counter[int] = Counter()
    for uid, pod in pods.items():
        if is_disrupted(pod):
            continue
        code = exit_code(pod)
        if uid not in begun:
            found.append(f"doubled: {uid} is counted with {code}, and never ran")
        elif code != ended.get(uid):
            found.append(f"lost: {uid} ended with {ended.get(uid)}, and is counted with {code}")
        else:
            counted[code if code is not None else -1] += 1
    status = job["status"]
    succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
    if not succeeded == counted[0] == wanted:
        found.append(f"counts: {counted[0]} succeeded, the Job says {succeeded}")
    if failed != counted[3]:
        found.append(f"counts: {counted[3]} failed, the Job says {failed}")
    return found


def _progress(tally: Tally, number: int, chosen: list[str], seconds: float) -> str:
    kinds = Counter(each.split(":")[0] for each in tally.problems)
    return (
        f"round {number} ({', '.join(chosen)}): {tally.begun} processes begun, {tally.ended} ended "
        f"by themselves, {tally.disrupted} disrupted ({tally.late} late); "
        f"overlap {kinds['overlap']}, lost "
        f"{kinds['lost']}, doubled {kinds['doubled']}, problems {len(tally.problems)}; "
        f"{sum(tally.kills.values())} kills in {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
