"""Long-running check of Pod accounting under faults: `python -m tests.e2e.ledger --rounds 300`.

A real `onejob serve` runs on a small file system of its own. The processes of its Jobs record their
UID, times and exit codes in a ledger on another one. Each round runs a Job while the disk is filled
up, the supervisor's writes are cut short, and server, supervisor or both are killed with SIGKILL.
Then the ledger is compared with the counters of the API:

- lost: a process ended by itself, and its Pod is not counted with that exit code;
- doubled: a Pod was begun twice, or counted without having run;
- harmed: a process was killed without a reason.

A killed supervisor's processes are ended by its successor, by design, and reported as a disruption,
which these Jobs ignore. So only in a round in which the supervisor was killed a Pod may be
disrupted: it began and did not end, or it ended around the kill and its end had not been reported.

Each round prints a line with the totals so far. SIGTERM and SIGINT end the run after the present
round, with its report.

Needs root, for the file system, which lies in a mount namespace of this process alone.
`tests.e2e.resume_rounds` does the same for runs that are killed and resumed.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onejob.node.supervisor import linux
from tests.e2e.serving import Server, end_supervisors, supervisors
from tests.faults import Faults

PODS = 24
PARALLELISM = 8
#: The store keeps five minutes of history, and Pods wait when it has taken nearly all of it.
_DISK_BYTES = 192 * 1024 * 1024
#: The run may have the lowest priority on a busy machine.
_PATIENCE_SECONDS = 600.0

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
        image: busybox
        command: [sh, -c, '. {folder}/work.sh']
        env:
        - {{name: UID_OF_POD, valueFrom: {{fieldRef: {{fieldPath: metadata.uid}}}}}}
        - {{name: LEDGER, value: "{folder}"}}
"""

#: Every sixth index fails the first time it ends. SIGTERM is recorded, too: it should never be
#: sent.
WORK = """
echo "begin $UID_OF_POD $JOB_COMPLETION_INDEX" >> $LEDGER/ledger
trap 'echo "harmed $UID_OF_POD" >> $LEDGER/ledger; exit 99' TERM INT HUP
echo "output of $UID_OF_POD"
sleep $((JOB_COMPLETION_INDEX % 3)).$((JOB_COMPLETION_INDEX * 37 % 9 + 1))
code=0
if [ $((JOB_COMPLETION_INDEX % 6)) = 2 ] && mkdir $LEDGER/failed-$JOB_COMPLETION_INDEX; then
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
    #: Ended by itself just before its supervisor was killed, and therefore repeated.
    untold: int = 0
    short_writes: int = 0
    refused_writes: int = 0
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass
class Scene:
    server: Server
    disk: Path
    folder: Path
    faults: Faults
    rng: random.Random
    tally: Tally
    pods: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="ledger", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    options = parser.parse_args()
    tally = Tally()
    rounds = QUICK_ROUNDS if options.quick else long_rounds(options.rounds, options.seed)
    pods = 8 if options.quick else PODS
    stopped = stop_on_signals()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onejob-ledger-") as name, a_small_disk() as disk:
        folder = Path(name)
        faults = Faults(folder / "faults")
        (folder / "faults").mkdir()
        command = (sys.executable, "-m", "tests.e2e.faulty_serve", str(folder / "faults"))
        state = disk / "state"
        state.mkdir(mode=0o700)
        server = Server(state, command=command, patience_seconds=_PATIENCE_SECONDS)
        server.start()
        scene = Scene(server, disk, folder, faults, random.Random(options.seed), tally, pods)
        try:
            for number, chosen in enumerate(rounds):
                if stopped:
                    print(f"asked to stop: {number} of the rounds are done", flush=True)
                    break
                before = len(tally.problems)
                play(scene, number, chosen)
                print(progress(tally, number, chosen, time.monotonic() - began), flush=True)
                for problem in tally.problems[before:]:
                    print(f"round {number}: {problem}", flush=True)
        finally:
            server.stop()
            end_supervisors(state)
            wait_for_no_supervisor(state)
    seconds = time.monotonic() - began
    print(report(tally, seconds))
    return 1 if tally.problems else 0


def stop_on_signals() -> list[int]:
    """Return a list that is filled with the received termination signals."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: received.append(got))
    return received


