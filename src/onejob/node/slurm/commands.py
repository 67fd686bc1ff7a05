"""Slurm's command line tools: sbatch, squeue, sacct, scancel and sinfo.

`SlurmQueue` limits the rate of queries, whatever the number of allocations. No query names jobs: an
answer is then complete if one of them is unknown, whereas `squeue --jobs` fails with "Invalid job
id specified" for jobs that a restarted slurmctld has forgotten.
"""

import asyncio
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from onejob.node.options import SlurmOptions
from onejob.node.slurm.sizing import SELECTORS, Shape

_COMMAND_SECONDS: Final = 60.0
_PREFLIGHT_SECONDS: Final = 20.0
_SEPARATOR: Final = "|"
#: Errors of the tools while slurmctld does not respond, which pass.
_is_unreachable: Final = re.compile(
    r"unable to contact|connection refused|timed out|zero bytes were transmitted|connect failure"
    r"|try again|temporarily",
    re.IGNORECASE,
).search
_NO_NODES: Final = "node configuration is not available"
_PRESENT: Final = frozenset({"allocated", "completing", "idle", "mixed"})
_PREFIXES: Final = ("sbatch: error: ", "sbatch: ", "allocation failure: ")

#: States of jobs that have ended or are about to.
OVER: Final = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "REVOKED", "SPECIAL_EXIT", "TIMEOUT",
    }
)  # fmt: skip


class SlurmError(Exception):
    """A command failed. The message is one line, in Slurm's words."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        #: Whether slurmctld did not respond, so that the command may work later.
        self.unreachable = unreachable


class QueuedJob(Struct, frozen=True):
    """A line of squeue or sacct."""

    id: str
    name: str
    state: str
    reason: str = ""
    node: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


def submission(
    shape: Shape, options: SlurmOptions, *, name: str, folder: str, capacity: Mapping[str, int]
) -> list[str]:
    """Return the sbatch command of an allocation."""
    argv = [
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        f"--job-name={name}",
        f"--cpus-per-task={max(capacity['cpu'] // 1000, 1)}",
        f"--time={max(round(options.walltime_seconds / 60), 1)}",
        f"--signal=B:USR1@{round(options.drain_seconds)}",
        f"--output={folder}/output",
        "--chdir=/",
    ]
    if options.memory_bytes:
        argv.append(f"--mem={capacity['memory'] >> 20}M")
    chosen = {name: getattr(shape, name) for name in SELECTORS}
    argv += [f"--{name}={value}" for name, value in chosen.items() if value]
    return [*argv, *options.sbatch_options]


def missing_commands() -> list[str]:
    """Return the required commands that are not on the PATH."""
    return [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]


def refusal(argv: Sequence[str]) -> str:
    """Return Slurm's reason for refusing a submission, by `sbatch --test-only`; "" if it accepts
    it, or does not respond. Blocks."""
    try:
        done = subprocess.run(
            [argv[0], "--test-only", *argv[1:]],
            input="#!/bin/sh\n",
            capture_output=True,
            text=True,
            timeout=_PREFLIGHT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode == 0:
        return ""
    error = _error(done.stderr, argv[0])
    if error.unreachable or (_NO_NODES in str(error) and _has_absent_nodes()):
        return ""
    return str(error)


def _has_absent_nodes() -> bool:
    """Return whether a node is down, drained or not registered yet, as after a restart of
    slurmctld: a configuration that is not available now may be available later."""
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"],
            capture_output=True,
            text=True,
            timeout=_PREFLIGHT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    states = done.stdout.split()
    return not states or not all(state in _PRESENT for state in states)


@functools.cache
def smallest_node(partition: str) -> tuple[int, int]:
    """Return processors and bytes of memory that each node of a partition has at least, by sinfo;
    zeros if that is not known. Blocks."""
    argv = ["sinfo", "--noheader", "--format=%R|%c|%m"]
    if partition:
        argv.append(f"--partition={partition}")
    else:
        argv[-1] = "--format=%P|%c|%m"
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_PREFLIGHT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    found = [line.split(_SEPARATOR) for line in done.stdout.splitlines()]
    if not partition:
        # An asterisk marks the default partition.
        found = [row for row in found if row[0].endswith("*")] or found
    sizes = [(int(row[1].rstrip("+")), int(row[2].rstrip("+"))) for row in found if len(row) == 3]
    if not sizes:
        return 0, 0
    return min(cpus for cpus, _ in sizes), min(memory for _, memory in sizes) << 20


async def submit(argv: Sequence[str], script: str) -> str:
    """Submit a job and return its ID. Raises SlurmError."""
    out = await _call(argv, script)
    # With --parsable: the ID, and the cluster's name after a semicolon.
    return out.strip().partition(";")[0]


async def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs. Raises SlurmError."""
    await _call(["scancel", *jobs])


