"""Lifecycle of one run: start a control plane, create the objects, follow them, stop, report.

Whatever ends a run early (Ctrl-C, a closed terminal, a time-out, a bug) stops its Pods gracefully
first.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
from msgspec.structs import replace

from onejob import own_process
from onejob.cli.display.terminal import Terminal, silence_output, terminal_of
from onejob.cli.errors import EXIT_FAILED, EXIT_OK, EXIT_TIMED_OUT, CommandError
from onejob.cli.kept_runs import (
    Run,
    RunClaim,
    RunFolder,
    RunJob,
    create_folder,
    new_run_id,
    prune,
)
from onejob.cli.manifests.job_from_command import inherited
from onejob.cli.places import DataDir
from onejob.cli.run.cpu_time import workload_cpu_seconds
from onejob.cli.run.following import Follower, LogSource
from onejob.cli.run.plain import Display, NotesDisplay, PlainDisplay, QuietDisplay
from onejob.cli.run.plan import PlannedObject, RunPlan, has_limits
from onejob.cli.run.progress import RunProgress
from onejob.cli.run.summary import LAST_LINES, SHOWN_FAILURES, render_summary, result_document
from onejob.client.base import Create, Selection
from onejob.clock import SystemClock
from onejob.control_plane import ControlPlane, Settings
from onejob.controllers.selection import ALL, CLAIMS, RUN_CONTROLLERS, WORKFLOW
from onejob.gates import FeatureGates
from onejob.node.options import NodeOptions
from onejob.node.process.pressure import short_of_space
from onejob.node.process.runtime_settings import INHERITED_VARIABLES
from onejob.node.runtime import AttemptRef, Runtime, RuntimeUnavailable
from onejob.node.setup.environment import passed_variables
from onejob.objects.job import read_job
from onejob.objects.meta import JOBS, NAMESPACES, WORKFLOWS
from onejob.planning.names import AFTER_ANNOTATION
from onejob.planning.queue.limits import Limits
from onejob.store.base import CannotOpen
from onejob.trusted_paths import NotTrusted
from onejob.wire.requests import LogOptions

if TYPE_CHECKING:
    from onejob.cli.run.background import Background
    from onejob.cli.run.outputs import Output
    from onejob.cli.run.page import PageOptions, RunPage
    from onejob.cli.workflows.progress import WorkflowProgress

log = logging.getLogger(__name__)

_BROKEN_STOP_SECONDS: Final = 3.0
_DISK_LOOK_SECONDS: Final = 1.0
#: Signals that stop a run, with their descriptions for messages.
_SIGNALS: Final = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "a closed terminal (SIGHUP)",
}


class SessionOptions(msgspec.Struct, frozen=True):
    #: None runs in a temporary folder that is removed afterwards.
    data_dir: DataDir | None
    node: NodeOptions
    gates: FeatureGates = msgspec.field(default_factory=FeatureGates)
    #: Limit for Jobs that set none; None keeps all failed Pods.
    default_failed_pods_limit: int | None = None
    queue_limits: Limits | None = None
    timeout_seconds: float | None = None
    #: Keep waiting for dependencies that Pods of this run can never get.
    keep_waiting: bool = False
    #: "json" or "yaml": a result on stdout; "raw": container output. Everything else on stderr.
    output: str | None = None
    #: Folder for one output file per Pod.
    output_dir: Path | None = None
    junit: Path | None = None
    plain: bool = False
    quiet: bool = False
    #: Exit with the exit code of the only Pod's container.
    container_exit_code: bool = False
    #: Dashboard of this run, or None.
    page: "PageOptions | None" = None
    arguments: tuple[str, ...] = ()
    #: Set in a run that was detached from its terminal.
    background: "Background | None" = None
    #: The claimed run that this one resumes.
    resumes: RunClaim | None = None


def run_session(plan: RunPlan, options: SessionOptions) -> int:
    """Execute a run and return its exit code."""
    if options.container_exit_code and not has_one_pod(plan):
        raise CommandError("--exit-code requires a single Job with a single Pod")
    return asyncio.run(Session(plan, options).run())


class Session:
    def __init__(self, plan: RunPlan, options: SessionOptions) -> None:
        self._plan = plan
        self._options = options
        self._clock = SystemClock()
        self._stream = sys.stderr if options.output else sys.stdout
        self._terminal = terminal_of(self._stream)
        self._display = choose_display(options, self._stream, self._terminal)
        self._progress = RunProgress()
        self._stop = StopRequest()
        self._hurried = False
        #: Time limit of stopping the control plane, once that has begun.
        self._stop_limit: asyncio.Timeout | None = None
        started = self._clock.now()
        self._run = Run(
            new_run_id(started, os.urandom(2).hex()),
            started,
            arguments=options.arguments,
            runtime=options.node.runtime,
            engine=options.node.engine,
        )

    async def run(self) -> int:
        folder = self._create_run_folder()
        alive = None
        if folder is not None:
            alive = asyncio.ensure_future(folder.heartbeat(self._stop.requested))
        try:
            if folder is not None:
                folder.record(self._run)
                if self._options.background is not None:
                    self._options.background.enter(folder.path)
            path = folder.path if folder is not None else Path(tempfile.mkdtemp(prefix="onejob-"))
            try:
                exit_code = await self._run_in(path, folder)
            except BaseException:
                self._record(
                    folder,
                    stopped_by=self._run.stopped_by or "an internal error",
                    finished_at=self._clock.now(),
                    exit_code=EXIT_FAILED,
                )
                raise
            finally:
                if folder is None:
                    shutil.rmtree(path, ignore_errors=True)
            self._record(folder, finished_at=self._clock.now(), exit_code=exit_code)
            return exit_code
        finally:
            if alive is not None:
                alive.cancel()
            if folder is not None:
                folder.release()

    async def _run_in(self, path: Path, folder: RunFolder | None) -> int:
        self._stop.listen()
        log_to(path / "onejob.log")
        plane, page = await self._start(self._settings(path))
        own_process.settle()
        runtime = plane.node.runtime
        logs = _RuntimeLogs(runtime)
        outputs = self._outputs()
        shown = None if self._options.quiet and not outputs else logs
        follower = Follower(
            plane.client,
            self._progress,
            self._display,
            self._clock,
            shown,
            node=plane.node.node_view,
            folder=str(Path.cwd()),
            keep_waiting=self._options.keep_waiting,
            outputs=outputs,
            queued=self._holds_jobs(),
            data_dir=plane.settings.data_dir,
        )
        disk = asyncio.create_task(self._watch_disk(path))
        reported = False
        try:
            self._warn(runtime)
            if folder is not None:
                self._take_over(folder)
            # Recorded before creation, so that the run is found by Job name even if it is killed in
            # between.
            self._record(folder, jobs=_named_jobs(self._plan))
            revision = await self._create(plane)
            self._record(folder, jobs=self._ran_jobs())
            if folder is not None:
                folder.drop_plan()
            if self._options.background is not None:
                self._options.background.created(self._run.id)
            self._stop.on_second(lambda: self._hurry(plane))
            if page is not None:
                self._announce(page.show([*self._progress]))
            exit_code, outcome = await self._follow(plane, follower, revision)
            if not self._progress.done:
                self._record(
                    folder,
                    jobs=self._ran_jobs(),
                    stopped_by=self._stopped_by(outcome),
                    stopped_at=self._clock.now(),
                )
            cpu_seconds = workload_cpu_seconds() if runtime.traits.on_host else None
            if page is not None and self._progress.done:
                await follower.close()
                self._display.close()
                await self._report(exit_code, outcome, cpu_seconds, logs)
                reported = True
                await self._stay(plane, page)
        finally:
            try:
                await self._stop_plane(plane, page)
            finally:
                disk.cancel()
                # Pods that were stopped just now may still write to their logs.
                await follower.close()
                self._display.close()
        if not reported:
            await self._report(exit_code, outcome, cpu_seconds, logs)
        return exit_code

    async def _stop_plane(self, plane: ControlPlane, page: "RunPage | None") -> None:
        """Stop the control plane, with a time limit if it has failed or the user is in a hurry.

        A failed one may be unable to stop, and the original failure is the error worth reporting;
        the supervisor stops the Pods without us.
        """
        hopeless = plane.failed.done() or self._hurried
        limit = _BROKEN_STOP_SECONDS if hopeless else None
        try:
            async with asyncio.timeout(limit) as self._stop_limit:
                await (plane if page is None else page).stop()
        except TimeoutError:
            return
        except Exception:
            if not plane.failed.done():
                raise
            log.exception("cannot stop the failed control plane")

    # --- start ----------------------------------------------------------------------------

    async def _start(self, settings: Settings) -> "tuple[ControlPlane, RunPage | None]":
        try:
            if self._options.page is None:
                return await ControlPlane.start(settings), None
            # Imported here: most runs have no dashboard and never load its dependencies.
            from onejob.cli.run.page import RunPage

            page = await RunPage.start(
                settings, self._options.data_dir, self._clock, self._options.page
            )
            return page.plane, page
        except (CannotOpen, NotTrusted, RuntimeUnavailable) as error:
            raise CommandError(str(error)) from None

    def _create_run_folder(self) -> RunFolder | None:
        data_dir = self._options.data_dir
        if data_dir is None:
            return None
        data_dir.prepare()
        prune(data_dir.runs, self._clock.now())
        return create_folder(data_dir.runs / self._run.id)

    def _outputs(self) -> "list[Output]":
        if self._options.output != "raw" and self._options.output_dir is None:
            return []
        from onejob.cli.run.outputs import FolderOutput, StreamOutput

        outputs: list[Output] = []
        if self._options.output == "raw":
            outputs.append(StreamOutput(sys.stdout.buffer))
        if self._options.output_dir is not None:
            outputs.append(FolderOutput(self._options.output_dir, self._display.notice))
        return outputs

    def _settings(self, path: Path) -> Settings:
        return Settings(
            data_dir=path,
            node=replace(
                self._options.node,
                working_dir=Path.cwd(),
                hidden=None if self._options.data_dir is None else self._options.data_dir.path,
                pods_end_with_server=True,
            ),
            gates=self._options.gates,
            default_failed_pods_limit=self._options.default_failed_pods_limit,
            queue_limits=self._options.queue_limits,
            # With a dashboard, clients have an API server and may create any kind of object.
            controllers=self._controllers(),
        )

    def _controllers(self) -> frozenset[str]:
        if self._options.page is not None:
            return ALL
        added = {WORKFLOW} if self._plan.workflows else set()
        return RUN_CONTROLLERS | added | ({CLAIMS} if self._plan.uses_claims else set())

    def _warn(self, runtime: Runtime) -> None:
        writes_host = runtime.traits.on_host and not self._options.node.host_read_only
        if os.geteuid() == 0 and writes_host:
            self._display.notice(
                "running as root: Pods can change any file of this machine (prevent it with "
                "--host-fs ro)"
            )
        # In this order: a runtime detects its limits when they are first read.
        if any(map(has_limits, self._plan.objects)):
            limits = runtime.limits_in_force
            if limits is not None and not limits.enforced:
                self._display.notice(f"limits of memory and CPU are {limits.text}")
        for notice in self._plan.notices:
            self._display.notice(notice)

    def _take_over(self, folder: RunFolder) -> None:
        """Make this run, not the one that it resumes, the authority on the remaining work."""
        resumes = self._options.resumes
        try:
            if resumes is not None:
                resumes.record_successor(self._run.id)
            node = self._options.node
            folder.keep_environment(node.caller_env, inherited(passed_variables(node)))
            folder.keep_plan([placed_document(wanted) for wanted in self._plan.objects])
        except OSError as error:
            if resumes is not None:
                raise CommandError(
                    f"cannot resume run {resumes.run.id}: {error}", exit_code=EXIT_FAILED
                ) from None
            self._display.notice(f"cannot update the record of this run: {error.strerror}")
        if resumes is not None:
            resumes.release()

    async def _create(self, plane: ControlPlane) -> int:
        """Create all objects of the plan; return the revision from which to follow."""
        revision = (await plane.client.list(Selection(JOBS), limit=1)).revision
        for wanted in self._plan.objects:
            document = msgspec.json.encode(wanted.document)
            # A namespace that onejob itself adds needs no validation.
            client = plane.client if wanted.resource == NAMESPACES else plane.checked_client
            written = await client.write(Create(wanted.resource, wanted.namespace, document))
            if wanted.resource == JOBS:
                job = self._progress.expect(
                    read_job(written.document),
                    self._clock.now(),
                    *self._indexes_of(wanted),
                )
                if not self._holds_jobs():
                    self._display.job_started(job)
            elif wanted.resource == WORKFLOWS:
                self._expect_workflow(written.document)
        return revision

    def _holds_jobs(self) -> bool:
        """Return whether Jobs may have to wait for their turn, or for other Jobs."""
        return self._options.queue_limits is not None or any(
            AFTER_ANNOTATION in (job.document["metadata"].get("annotations") or ())
            for job in self._plan.jobs
        )

    def _expect_workflow(self, document: bytes) -> None:
        from onejob.cli.workflows.progress import WorkflowProgress
        from onejob.objects.workflow import read_workflow

        workflow = WorkflowProgress(read_workflow(document), self._clock.now())
        self._progress.workflows[workflow.workflow.metadata.uid] = workflow
        self._display.workflow_started(workflow)

    def _indexes_of(self, wanted: PlannedObject) -> tuple[Sequence[str], Sequence[int]]:
        if not wanted.document["metadata"].get("annotations"):
            return (), ()
        # Imported here: only sweeps and resumed runs have parameters or other indexes.
        from onejob.cli.run.sweep_indexes import indexes_of

        return indexes_of(wanted, self._plan)

    # --- run ------------------------------------------------------------------------------

    async def _follow(
        self, plane: ControlPlane, follower: Follower, revision: int
    ) -> tuple[int, str]:
        """Return exit code and outcome: Complete, Failed, Blocked, TimedOut or Interrupted."""
        following = asyncio.create_task(follower.until_done(revision))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            awaited: list[asyncio.Future[Any]] = [following, stopping, plane.failed]
            await asyncio.wait(
                awaited,
                timeout=self._options.timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if following.done():
                following.result()
                if not self._progress.done:
                    self._display.notice(
                        "the run ends because no Pod can start (use --keep-waiting to wait)"
                    )
                    return EXIT_FAILED, "Blocked"
                if self._progress.all_complete:
                    return EXIT_OK, "Complete"
                return self._failed_exit_code(), "Failed"
            if plane.failed.done():
                raise CommandError(
                    f"internal error: {plane.failed.result()}",
                    "please report it",
                    exit_code=EXIT_FAILED,
                )
            if stopping.done():
                self._display.notice("stopping all Pods (repeat to kill them)")
                return 128 + self._stop.signal, "Interrupted"
            self._display.notice(f"timed out after {self._options.timeout_seconds:g}s, stopping")
            return EXIT_TIMED_OUT, "TimedOut"
        finally:
            self._progress.stop()
            following.cancel()
            stopping.cancel()
            await asyncio.gather(following, stopping, return_exceptions=True)

    def _announce(self, text: str) -> None:
        """Print a notice even in a quiet run: the user requested the dashboard."""
        if self._options.quiet:
            print(text, file=sys.stderr, flush=True)
        else:
            self._display.notice(text)

    async def _watch_disk(self, path: Path) -> None:
        """Report a full disk from here: an Event about it could not be written either."""
        shown = ""
        while True:
            short = short_of_space(path)
            if short and not shown:
                self._display.notice(f"{short}: waiting for free disk space")
            shown = short
            await asyncio.sleep(_DISK_LOOK_SECONDS)

    def _hurry(self, plane: ControlPlane) -> None:
        """Kill the Pods after the second signal.

        Does not wait until their ends are recorded: the disk may be full.
        """
        self._hurried = True
        plane.node.kill_pods()
        if self._stop_limit is not None and not self._stop_limit.expired():
            now = asyncio.get_running_loop().time()
            self._stop_limit.reschedule(now + _BROKEN_STOP_SECONDS)

    def _failed_exit_code(self) -> int:
        if self._options.container_exit_code:
            (job,) = self._progress
            if job.failures and job.failures[-1].exit_code:
                return job.failures[-1].exit_code
        return EXIT_FAILED

    # --- report ---------------------------------------------------------------------------

    async def _stay(self, plane: ControlPlane, page: "RunPage") -> None:
        """Keep the dashboard available after the end of the Jobs."""
        if not page.stay_text:
            return
        stream = sys.stderr if self._options.quiet else self._stream
        print(page.stay_text, file=stream, flush=True)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await page.stay(stopping, plane.failed)
        finally:
            stopping.cancel()

    async def _report(
        self, exit_code: int, outcome: str, cpu_seconds: float | None, logs: LogSource
    ) -> None:
        last_lines = await self._last_lines(logs)
        self._print_result(exit_code, outcome, cpu_seconds, last_lines)

    def _ran_jobs(self) -> tuple[RunJob, ...]:
        workflows = self._progress.workflows
        ran = [
            RunJob(
                job.job.metadata.namespace,
                job.job.metadata.name,
                job.blocked_by.text if job.blocked_by is not None and not job.done else "",
                workflows[job.workflow].workflow.metadata.name if job.workflow else "",
            )
            for job in self._progress
        ]
        known = {(job.namespace, job.name) for job in ran}
        for progress in workflows.values():
            metadata = progress.workflow.metadata
            ran += [
                RunJob(metadata.namespace, name, workflow=metadata.name)
                for name in progress.job_names
                if (metadata.namespace, name) not in known
            ]
        return tuple(ran)

    def _stopped_by(self, outcome: str) -> str:
        match outcome:
            case "TimedOut":
                return f"--timeout {self._options.timeout_seconds:g}s"
            case "Interrupted":
                return self._stop.cause
            case _:
                return "onejob, because no Pod could start"

    async def _last_lines(self, logs: LogSource) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for job in self._progress:
            distinct = [pod for pod, _ in job.distinct_failures[-SHOWN_FAILURES:]]
            for pod in {
                pod.uid: pod for pod in (*job.failures[-SHOWN_FAILURES:], *distinct)
            }.values():
                text = b""
                async for piece in logs.tail(pod.uid, pod.container, pod.attempt, LAST_LINES):
                    text += piece
                found[pod.uid] = text.decode("utf-8", "replace").splitlines()
        return found

    def _print_result(
        self,
        exit_code: int,
        outcome: str,
        cpu_seconds: float | None,
        last_lines: dict[str, list[str]],
    ) -> None:
        options, now = self._options, self._clock.now()
        if not options.quiet or exit_code != EXIT_OK:
            stream = sys.stderr if options.quiet else self._stream
            summary = render_summary(
                self._progress,
                now,
                cpu_seconds=cpu_seconds,
                last_lines=last_lines,
                terminal=self._terminal,
            )
            stream.write(summary.lstrip("\n") if options.quiet else summary)
            if exit_code != EXIT_OK and (name := self._unpassed_variable(last_lines)):
                stream.write(
                    f"\n{name} is set in this environment, but not in Pods (pass it with "
                    f"--pass-env {name})\n"
                )
            if exit_code != EXIT_OK and options.data_dir is not None:
                stream.write(f"\n{self._hints(options.data_dir)}")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from onejob.cli.run.github import annotations

            self._stream.write(annotations(self._progress, last_lines))
            self._append_github_summary(outcome, last_lines)
        if options.junit is not None:
            self._write_junit(options.junit, last_lines)
        if options.output in ("json", "yaml"):
            result = result_document(
                self._progress,
                now,
                run_id=self._run.id,
                exit_code=exit_code,
                outcome=outcome,
                cpu_seconds=cpu_seconds,
            )
            sys.stdout.write(render_result(result, options.output))

    def _write_junit(self, path: Path, last_lines: dict[str, list[str]]) -> None:
        from onejob.cli.run.junit import junit_xml

        try:
            path.write_bytes(junit_xml(self._progress, self._clock.now(), last_lines))
        except OSError as error:
            print(f"note: cannot write {path}: {error.strerror}", file=sys.stderr)

    def _append_github_summary(self, outcome: str, last_lines: Mapping[str, Sequence[str]]) -> None:
        """Append a table of the Jobs to the page of the workflow ($GITHUB_STEP_SUMMARY)."""
        from onejob.cli.run.github import step_summary

        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if not path:
            return
        text = step_summary(self._progress, self._clock.now(), outcome, last_lines)
        try:
            with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            print(f"note: cannot write {path}: {error.strerror}", file=sys.stderr)

    def _unpassed_variable(self, last_lines: Mapping[str, Sequence[str]]) -> str:
        from onejob.cli.run.missed_variables import missed_variable

        node = self._options.node
        passed = {*INHERITED_VARIABLES, *passed_variables(node), *node.caller_env}
        unpassed = [name for name in os.environ if name not in passed]
        return missed_variable((line for lines in last_lines.values() for line in lines), unpassed)

    def _hints(self, data_dir: DataDir) -> str:
        """Return the commands that explain a failed run, and those that go on."""
        job = next((job for job in self._progress if not job.complete and not job.workflow), None)
        workflows = self._progress.workflows.values()
        workflow = next((found for found in workflows if not found.complete), None)
        if workflow is not None:
            return self._workflow_hints(workflow, data_dir)
        title = "job/NAME" if job is None else job.title
        # With a server, a Job of this name is the server's. The end of the ID is unique enough.
        short = self._run.id.rpartition("-")[2] if data_dir.has_kubeconfig() else ""
        run = f" --run {short}" if short else ""
        verbs = ("why", "logs") if short else ("why", "logs", "describe")
        words = [f"onejob {verb} {title}{run}" for verb in verbs]
        lines = [f"More: {', '.join(words)}"]
        if job is not None:
            name = job.job.metadata.name
            go_on = [f"onejob run --resume {short or name}"]
            if job.job.indexed:
                go_on.insert(0, f"onejob results {name} --failed{run}")
            lines.append(f"Next: {', '.join(go_on)}")
        return "".join(f"{line}\n" for line in lines)

    def _workflow_hints(self, workflow: "WorkflowProgress", data_dir: DataDir) -> str:
        short = self._run.id.rpartition("-")[2] if data_dir.has_kubeconfig() else ""
        run = f" --run {short}" if short else ""
        words = [f"onejob {verb} {workflow.title}{run}" for verb in ("why", "graph", "logs")]
        name = short or workflow.workflow.metadata.name
        return f"More: {', '.join(words)}\nNext: onejob run --resume {name}\n"

    def _record(self, folder: RunFolder | None, **changes: object) -> None:
        if folder is None:
            return
        self._run = msgspec.structs.replace(self._run, **changes)
        try:
            folder.record(self._run)
        except OSError as error:
            # The results of the Jobs are not affected.
            self._display.notice(f"cannot update the record of this run: {error.strerror}")


class _RuntimeLogs:
    """`LogSource` on the runtime of a node in this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def follow(self, uid: str, container: str, attempt: int) -> AsyncIterator[bytes]:
        return self._runtime.logs(AttemptRef(uid, container, attempt), LogOptions(follow=True))

    def is_silent(self, uid: str, container: str, attempt: int) -> bool:
        return self._runtime.is_silent(AttemptRef(uid, container, attempt))

    def tail(self, uid: str, container: str, attempt: int, lines: int) -> AsyncIterator[bytes]:
        options = LogOptions(tail_lines=lines)
        return self._runtime.logs(AttemptRef(uid, container, attempt), options)