def progress(tally: Tally, number: int, chosen: set[str], seconds: float) -> str:
    kinds = Counter(problem.split(":")[0] for problem in tally.problems)
    return (
        f"round {number} ({', '.join(sorted(chosen))}): so far {tally.begun} begun, {tally.ended} "
        f"ended, lost {kinds['lost']}, doubled {kinds['doubled']}, "
        f"{len(tally.problems)} problems in {seconds:.0f} s"
    )


def report(tally: Tally, seconds: float) -> str:
    done = ", ".join(f"{what} {times}" for what, times in sorted(tally.done.items()))
    kinds = Counter(problem.split(":")[0] for problem in tally.problems)
    return (
        f"{tally.rounds} rounds in {seconds:.0f} s ({done}; {tally.short_writes} short writes, "
        f"{tally.refused_writes} writes refused): {tally.begun} processes begun, {tally.ended} "
        f"ended by themselves, {tally.disrupted} disrupted by kills of their supervisor, "
        f"{tally.untold} more had ended untold; lost {kinds['lost']}, doubled {kinds['doubled']}, "
        f"harmed {kinds['harmed']}, other problems "
        f"{len(tally.problems) - kinds['lost'] - kinds['doubled'] - kinds['harmed']}"
    )


# --- a round

FAULTS = ("full disk", "short writes", "kill server", "kill supervisor", "kill both")


QUICK_ROUNDS = (
    {"full disk", "short writes"},
    {"full disk", "kill server"},
    {"short writes", "kill both"},
)


def long_rounds(number: int, seed: int) -> Iterator[set[str]]:
    """Yield each fault in turn, with up to three others."""
    rng = random.Random(seed)
    for turn in range(number):
        yield {FAULTS[turn % len(FAULTS)]} | set(rng.sample(FAULTS, rng.randrange(0, 4)))