class SlurmQueue:
    """Rate-limited view of this user's jobs whose name has a prefix.

    Guarantees: at most one query per interval, by squeue, and by sacct if squeue does not list a
    job that is asked for. Failed queries leave the last answer in place, with its number.
    """

    def __init__(self, prefix: str, interval_seconds: float, now: Callable[[], datetime]) -> None:
        self._prefix = prefix
        self._interval = interval_seconds
        self._now = now
        #: Jobs by name.
        self.jobs: dict[str, QueuedJob] = {}
        #: Number of successful queries.
        self.answers = 0
        #: Number of queries, including failed ones.
        self.queries = 0
        #: Error of the last query; "" if it succeeded.
        self.problem = ""
        self._next_query = float("-inf")
        self._sacct_works = True

    async def refresh(self, wanted: Sequence[str] = ()) -> bool:
        """Query the jobs, unless the last query is too recent; return whether it has. `wanted` are
        the names of jobs whose state is needed."""
        clock = asyncio.get_running_loop().time()
        if clock < self._next_query:
            return False
        self._next_query = clock + self._interval
        self.queries += 1
        try:
            self.jobs = parse_jobs(await _call(_squeue()), self._prefix)
        except SlurmError as error:
            self.problem = str(error)
            return True
        self.answers += 1
        self.problem = ""
        missing = [name for name in wanted if name not in self.jobs]
        if missing and self._sacct_works:
            await self._ask_accounting(missing)
        return True

    async def _ask_accounting(self, names: Sequence[str]) -> None:
        """Add ended jobs that squeue has forgotten. Many sites have no accounting."""
        # Without --starttime, sacct lists jobs since midnight only.
        since = self._now() - timedelta(days=2)
        argv = [
            "sacct", "--noheader", "--parsable2", "--allocations",
            f"--starttime={since:%Y-%m-%dT%H:%M}", f"--name={','.join(names)}",
            "--format=JobID,JobName,State,Reason,NodeList",
        ]  # fmt: skip
        try:
            found = parse_jobs(await _call(argv), self._prefix)
        except SlurmError as error:
            if not error.unreachable:
                self._sacct_works = False
            return
        self.jobs = {**found, **self.jobs}


def parse_jobs(text: str, prefix: str) -> dict[str, QueuedJob]:
    """Return the jobs in the output of squeue or sacct, by name; of several, the last."""
    found = {}
    for line in text.splitlines():
        fields = line.split(_SEPARATOR)
        if len(fields) < 5 or not fields[1].startswith(prefix):
            continue
        identity, name, state, reason, node = fields[:5]
        # sacct appends who cancelled a job: "CANCELLED by 1000".
        word = state.partition(" ")[0].rstrip("+")
        found[name] = QueuedJob(identity, name, word, reason, node)
    return found


def _squeue() -> list[str]:
    return ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}",
            "--format=%i|%j|%T|%r|%N"]  # fmt: skip


async def _call(argv: Sequence[str], text: str = "") -> str:
    """Run a command and return its output. Raises SlurmError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise SlurmError(f"cannot execute {argv[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            out, errors = await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise SlurmError(f"{argv[0]} did not respond in time", unreachable=True) from None
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise _error(errors.decode(errors="replace"), argv[0])
    return out.decode(errors="replace")


def _error(stderr: str, command: str) -> SlurmError:
    """Return the error in the output of a command: its last line without prefixes."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    text = next((line for line in reversed(lines) if "error" in line or "fail" in line), "")
    text = text or (lines[-1] if lines else f"{command} failed")
    for prefix in (f"{command}: error: ", f"{command}: ", *_PREFIXES):
        text = text.removeprefix(prefix)
    return SlurmError(text, unreachable=bool(_is_unreachable(stderr)))