class StopRequest:
    """Handler of stop signals.

    The first signal requests an orderly stop, the second a quick one, and the third exits at once;
    the supervisor then stops the Pods on its own.
    """

    def __init__(self) -> None:
        self.signal = signal.SIGINT
        #: Description of the first request, for messages.
        self.cause = ""
        self._asked = asyncio.Event()
        self._hurry: Callable[[], None] | None = None

    def on_second(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_IGN:
                # Ignored by nohup, or by a shell's `&`: the run is meant to survive this signal.
                continue
            loop.add_signal_handler(number, self._on_signal, signal.Signals(number))

    async def wait(self) -> None:
        await self._asked.wait()

    def requested(self, kill: bool) -> None:
        """Handle a request of `onejob stop`, which ends the run as SIGTERM does."""
        if not self._asked.is_set():
            self.signal = signal.SIGTERM
            self.cause = "onejob stop"
            self._asked.set()
        if kill and self._hurry is not None:
            hurry, self._hurry = self._hurry, None
            hurry()

    def _on_signal(self, number: signal.Signals) -> None:
        """Stop the run at the first signal, kill its Pods at the second, exit at the third."""
        if self._asked.is_set():
            hurry, self._hurry = self._hurry, None
            if hurry is None:
                os._exit(128 + number)
            hurry()
            return
        if number == signal.SIGHUP:
            silence_output()
        self.signal = number
        self.cause = _SIGNALS[number]
        self._asked.set()


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error: the disk is probably full, which `_watch_disk` reports.

        The run goes on.
        """


def log_to(path: Path) -> None:
    """Log to a file, as the screen shows the run. The first record creates the file."""
    handler = _LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().handlers = [handler]


def choose_display(options: SessionOptions, stream: TextIO, terminal: Terminal) -> Display:
    if options.quiet:
        return QuietDisplay()
    if options.output == "raw":
        return NotesDisplay(stream, terminal)
    if terminal.interactive and not options.plain:
        from onejob.cli.run.live import LiveDisplay

        return LiveDisplay(stream, terminal)
    return PlainDisplay(stream, terminal)


def _named_jobs(plan: RunPlan) -> tuple[RunJob, ...]:
    """Return the Jobs that have a name, as opposed to a generateName."""
    jobs = [
        RunJob(wanted.namespace, wanted.document["metadata"]["name"])
        for wanted in plan.jobs
        if wanted.document["metadata"].get("name")
    ]
    for wanted in plan.workflows:
        spec, name = wanted.document["spec"], wanted.document["metadata"].get("name")
        jobs += [
            RunJob(wanted.namespace, f"{name}-{task['name']}", workflow=name)
            for task in (*spec["tasks"], *spec.get("finally", ()))
            if name
        ]
    return tuple(jobs)


def placed_document(wanted: PlannedObject) -> dict[str, Any]:
    """Return the document with its namespace, which may come from the command line only."""
    if not wanted.namespace:
        return wanted.document
    metadata = {**wanted.document["metadata"], "namespace": wanted.namespace}
    return {**wanted.document, "metadata": metadata}


def has_one_pod(plan: RunPlan) -> bool:
    if len(plan.jobs) != 1 or plan.workflows:
        return False
    spec = plan.jobs[0].document["spec"]
    return spec.get("completions") in (None, 1) and spec.get("parallelism") in (None, 1)


def render_result(result: dict[str, object], output: str) -> str:
    if output == "yaml":
        from onejob.cli.yaml_text import yaml_of

        return yaml_of(result)
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"