def play(scene: Scene, number: int, chosen: set[str]) -> None:
    rng, tally = scene.rng, scene.tally
    folder = scene.folder / str(number)
    folder.mkdir()
    (folder / "work.sh").write_text(WORK)
    (folder / "ledger").touch()
    for what in chosen:
        tally.done[what] += 1
    short_before = scene.faults.happened("pwrite")
    if "short writes" in chosen:
        scene.faults.shorten("pwrite")
    manifest = JOB.format(number=number, pods=scene.pods, parallelism=PARALLELISM, folder=folder)
    scene.server.kubectl("create", "-f", "-", stdin=manifest)
    wait_for_entries(folder / "ledger", rng.randrange(1, scene.pods * 3 // 4))
    filled = fill(scene.disk) if "full disk" in chosen else None
    time.sleep(rng.random())
    killed = chosen & {"kill server", "kill supervisor", "kill both"}
    for what in rng.sample(sorted(killed), len(killed)):
        if what in ("kill supervisor", "kill both"):
            kill_supervisor(scene.server.data_dir)
        if what in ("kill server", "kill both"):
            scene.server.kill()
            if filled is not None and rng.random() < 0.5:
                # Pods go on and end also without a server and with a full disk.
                time.sleep(rng.random() * 2)
                filled.unlink(missing_ok=True)
                filled = None
            restart(scene, filled)
        time.sleep(rng.random() * 0.5)
    if filled is not None and filled.exists():
        time.sleep(rng.random() * 3)
        if scene.server.process is not None and scene.server.process.poll() is None:
            tally.refused_writes += try_to_write(scene.server, number)
        filled.unlink(missing_ok=True)
    scene.faults.mend("pwrite")
    tally.short_writes += scene.faults.happened("pwrite") - short_before
    if scene.server.process is None or scene.server.process.poll() is not None:
        tally.problems.append(f"server: it has ended by itself:\n{scene.server.log[-3000:]}")
        scene.server.start()
    supervisor_killed = bool(killed - {"kill server"})
    compare(scene, number, folder, supervisor_killed, sorted(chosen))
    tally.rounds += 1


def wait_for_entries(ledger: Path, number: int) -> None:
    give_up = time.monotonic() + 30
    while len(ledger.read_text().splitlines()) < number and time.monotonic() < give_up:
        time.sleep(0.01)


def restart(scene: Scene, filled: Path | None) -> None:
    """Restart the server. It may fail on a full disk; then it has to start once there is space."""
    try:
        scene.server.start()
    except AssertionError:
        if filled is None:
            raise
        scene.tally.done["start refused on the full disk"] += 1
        filled.unlink(missing_ok=True)
        scene.server.start()


def compare(scene: Scene, number: int, folder: Path, disruptive: bool, chosen: list[str]) -> None:
    tally = scene.tally
    job = wait_for_end(scene.server, number)
    if job is None:
        status = scene.server.kubectl("get", "job", f"round-{number}", "-o", "json")
        tally.problems.append(f"stuck: {chosen}: {json.loads(status)['status']}")
        return
    label = f"batch.kubernetes.io/job-name=round-{number}"
    listed = scene.server.kubectl("get", "pods", "-l", label, "-o", "json")
    pods = {pod["metadata"]["uid"]: pod for pod in json.loads(listed)["items"]}
    entries = [line.split() for line in (folder / "ledger").read_text().splitlines()]
    begun = Counter(entry[1] for entry in entries if entry[0] == "begin")
    ended = {entry[1]: int(entry[2]) for entry in entries if entry[0] == "end"}
    problems = [f"doubled: {uid} began {times} times" for uid, times in begun.items() if times > 1]
    problems += [f"harmed: {entry[1]} got a signal" for entry in entries if entry[0] == "harmed"]
    problems += [f"lost: {uid} is unknown to the API" for uid in begun if uid not in pods]
    counted: Counter[int] = Counter()
    for uid, pod in pods.items():
        disrupted = is_disrupted(pod)
        code = None if disrupted else exit_code(pod)
        if disrupted and not disruptive:
            problems.append(f"harmed: {uid} was disrupted, though its supervisor was not killed")
        if disrupted:
            tally.untold += uid in ended
            tally.disrupted += uid not in ended
        elif uid not in begun:
            problems.append(f"doubled: {uid} is counted with {code}, and never ran")
        elif code != ended.get(uid):
            problems.append(f"lost: {uid} ended with {ended.get(uid)}, and is counted with {code}")
        else:
            assert code is not None
            counted[code] += 1
    status = job["status"]
    if status.get("succeeded", 0) != counted[0] or counted[0] != scene.pods:
        problems.append(f"lost: {counted[0]} succeeded, the Job says {status.get('succeeded')}")
    if status.get("failed", 0) != counted[3]:
        problems.append(f"lost: {counted[3]} failed, the Job says {status.get('failed', 0)}")
    if left := [uid for uid in begun if uid not in ended and not is_disrupted(pods.get(uid, {}))]:
        problems.append(f"harmed: {left} never ended")
    tally.begun += len(begun)
    tally.ended += len(ended)
    tally.problems += [f"{problem} ({', '.join(chosen)})" for problem in problems]
    scene.server.kubectl("delete", "job", f"round-{number}", "--wait=false")
    scene.server.kubectl("delete", "configmaps", "--all")


def wait_for_end(server: Server, number: int) -> dict[str, Any] | None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        job: dict[str, Any] = json.loads(
            server.kubectl("get", "job", f"round-{number}", "-o", "json")
        )
        for condition in job["status"].get("conditions", ()):
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                return job
        time.sleep(0.3)
    return None


def is_disrupted(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)


def exit_code(pod: dict[str, Any]) -> int | None:
    for status in pod["status"].get("containerStatuses", ()):
        if "terminated" in status["state"]:
            return int(status["state"]["terminated"]["exitCode"])
    return None


# --- faults


@contextlib.contextmanager
def a_small_disk() -> Iterator[Path]:
    """Mount a disk that only this process and its children see."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", linux.MS_REC | linux.MS_SLAVE)
    with tempfile.TemporaryDirectory(prefix="onejob-disk-") as name:
        linux.mount("onejob", name, 0, "tmpfs", f"size={_DISK_BYTES},mode=700")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk to the last byte."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return path


def try_to_write(server: Server, number: int) -> int:
    """Return the number of writes that the API refused, which it must survive, with the reason."""
    refused = 0
    for turn in range(2):
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"extra-{number}-{turn}"},
            "data": {"text": "x" * 500_000},
        }
        done = subprocess.run(
            ["kubectl", "create", "-f", "-"],
            input=json.dumps(document),
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            assert "InsufficientStorage" in done.stderr, done.stderr
            refused += 1
    return refused


def kill_supervisor(data_dir: Path) -> None:
    for pid in supervisors(data_dir):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for_no_supervisor(data_dir: Path) -> None:
    give_up = time.monotonic() + 60
    while supervisors(data_dir) and time.monotonic() < give_up:
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
