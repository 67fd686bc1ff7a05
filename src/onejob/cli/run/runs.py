"""The runs that are kept: one folder each, found again by the names of their Jobs.

A folder holds the control plane's state and `run.json`, which says what ran. Its owner holds
a lock on it, so that nobody prunes a run that is under way.
"""

import asyncio
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.places import make_private
from onejob.trusted_paths import NotTrusted, read_own_file, require_own_files

KEPT_FOR: Final = timedelta(days=7)
DATABASE: Final = "onejob.db"
_RECORD: Final = "run.json"
_LOCK: Final = "run.lock"
_HEARTBEAT_SECONDS: Final = 0.5
_STAMP: Final = "%Y%m%d-%H%M%S"


class RanJob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    namespace: str
    name: str
    #: Why its Pods could never start, if that ended the run.
    blocked_by: str = ""


class Run(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is remembered of a run besides its objects."""

    id: str
    started_at: datetime
    jobs: tuple[RanJob, ...] = ()
    #: The command line, for people who look for a run.
    arguments: tuple[str, ...] = ()
    #: What ended the run before its Jobs did, and when that began: Ctrl-C, a time-out.
    stopped_by: str = ""
    stopped_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended, for what of it had not ended before: nothing of it runs any more."""

    #: Stopped; Blocked if its Pods could not start; Lost if its process was killed.
    word: str
    at: datetime
    cause: str
    run: Run

    def of_job(self, namespace: str, name: str) -> Self:
        """The same for one Job: what blocked that one."""
        for job in self.run.jobs:
            if (job.namespace, job.name) == (namespace, name) and job.blocked_by:
                return msgspec.structs.replace(self, word="Blocked", cause=job.blocked_by)
        return self


class RunFolder:
    """A run's folder while this process runs it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def record(self, run: Run) -> None:
        """Replace the record; a reader sees the old or the new one, never half of it."""
        fresh = self.path / f"{_RECORD}.new"
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
        fresh.rename(self.path / _RECORD)

    async def heartbeat(self) -> None:
        """Touch the lock file regularly until cancelled, so that the time at which a run was killed
        can be seen afterwards."""
        while True:
            os.utime(self._lock)
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    def release(self) -> None:
        os.close(self._lock)


def new_run_id(now: datetime, salt: str) -> str:
    """Sorts by time, to the millisecond, and reads as one."""
    return f"{now.strftime(_STAMP)}.{now.microsecond // 1000:03}-{salt}"


def create_folder(path: Path) -> RunFolder:
    make_private(path.parent)
    make_private(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path / _LOCK, flags, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return RunFolder(path, lock)


def kept_runs(runs: Path) -> Iterator[tuple[Path, Run]]:
    """Newest first. Folders without a readable record or a database are skipped: they never ran
    a Job. So are those of other users, who may have been let in once."""
    try:
        names = sorted(os.listdir(runs), reverse=True)
    except OSError:
        return
    for name in names:
        try:
            require_own_files(runs / name)
            run = read_record(runs / name)
        except (OSError, msgspec.DecodeError, NotTrusted):
            continue
        if (runs / name / DATABASE).exists():
            yield runs / name, run


def read_record(folder: Path) -> Run:
    return msgspec.json.decode(read_own_file(folder / _RECORD), type=Run)


def run_with_id(runs: Path, wanted: str) -> tuple[Path, Run] | None:
    """The run whose id begins or ends so; None if there is none. Raises CommandError if there are
    several."""
    found = [
        (folder, run)
        for folder, run in kept_runs(runs)
        if wanted and (run.id.startswith(wanted) or run.id.endswith(f"-{wanted}"))
    ]
    if len(found) > 1:
        ids = ", ".join(run.id for _, run in found[:3])
        raise CommandError(f"{wanted}: which run? {ids}", "give more of its id")
    return found[0] if found else None


def find_run(runs: Path, wanted: str) -> tuple[Path, Run]:
    """By its id, or by the name of a Job, whose newest run is meant then. Raises CommandError."""
    if (found := run_with_id(runs, wanted)) is not None:
        return found
    name = wanted.removeprefix("job/")
    for folder, run in kept_runs(runs):
        if any(job.name == name for job in run.jobs):
            return folder, run
    raise CommandError(
        f"{wanted}: no run of the last 7 days has this id, or a Job of this name",
        "onejob runs shows what there is",
    )


def delete_run(folder: Path, run: Run) -> None:
    """Raises CommandError while it is under way. A run that is over never starts again, so the
    check stays true."""
    if is_under_way(folder):
        raise CommandError(f"run {run.id} is still under way", "wait for its end, or stop it")
    # First, so that a deletion which is cut short leaves nothing that looks like a run.
    (folder / _RECORD).unlink()
    shutil.rmtree(folder)


def run_state(folder: Path) -> tuple[str, Run]:
    """Running, Complete, Failed, Stopped, Blocked or Lost; and the record that says so."""
    end = run_end(folder)
    if end is None:
        return "Running", read_record(folder)
    run = end.run
    if end.word == "Lost":
        return end.word, run
    if any(job.blocked_by for job in run.jobs):
        return "Blocked", run
    if run.stopped_by:
        return "Stopped", run
    return ("Complete" if run.exit_code == 0 else "Failed"), run


def is_under_way(folder: Path) -> bool:
    """Whether the process that runs it is still there."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def run_end(folder: Path) -> RunEnd | None:
    """None while it is under way. What is read from the folder after this is final otherwise."""
    if is_under_way(folder):
        return None
    run = read_record(folder)
    if run.finished_at is None and not run.stopped_by:
        return RunEnd("Lost", _last_heartbeat(folder), "the process that ran it was killed", run)
    at = run.finished_at or run.stopped_at or _last_heartbeat(folder)
    cause = f"it was stopped by {run.stopped_by}" if run.stopped_by else "its run ended before it"
    return RunEnd("Stopped", at, cause, run)


def _last_heartbeat(folder: Path) -> datetime:
    """When a run was last seen alive: see `RunFolder.heartbeat`."""
    return datetime.fromtimestamp((folder / _LOCK).stat().st_mtime, UTC)


def prune(runs: Path, now: datetime, limit: int = 50) -> Sequence[Path]:
    """Remove runs that are older than they are kept; at most `limit` at a time, so that no
    run has to wait for a long clean-up. Returns what was removed."""
    oldest_kept = (now - KEPT_FOR).strftime(_STAMP)
    removed: list[Path] = []
    try:
        names = sorted(os.listdir(runs))
    except OSError:
        return removed
    for name in names:
        if name >= oldest_kept or len(removed) == limit:
            break
        folder = runs / name
        if not is_under_way(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed
