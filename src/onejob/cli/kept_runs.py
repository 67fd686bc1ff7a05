"""Kept runs: one folder each, found again by run id or by the names of their Jobs.

A folder holds the control plane's state and `run.json`, the record of the run. The process that
executes the run holds a lock on the folder, which protects a run that is under way from being
pruned. Another lock is held while a run is resumed, so that no index is resumed twice.
"""

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.places import make_private
from onejob.trusted_paths import NotTrusted, read_own_file, require_own_files

RETENTION: Final = timedelta(days=7)
DATABASE: Final = "onejob.db"
_RECORD: Final = "run.json"
_LOCK: Final = "run.lock"
_RESUME_LOCK: Final = "resume.lock"
#: Objects that the run is about to create; removed once all of them exist.
_PLANNED: Final = "planned.json"
#: Environment variables that the run's commands inherit. Kept apart from all objects, because they
#: may contain secrets.
_ENVIRONMENT: Final = "environment.json"
_PASSED: Final = "passed-environment.json"
#: Locked by the supervisor for its whole lifetime: its folder or, on file systems that cannot lock
#: folders, this file in it.
_SUPERVISOR: Final = ("supervisor", "supervisor/lock")
#: Output of a run in the background.
OUTPUT: Final = "output.log"
#: Written by `onejob stop`; its content is "stop" or "kill". A file instead of a signal, because
#: the process may be in another PID namespace, and its PID may be another process's by now.
_STOP_REQUEST: Final = "stop-request"
_HEARTBEAT_SECONDS: Final = 0.5
_STAMP: Final = "%Y%m%d-%H%M%S"


class RunJob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    namespace: str
    name: str
    #: Reason why its Pods could never start, if that ended the run.
    blocked_by: str = ""
    #: Name of the workflow whose task it is; "" if it is none's. It may never have been created.
    workflow: str = ""


