"""Long-running check of `run --resume`: `python -m tests.e2e.resume_rounds --rounds 50`.

Each round starts `onejob run`, kills it with SIGKILL at a random moment and resumes it at once,
several times. A third of the processes ignore SIGTERM. Every process records its start and its end
in a ledger, and holds a lock of its index for as long as it lives:

- doubled: a process of an index started while another one of that index was alive;
- repeated: an index ran again after one of its processes had exited with 0;
- lost: the last resume reports success, and an index never exited with 0.

In some rounds the supervisor is killed, too. The end of a process that its supervisor had not
recorded by then is unknown, so only in those rounds an index may be repeated.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.command_line import CommandLine
from tests.e2e.serving import end_supervisors, supervisors

INDEXES = 12
PARALLELISM = 6
_PATIENCE_SECONDS = 300.0

WORK = """
import fcntl, os, signal, sys, time
index, folder = int(os.environ["JOB_COMPLETION_INDEX"]), sys.argv[1]
ledger = os.open(folder + "/ledger", os.O_WRONLY | os.O_APPEND)

def note(word):
    os.write(ledger, f"{word} {index} {os.getpid()}\\n".encode())

if index % 3 == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = os.open(f"{folder}/{index}.lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("doubled")
note("begin")
# Those that ignore SIGTERM still live when the next run begins.
time.sleep(0.1 + index * 37 % 11 / 7 + (2 if index % 3 == 0 else 0))
if index % 5 == 1 and not os.path.exists(f"{folder}/{index}.failed"):
    open(f"{folder}/{index}.failed", "w").close()
    note("failed")
    sys.exit(3)
# What is recorded as an end shall be one.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note("end")
os._exit(0)
"""


@dataclass
class Tally:
    rounds: int = 0
    kills: int = 0
    begun: int = 0
    problems: list[str] = field(default_factory=list)

    def report(self) -> str:
        kinds = Counter(problem.split(":")[0] for problem in self.problems)
        other = len(self.problems) - kinds["doubled"] - kinds["repeated"] - kinds["lost"]
        return (
            f"{self.rounds} rounds of --resume, {self.kills} kills, {self.begun} processes: "
            f"doubled {kinds['doubled']}, repeated {kinds['repeated']}, lost {kinds['lost']}, "
            f"other problems {other}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="resume_rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tally = Tally()
    for number in range(options.rounds):
        before = len(tally.problems)
        with tempfile.TemporaryDirectory(prefix="onejob-resume-") as name:
            # A seed for each round, so that one of them can be repeated alone.
            play(Path(name), random.Random(options.seed * 1000 + number), tally)
        print(f"round {number}: so far {tally.report()}", flush=True)
        for problem in tally.problems[before:]:
            print(f"round {number}: {problem}", flush=True)
    return 1 if tally.problems else 0


def play(folder: Path, rng: random.Random, tally: Tally) -> None:
    onejob = CommandLine(folder)
    (folder / "ledger").touch()
    (folder / "work.py").write_text(WORK)
    kills_supervisor = rng.random() < 0.2
    try:
        command = first_command(folder)
        for _ in range(rng.randrange(1, 4)):
            run = onejob.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 2.5)
            if kills_supervisor:
                for pid in supervisors(onejob.data_dir):
                    os.kill(pid, signal.SIGKILL)
            run.kill()
            run.wait()
            tally.kills += 1
            # By the id of the first run or by its name, which stands for the newest.
            command = resuming(onejob, rng) or first_command(folder)
        done = onejob.run(*command, timeout=_PATIENCE_SECONDS)
        # Jobs that failed for good get another chance.
        if done.returncode == 1:
            done = onejob.run("run", "--resume", "sweep", timeout=_PATIENCE_SECONDS)
        if done.returncode != 0:
            tally.problems.append(f"stuck: {done.returncode} {done.stdout} {done.stderr}")
    finally:
        end_supervisors(onejob.data_dir)
    tally.rounds += 1
    tally.problems += problems_in((folder / "ledger").read_text(), kills_supervisor)
    tally.begun += (folder / "ledger").read_text().count("begin ")


def first_command(folder: Path) -> list[str]:
    return [
        "run", "--name", "sweep", "--completions", str(INDEXES), "--indexed", "--parallelism",
        str(PARALLELISM), "--", sys.executable, "-S", "-E", str(folder / "work.py"), str(folder),
    ]  # fmt: skip


def resuming(onejob: CommandLine, rng: random.Random) -> list[str]:
    """Return the command, or an empty list if no run got far enough to be resumed."""
    records = sorted(onejob.data_dir.glob("runs/*/run.json"))
    kept = [path.parent.name for path in records if json.loads(path.read_text()).get("jobs")]
    return ["run", "--resume", rng.choice(["sweep", kept[0]])] if kept else []


def problems_in(ledger: str, supervisor_killed: bool) -> list[str]:
    problems: list[str] = []
    ended: set[str] = set()
    for line in ledger.splitlines():
        word, index, _ = line.split()
        if word == "doubled":
            problems.append(f"doubled: index {index} ran twice at the same time")
        elif word == "begin" and index in ended and not supervisor_killed:
            problems.append(f"repeated: index {index} had exited with 0 and ran again")
        elif word == "end":
            ended.add(index)
    missing = {str(index) for index in range(INDEXES)} - ended
    problems += [f"lost: index {index} never exited with 0" for index in sorted(missing)]
    return problems


if __name__ == "__main__":
    sys.exit(main())
