"""Lifecycle of one remote run: preflight, create the objects, follow them, report.

The Jobs belong to the cluster: they go on when this process ends, and `attach` follows them again.
Only `--timeout` and a user who chooses so stop them.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onejob.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TIMED_OUT, CommandError
from onejob.cli.kept_runs import RemotePlace, RunJob, is_under_way, read_record, write_record
from onejob.cli.manifests.loading import Manifest
from onejob.cli.places import DataDir
from onejob.cli.remote import preflight
from onejob.cli.remote.changes import adopt, create_surely, delete_run_objects, suspend_jobs
from onejob.cli.remote.logs import RemoteLogs
from onejob.cli.remote.planning import (
    RUN_LABEL,
    RemoteObject,
    marked,
    needed_access,
    plan_objects,
)
from onejob.cli.remote.prompt import ask_detach_or_delete
from onejob.cli.remote.resuming import ResumingClient
from onejob.cli.run.following import Follower
from onejob.cli.run.plan import RunPlan
from onejob.cli.run.session import Session, SessionOptions, has_one_pod, log_to
from onejob.cli.sources.remote_runs import connect
from onejob.client.base import Create, Selection
from onejob.client.kubeconfig import Connection
from onejob.gates import FeatureGates
from onejob.objects.job import Job, read_job
from onejob.objects.meta import JOBS
from onejob.wire.errors import ApiError

_LOG_PATIENCE_SECONDS: Final = 15.0


class RemoteOptions(msgspec.Struct, frozen=True):
    place: RemotePlace
    data_dir: DataDir
    #: Options of the display and the reports.
    session: SessionOptions
    #: Seconds for which the cluster keeps the Jobs after their end; None keeps them.
    ttl_seconds: int | None = None
    detach: bool = False


def run_remote(
    manifests: Sequence[Manifest], namespace: str, gates: FeatureGates, options: RemoteOptions
) -> int:
    """Run the Jobs of `manifests` on another cluster and return the exit code.

    `namespace` is that of manifests without one; "" is that of the context.
    """
    connection = connect(options.place, options.data_dir)
    session = RemoteSession(connection, options)
    return asyncio.run(session.create_and_follow(manifests, namespace, gates))


def attach_remote(folder: Path, options: RemoteOptions) -> int:
    """Follow a run again, from the state that it has now; return the exit code."""
    connection = connect(options.place, options.data_dir)
    session = RemoteSession(connection, options)
    return asyncio.run(session.attach(folder))


class RemoteSession(Session):
    """Session whose Jobs run on another API server. Reports are those of a local run."""

    def __init__(self, connection: Connection, options: RemoteOptions) -> None:
        super().__init__(RunPlan(()), options.session)
        self._remote = options
        self._run = replace(self._run, on=options.place, runtime="")
        self._rng = Random()
        self._logs = RemoteLogs(self._rng)
        self._connection = connection
        self._client = ResumingClient(
            connection,
            rng=self._rng,
            notice=lambda text: self._display.notice(text),
            observe=self._logs.observe,
        )
        self._logs.use(self._client)

    async def create_and_follow(
        self, manifests: Sequence[Manifest], namespace: str, gates: FeatureGates
    ) -> int:
        options = self._remote
        try:
            objects, problems = plan_objects(
                manifests, namespace or self._connection.namespace, gates, self._clock.now()
            )
            self._plan = RunPlan(
                tuple(item.planned for item in objects),
                jobs=tuple(item.planned for item in objects if item.planned.resource == JOBS),
            )
            if options.session.container_exit_code and not has_one_pod(self._plan):
                raise CommandError("--exit-code requires a single Job with a single Pod")
            needs = needed_access(
                objects,
                cleans_up=options.ttl_seconds is not None,
                suspends=options.session.timeout_seconds is not None,
            )
            wanted = await preflight.check(self._client, objects, problems, needs)
            for item in objects:
                if item not in wanted:
                    kind, name = item.manifest.kind.kind.lower(), item.manifest.name
                    self._display.notice(f"{kind}/{name} exists with the same content: reused")
            return await self._run_kept(wanted)
        finally:
            await self._client.close()

    async def _run_kept(self, wanted: Sequence[RemoteObject]) -> int:
        folder = self._create_run_folder()
        assert folder is not None, "remote runs are always kept"
        alive = asyncio.ensure_future(folder.heartbeat(self._stop.requested))
        try:
            # Recorded first: whatever happens now, the label of this run finds its objects.
            self._run = replace(self._run, jobs=self._places_of(wanted))
            folder.record(self._run)
            self._stop.listen()
            log_to(folder.path / "onejob.log")
            await self._create_all(wanted)
            self._record(folder, jobs=self._ran_jobs())
            if self._remote.detach:
                self._print_detached()
                return EXIT_OK
            exit_code, outcome = await self._follow_all()
            if outcome in ("Detached", "Deleted", "TimedOut", "Blocked"):
                self._note_end(folder.path, outcome, exit_code)
            else:
                self._record(folder, finished_at=self._clock.now(), exit_code=exit_code)
            return exit_code
        finally:
            alive.cancel()
            folder.release()

    async def attach(self, folder: Path) -> int:
        self._run = read_record(folder)
        self._stop.listen()
        try:
            await self._find_jobs()
            exit_code, outcome = await self._follow_all()
        finally:
            await self._client.close()
        if not is_under_way(folder):
            self._note_end(folder, outcome, exit_code)
        return exit_code

    # --- create ---------------------------------------------------------------------------

    async def _create_all(self, wanted: Sequence[RemoteObject]) -> None:
        """Create all objects, or none: what was created before a refusal is deleted again."""
        others: list[bytes] = []
        owners: list[Job] = []
        for item in wanted:
            planned = item.planned
            document = msgspec.json.encode(marked(planned, self._run.id, self._remote.ttl_seconds))
            op = Create(planned.resource, planned.namespace, document)
            try:
                written = await create_surely(self._client, op, self._run.id, self._rng)
            except ApiError as error:
                await delete_run_objects(
                    self._client, self._run.id, self._namespaces(wanted), self._rng
                )
                kind = item.manifest.kind.kind.lower()
                raise CommandError(
                    f"cannot create {kind}/{item.manifest.name}: {' '.join(error.message.split())}",
                    "the objects created before were deleted",
                    exit_code=EXIT_FAILED,
                ) from None
            if planned.resource != JOBS:
                others.append(written.document)
                continue
            job = read_job(written.document)
            owners.append(job)
            self._progress.expect(job, self._clock.now(), *self._indexes_of(planned))
        if self._remote.ttl_seconds is not None:
            await adopt(self._client, others, owners, self._rng, self._display.notice)

    async def _find_jobs(self) -> None:
        """Find the Jobs of the recorded run by their label."""
        for namespace in self._namespaces(()):
            what = Selection(JOBS, namespace, f"{RUN_LABEL}={self._run.id}")
            try:
                found = await self._client.list(what)
            except ApiError as error:
                raise CommandError(error.message, exit_code=EXIT_FAILED) from None
            for document in found.documents:
                job = read_job(document)
                created_at = job.metadata.creation_timestamp or self._clock.now()
                progress = self._progress.expect(job, created_at)
                if (end := job.finished_condition) is not None:
                    progress.finished_at = end.last_transition_time or self._clock.now()
        if not self._progress.jobs:
            raise CommandError(
                f"run {self._run.id} has no Jobs at {self._connection.server}",
                "they were deleted, or their --ttl has expired",
                exit_code=EXIT_FAILED,
            )

    @staticmethod
    def _places_of(wanted: Sequence[RemoteObject]) -> tuple[RunJob, ...]:
        return tuple(
            RunJob(item.planned.namespace, item.manifest.name)
            for item in wanted
            if item.planned.resource == JOBS
        )

    def _namespaces(self, wanted: Sequence[RemoteObject]) -> list[str]:
        named = [job.namespace for job in self._run.jobs]
        named += [item.planned.namespace for item in wanted if item.planned.namespace]
        return list(dict.fromkeys(named))

    # --- follow ---------------------------------------------------------------------------

    async def _follow_all(self) -> tuple[int, str]:
        outputs = self._outputs()
        quiet = self._options.quiet and not outputs
        follower = Follower(
            self._client,
            self._progress,
            self._display,
            self._clock,
            None if quiet else self._logs,
            node=lambda: None,
            folder=str(Path.cwd()),
            keep_waiting=self._options.keep_waiting,
            outputs=outputs,
            queued=True,
            scopes=[(name, f"{RUN_LABEL}={self._run.id}") for name in self._namespaces(())],
            patience_seconds=_LOG_PATIENCE_SECONDS,
        )
        try:
            exit_code, outcome = await self._until_end(follower)
        finally:
            # Containers that go on after this process have no last output.
            await follower.close(wait=self._progress.done)
            self._display.close()
        if outcome not in ("Detached", "Deleted"):
            await self._report(exit_code, outcome, None, self._logs)
        return exit_code, outcome

    async def _until_end(self, follower: Follower) -> tuple[int, str]:
        """Return exit code and outcome: of the Jobs, or Blocked, TimedOut, Detached or Deleted."""
        following = asyncio.create_task(follower.until_done(0))
        stopping = asyncio.create_task(self._stop.wait())
        seconds = self._options.timeout_seconds
        try:
            await asyncio.wait(
                [following, stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if following.done():
                return self._followed(following)
            if stopping.done():
                return await self._interrupted(following)
            self._display.notice(f"timed out after {seconds:g}s, suspending the unfinished Jobs")
            self._progress.stop()
            await suspend_jobs(self._client, self._progress, self._rng, self._display.notice)
            return EXIT_TIMED_OUT, "TimedOut"
        finally:
            following.cancel()
            stopping.cancel()
            await asyncio.gather(following, stopping, return_exceptions=True)

    def _followed(self, following: "asyncio.Task[None]") -> tuple[int, str]:
        try:
            following.result()
        except ApiError as error:
            raise CommandError(
                f"cannot follow run {self._run.id}: {' '.join(error.message.split())}",
                f"its Jobs go on: onejob attach run/{self._run.id}",
                exit_code=EXIT_FAILED,
            ) from None
        if not self._progress.done:
            self._display.notice(
                f"no Pod can start; the Jobs are kept (onejob attach run/{self._run.id} waits)"
            )
            return EXIT_FAILED, "Blocked"
        if self._progress.all_complete:
            return EXIT_OK, "Complete"
        return self._failed_exit_code(), "Failed"

    async def _interrupted(self, following: "asyncio.Task[None]") -> tuple[int, str]:
        code = 128 + self._stop.signal
        hurried = asyncio.Event()
        self._stop.on_second(hurried.set)
        if self._stop.signal == signal.SIGINT and sys.stdin.isatty() and sys.stderr.isatty():
            self._display.close()
            answer = await ask_detach_or_delete(hurried, following)
            if answer == "ended":
                return self._followed(following)
            if answer == "delete":
                await delete_run_objects(
                    self._client, self._run.id, self._namespaces(()), self._rng
                )
                print(f"run/{self._run.id} deleted", file=sys.stderr)
                return EXIT_INTERRUPTED, "Deleted"
        print(
            f"run/{self._run.id} goes on (onejob attach run/{self._run.id} follows it)",
            file=sys.stderr,
        )
        return code, "Detached"

    # --- report ---------------------------------------------------------------------------

    def _print_detached(self) -> None:
        name = f"run/{self._run.id}"
        print(f"{name} started at {self._connection.server}")
        print(f"  onejob attach {name}   # follow it")
        for job in self._progress:
            print(f"  onejob why {job.title} --run {self._run.id}")

    def _note_end(self, folder: Path, outcome: str, exit_code: int) -> None:
        """Record the end of the run; a detached one has none yet."""
        if outcome in ("Detached", "Blocked"):
            return
        stopped = ""
        if outcome == "TimedOut":
            stopped = self._stopped_by(outcome)
        elif outcome == "Deleted":
            stopped = "its user, who deleted it"
        now = self._clock.now()
        self._run = replace(
            self._run,
            jobs=self._ran_jobs(),
            finished_at=now,
            exit_code=exit_code,
            stopped_by=stopped,
            stopped_at=now if stopped else None,
        )
        write_record(folder, self._run)

    def _unpassed_variable(self, last_lines: Any) -> str:
        """Return "": Pods of a cluster do not inherit this environment."""
        return ""

    def _hints(self, data_dir: DataDir) -> str:
        job = next((job for job in self._progress if not job.complete), None)
        title = "job/NAME" if job is None else job.title
        verbs = ("why", "logs", "describe")
        words = [f"onejob {verb} {title} --run {self._run.id}" for verb in verbs]
        return f"More: {', '.join(words)}\n"
