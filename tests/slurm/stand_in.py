"""Stand-ins for sbatch, squeue, sacct, scancel and sinfo, for tests without Slurm and for errors
that a real Slurm does not produce on demand.

Jobs run at once as processes of this machine. The file `faults.json` in the state folder changes
the answers; `calls` lists all calls. `install` returns the folder to put on the PATH.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "sinfo")
STATE = "ONEJOB_TEST_SLURM"
_KILL_SECONDS = 5.0


class StandIn:
    """State folder of the stand-ins, as seen by a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"

    def install(self) -> None:
        self.bin.mkdir(parents=True)
        for name in COMMANDS:
            program = self.bin / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n')
            program.chmod(0o755)
        self.set()

    def set(self, **faults: Any) -> None:
        """Set the faults: `reject`, an error of sbatch; `unreachable`, an error of all commands;
        `hold`, a reason for which jobs wait; `forget`, whether squeue lists nothing."""
        path = self.folder / "faults.json"
        path.with_suffix(".new").write_text(json.dumps(faults))
        path.with_suffix(".new").rename(path)

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        return _jobs(self.folder)

    def cancel(self, number: str) -> None:
        _cancel(self.folder, number, signal.SIGTERM)

    def end_all(self) -> None:
        """Kill what runs of all jobs."""
        for number in self.jobs:
            _cancel(self.folder, number, signal.SIGKILL)


def main() -> int:
    folder, name, arguments = Path(os.environ[STATE]), sys.argv[1], sys.argv[2:]
    if name == "runner":
        return _run(folder, arguments[0])
    with _locked(folder), (folder / "calls").open("a") as calls:
        calls.write(json.dumps([name, *arguments]) + "\n")
    faults = json.loads((folder / "faults.json").read_text())
    if error := faults.get("unreachable"):
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    match name:
        case "sbatch":
            return _sbatch(folder, arguments, faults)
        case "squeue":
            _release(folder, faults)
            for number, job in [] if faults.get("forget") else _jobs(folder).items():
                print("|".join([number, job["name"], job["state"], job["reason"], "standin"]))
        case "scancel":
            for number in arguments:
                _cancel(folder, number, signal.SIGTERM)
        case "sacct":
            print(faults.get("accounting", ""))
        case _:
            states = "\n".join(faults.get("states", ["idle"]))
            print(states if "--format=%T" in arguments else "all*|2|4000")
    return 0


def _sbatch(folder: Path, arguments: list[str], faults: dict[str, Any]) -> int:
    script = sys.stdin.read()
    if error := faults.get("reject"):
        print(f"sbatch: error: {error}", file=sys.stderr)
        return 1
    if "--test-only" in arguments:
        return 0
    options = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
    with _locked(folder):
        number = str(len(_jobs(folder)) + 1)
        job = {
            "name": options["job-name"],
            "state": "PENDING",
            "reason": faults.get("hold", "None"),
            "output": options["output"],
            "script": script,
            "pid": 0,
        }
        _store(folder, number, job)
    if not faults.get("hold"):
        _start(folder, number)
    print(number)
    return 0


def _release(folder: Path, faults: dict[str, Any]) -> None:
    """Start the jobs that were held."""
    for number, job in _jobs(folder).items():
        if job["state"] == "PENDING" and not faults.get("hold"):
            _start(folder, number)


def _start(folder: Path, number: str) -> None:
    subprocess.Popen(
        [sys.executable, "-S", __file__, "runner", number],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while _jobs(folder)[number]["state"] == "PENDING":
        time.sleep(0.01)


def _run(folder: Path, number: str) -> int:
    """Run the script of a job, and record its end."""
    job = _jobs(folder)[number]
    environment = {**os.environ, "SLURM_JOB_ID": number, "SLURMD_NODENAME": "standin"}
    with open(job["output"], "ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", job["script"]], stdout=output, stderr=output, env=environment, cwd="/"
        )
    job.update(state="RUNNING", pid=process.pid)
    _store(folder, number, job)
    code = process.wait()
    before = _jobs(folder)[number]
    state = "CANCELLED" if before.get("cancelled") else "FAILED" if code else "COMPLETED"
    _store(folder, number, {**before, "state": state})
    return 0


def _cancel(folder: Path, number: str, how: signal.Signals) -> None:
    job = _jobs(folder).get(number)
    if job is None or job["state"] not in ("PENDING", "RUNNING"):
        return
    pending = job["state"] == "PENDING"
    state = "CANCELLED" if pending else "RUNNING"
    _store(folder, number, {**job, "cancelled": True, "state": state})
    if not pending:
        try:
            os.kill(job["pid"], how)
        except ProcessLookupError:
            return


def _jobs(folder: Path) -> dict[str, dict[str, Any]]:
    found = sorted(folder.glob("job-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
    return {path.stem.partition("-")[2]: json.loads(path.read_text()) for path in found}


def _store(folder: Path, number: str, job: dict[str, Any]) -> None:
    new = folder / f"new-{number}-{os.getpid()}"
    new.write_text(json.dumps(job))
    new.rename(folder / f"job-{number}.json")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