class RemotePlace(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Cluster that executes a run, without its credentials."""

    #: Name of a context or, without kubeconfigs, of a mirror target.
    name: str
    #: Files that define the context.
    kubeconfigs: tuple[str, ...] = ()
    #: Namespace of the server's Secret that defines the mirror target.
    target_namespace: str = ""


class Run(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Record of a run, in addition to its objects."""

    id: str
    started_at: datetime
    jobs: tuple[RunJob, ...] = ()
    #: The command line, to recognise a run by.
    arguments: tuple[str, ...] = ()
    #: Cause (Ctrl-C, a time-out) and begin of a stop that ended the run before its Jobs finished.
    stopped_by: str = ""
    stopped_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    #: Runtime of its Pods, and the command line of the container engine if it has one.
    runtime: str = "process"
    engine: tuple[str, ...] = ()
    #: Id of the run that resumed this one.
    resumed_by: str = ""
    #: Where its objects are, of a run with --on; None if they are in its folder.
    on: RemotePlace | None = None


class RunEnd(msgspec.Struct, frozen=True):
    """End of a run, as it applies to objects that had not ended by themselves.

    Nothing of the run is executing any more.
    """

    #: Stopped; Blocked if its Pods could not start; Lost if its process was killed.
    word: str
    at: datetime
    cause: str
    run: Run

    @property
    def resume(self) -> str:
        return f"onejob run --resume {self.run.id}"

    def of_job(self, namespace: str, name: str) -> Self:
        """Return the end as it applies to one Job: Blocked, with its cause, if that Job was."""
        for job in self.run.jobs:
            if (job.namespace, job.name) == (namespace, name) and job.blocked_by:
                return msgspec.structs.replace(self, word="Blocked", cause=job.blocked_by)
        return self


class RunFolder:
    """Folder of a run that this process executes, locked until `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def record(self, run: Run) -> None:
        write_record(self.path, run)

    def keep_plan(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Write the objects about to be created, so that a run killed meanwhile can be resumed."""
        _replace_file(self.path / _PLANNED, msgspec.json.encode(documents))

    def keep_environment(self, inherited: Mapping[str, str], passed: Mapping[str, str]) -> None:
        """Write the environment that commands inherit and the variables that are passed to all
        Pods, for a resume of this run."""
        for name, variables in ((_ENVIRONMENT, inherited), (_PASSED, passed)):
            if variables:
                _replace_file(self.path / name, msgspec.json.encode(variables))

    def drop_plan(self) -> None:
        (self.path / _PLANNED).unlink(missing_ok=True)

    async def heartbeat(self, stop: Callable[[bool], None]) -> None:
        """Touch the lock file until cancelled. Its mtime shows later when a run was killed.

        Call `stop` when another process requests the end of the run, with True to kill its Pods.
        """
        request, handled = self.path / _STOP_REQUEST, b""
        while True:
            os.utime(self._lock)
            if request.exists() and (content := read_own_file(request)) != handled:
                handled = content
                stop(content == b"kill")
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    def release(self) -> None:
        os.close(self._lock)


class RunClaim:
    """Exclusive right to resume an ended run: held by one process at a time."""

    def __init__(self, folder: Path, run: Run, lock: int) -> None:
        self.folder = folder
        self.run = run
        self._lock = lock

    def record_successor(self, run_id: str) -> None:
        """Record the run that resumes this one. Raises OSError.

        Later resumes continue with that run instead.
        """
        self.run = msgspec.structs.replace(self.run, resumed_by=run_id)
        write_record(self.folder, self.run)

    def record_completion(self, at: datetime) -> None:
        """Record that all Jobs are complete, for a process that was killed before it could."""
        self.run = msgspec.structs.replace(
            self.run, finished_at=at, exit_code=0, stopped_by="", stopped_at=None
        )
        write_record(self.folder, self.run)

    def environment(self) -> dict[str, str]:
        """Return the environment that the run's commands inherited; {} if none was recorded."""
        return self._variables(_ENVIRONMENT)

    def passed_environment(self) -> dict[str, str]:
        """Return the variables that were passed to all Pods; {} if none were recorded."""
        return self._variables(_PASSED)

    def _variables(self, file: str) -> dict[str, str]:
        try:
            content = read_own_file(self.folder / file)
        except FileNotFoundError:
            return {}
        return msgspec.json.decode(content, type=dict[str, str])

    def release(self) -> None:
        os.close(self._lock)


def new_run_id(now: datetime, salt: str) -> str:
    """Return a run id that sorts by time, in milliseconds, and contains it readably."""
    return f"{now.strftime(_STAMP)}.{now.microsecond // 1000:03}-{salt}"


def create_folder(path: Path) -> RunFolder:
    make_private(path.parent)
    make_private(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path / _LOCK, flags, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return RunFolder(path, lock)


def write_record(folder: Path, run: Run) -> None:
    _replace_file(folder / _RECORD, msgspec.json.format(msgspec.json.encode(run), indent=1))


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a private file atomically: readers see the old or the new content, never a part."""
    fresh = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(fresh, flags, 0o600), "wb") as file:
        file.write(content)
    fresh.rename(path)


def claim_run(folder: Path) -> RunClaim:
    """Claim a run for resuming. Raises CommandError if it is under way or claimed already."""
    run = read_record(folder)
    if is_under_way(folder):
        raise CommandError(f"run {run.id} is still running", f"onejob stop run/{run.id} stops it")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(folder / _RESUME_LOCK, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise CommandError(
            f"run {run.id} is being resumed by another process", "wait until it ends, or stop it"
        ) from None
    # Read again: the previous holder of the claim may have recorded a successor.
    return RunClaim(folder, read_record(folder), lock)


def claim_newest(runs: Path, wanted: str) -> RunClaim:
    """Claim the wanted run, or the last one of the runs that resumed it. Raises CommandError."""
    folder, run = find_run(runs, wanted)
    while True:
        folder, run = newest_resume(runs, folder, run)
        claim = claim_run(folder)
        if newest_resume(runs, folder, claim.run)[0] == folder:
            return claim
        claim.release()


def planned_documents(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that a killed run may not have created; [] if it created all."""
    try:
        content = read_own_file(folder / _PLANNED)
    except FileNotFoundError:
        return []
    documents: list[dict[str, Any]] = msgspec.json.decode(content)
    return documents


def newest_resume(runs: Path, folder: Path, run: Run) -> tuple[Path, Run]:
    """Follow `resumed_by` to the last run in the chain of resumes."""
    while run.resumed_by:
        successor = runs / run.resumed_by
        try:
            record = read_record(successor)
        except (OSError, msgspec.DecodeError, NotTrusted):
            # The successor was deleted.
            break
        if not record.jobs and not (successor / _PLANNED).exists():
            # The successor was killed before it took over.
            break
        folder, run = successor, record
    return folder, run


def kept_runs(runs: Path) -> Iterator[tuple[Path, Run]]:
    """Yield folder and record of each kept run, newest first.

    Skips folders without a readable record or a database, which never ran a Job, and folders of
    other users, who may once have had access to the data dir.
    """
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
        if run.on is not None or (runs / name / DATABASE).exists():
            yield runs / name, run


def read_record(folder: Path) -> Run:
    return msgspec.json.decode(read_own_file(folder / _RECORD), type=Run)


def run_with_id(runs: Path, wanted: str) -> tuple[Path, Run] | None:
    """Return the run whose id begins or ends with `wanted`; None if there is none.

    Raises CommandError if there are several.
    """
    found = [
        (folder, run)
        for folder, run in kept_runs(runs)
        if wanted and (run.id.startswith(wanted) or run.id.endswith(f"-{wanted}"))
    ]
    if len(found) > 1:
        ids = ", ".join(run.id for _, run in found[:3])
        raise CommandError(f"{wanted} is ambiguous: {ids}", "specify more of the ID")
    return found[0] if found else None


def find_run(runs: Path, wanted: str) -> tuple[Path, Run]:
    """Return the run with this id, or the newest run of the Job of this name.

    `wanted` may begin with `run/` or `job/`. Raises CommandError if there is none.
    """
    wanted = wanted.removeprefix("run/")
    if (found := run_with_id(runs, wanted)) is not None:
        return found
    for folder, run in runs_of_job(runs, wanted):
        return folder, run
    raise CommandError(
        f"{wanted}: no run of the last 7 days has this ID or a Job of this name",
        "onejob runs lists them",
    )


def request_stop(folder: Path, *, kill: bool) -> None:
    """Ask the process that executes the run to stop its Pods, or to kill them."""
    _replace_file(folder / _STOP_REQUEST, b"kill" if kill else b"stop")


def find_running(runs: Path, wanted: str) -> tuple[Path, Run]:
    """Return the run with this id, or the running one, else the newest, of the Job of this name.

    Raises CommandError if there is none, or if several runs of this Job are running.
    """
    if (found := run_with_id(runs, wanted)) is not None:
        return found
    running = [found for found in runs_of_job(runs, wanted) if is_under_way(found[0])]
    if len(running) > 1:
        ids = ", ".join(f"run/{run.id}" for _, run in running)
        raise CommandError(f"several runs of {wanted} are running: {ids}", "specify one of them")
    return running[0] if running else find_run(runs, wanted)


def runs_of_job(runs: Path, name: str) -> Iterator[tuple[Path, Run]]:
    """Yield the runs that have a Job or a workflow of this name, newest first."""
    is_job, is_workflow = not name.startswith("workflow/"), not name.startswith("job/")
    name = name.removeprefix("job/").removeprefix("workflow/")
    for folder, run in kept_runs(runs):
        if any(
            (is_job and job.name == name) or (is_workflow and job.workflow == name)
            for job in run.jobs
        ):
            yield folder, run


def delete_run(folder: Path, run: Run) -> None:
    """Delete an ended run.

    Raises CommandError while it is under way, resumed, or its Pods are being stopped. An ended run
    never starts again, so the check cannot become stale.
    """
    if is_under_way(folder):
        raise CommandError(f"run {run.id} is still running", f"onejob stop run/{run.id} stops it")
    if has_supervisor(folder):
        raise CommandError(f"Pods of run {run.id} are being stopped", "try again in a moment")
    claim = claim_run(folder)
    # The record goes first, so that an interrupted deletion leaves nothing that looks like a run.
    (folder / _RECORD).unlink()
    shutil.rmtree(folder)
    claim.release()


def run_state(folder: Path) -> tuple[str, Run]:
    """Return Running, Complete, Failed, Stopped, Blocked or Lost; and the run's record.

    Detached is a run of a cluster that no process here follows.
    """
    end = run_end(folder)
    if end is None:
        return "Running", read_record(folder)
    run = end.run
    if run.on is not None and run.finished_at is None:
        return "Detached", run
    if end.word == "Lost":
        return end.word, run
    if any(job.blocked_by for job in run.jobs):
        return "Blocked", run
    if run.stopped_by:
        return "Stopped", run
    return ("Complete" if run.exit_code == 0 else "Failed"), run


def is_under_way(folder: Path) -> bool:
    """Return whether the process that executes the run is alive.

    Its Pods may outlive it: see `has_supervisor`.
    """
    return _is_locked(folder / _LOCK)


def has_supervisor(folder: Path) -> bool:
    """Return whether the supervisor of the run's Pods is alive. It exits after stopping them."""
    return any(_is_locked(folder / name) for name in _SUPERVISOR)


def _in_use(folder: Path) -> bool:
    return is_under_way(folder) or has_supervisor(folder) or _is_locked(folder / _RESUME_LOCK)


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # Network file systems may support locks on files only.
        return False
    finally:
        os.close(lock)
    return False


def run_end(folder: Path) -> RunEnd | None:
    """Return the end of the run; None while it is under way.

    Unless it is None, later reads of the folder see the final state.
    """
    if is_under_way(folder):
        return None
    run = read_record(folder)
    if run.finished_at is None and not run.stopped_by:
        return RunEnd("Lost", _last_heartbeat(folder), "the process of the run was killed", run)
    at = run.finished_at or run.stopped_at or _last_heartbeat(folder)
    stop = f"it was stopped by {run.stopped_by}"
    cause = stop if run.stopped_by else "the run ended before the Job"
    return RunEnd("Stopped", at, cause, run)


def _last_heartbeat(folder: Path) -> datetime:
    """Return the time at which a run was last alive: see `RunFolder.heartbeat`."""
    return datetime.fromtimestamp((folder / _LOCK).stat().st_mtime, UTC)


def prune(runs: Path, now: datetime, limit: int = 50) -> Sequence[Path]:
    """Remove runs older than `RETENTION`, oldest first; return the removed folders.

    At most `limit` at a time, so that no run has to wait for a long clean-up.
    """
    oldest_kept = (now - RETENTION).strftime(_STAMP)
    removed: list[Path] = []
    try:
        names = sorted(os.listdir(runs))
    except OSError:
        return removed
    for name in names:
        if name >= oldest_kept or len(removed) == limit:
            break
        folder = runs / name
        if not _in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed
