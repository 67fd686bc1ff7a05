"""Watch loop of a run: updates progress from Job, Pod and Event watches, and drives a display."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from onejob.cli.run.plain import Display, LogLine
from onejob.cli.run.progress import EndedPod, JobProgress, RunProgress
from onejob.client.base import Client, Selection, WatchEvent
from onejob.clock import Clock
from onejob.diagnosis.pod_waits import find_wait, start_hint
from onejob.objects.job import Job, read_job
from onejob.objects.meta import EVENTS, JOBS, PODS, WORKFLOWS, Key, View
from onejob.objects.pod import Pod, Terminated, read_pod
from onejob.planning.names import PROGRESS_MARKS
from onejob.planning.pod.placement import NodeView
from onejob.wire.errors import Expired

if TYPE_CHECKING:
    from onejob.cli.run.outputs import Output

_TICK_SECONDS: Final = 0.1
#: Seconds to wait for the last output of a finished Job's Pods.
_LAST_OUTPUT_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 0.005
#: Pods that started less than this ago are assumed to be starting normally: the reason for their
#: waiting is not looked up.
_LOOK_AFTER: Final = timedelta(seconds=0.3)
_LOOKS_PER_TICK: Final = 50
#: Reasons of Events whose content is shown from the Pod's status instead (`pod_failed`,
#: `pod_waits`).
_SHOWN_ELSEWHERE: Final = frozenset(
    {"Failed", "FailedMount", "FailedScheduling", "NodeUnderPressure"}
)
_START_FAILURES: Final = ("StartError", "ContainerCannotRun")


#: Seconds between two looks at the progress files of Pods.
_PROGRESS_SECONDS: Final = 2.0
#: Namespace and label selector of Jobs and Pods to watch.
Scope: TypeAlias = tuple[str, str]
EVERYWHERE: Final[Scope] = ("", "")
_MARKS: Final = tuple(mark.encode() for mark in PROGRESS_MARKS)


class LogSource(Protocol):
    """Log output of started containers, by Pod UID, container and attempt."""

    def follow(self, uid: str, container: str, attempt: int) -> AsyncIterator[bytes]:
        """Yield the container's output until it ends."""

    def is_silent(self, uid: str, container: str, attempt: int) -> bool:
        """Return True if the attempt is known, without reading, to have written nothing so far."""

    def tail(self, uid: str, container: str, attempt: int, lines: int) -> AsyncIterator[bytes]:
        """Yield the last `lines` lines written so far."""


class Follower:
    """Watch loop of one run: keeps `RunProgress` up to date and feeds the display and outputs.

    Guarantees: the display is called from the event loop's thread only. A watch that ends or
    expires is resumed; any other error ends `until_done`. `close` cancels all tasks, and must be
    called also after an error.
    """

    def __init__(
        self,
        client: Client,
        run: RunProgress,
        display: Display,
        clock: Clock,
        logs: LogSource | None,
        *,
        node: Callable[[], NodeView | None],
        folder: str,
        keep_waiting: bool = False,
        outputs: "Sequence[Output]" = (),
        queued: bool = False,
        data_dir: Path | None = None,
        scopes: Sequence[Scope] = (EVERYWHERE,),
        patience_seconds: float = _LAST_OUTPUT_SECONDS,
    ) -> None:
        """Set up a follower; `until_done` starts it.

        `folder` is the working directory of commands. With `keep_waiting`, Pods that can never
        start are waited for nevertheless. `outputs` receive the complete output, however long that
        takes. With `queued`, Jobs may have to wait before they start, and the display is notified
        when they do. `data_dir` has the files in which containers report their progress. `scopes`
        select the objects to watch. `patience_seconds` is how long to wait for the last output of
        finished Jobs.
        """
        self._patience_seconds = patience_seconds
        self._scopes = scopes
        self._data_dir = data_dir
        self._progress_due = 0.0
        self._outputs = outputs
        self._client = client
        self._run = run
        self._display = display
        self._clock = clock
        self._logs = logs
        self._node = node
        self._folder = folder
        self._keep_waiting = keep_waiting
        #: Pods that have not started, by UID, with their newest document until it is read.
        self._unread_waits: dict[str, tuple[JobProgress, bytes]] = {}
        self._shown_waits: set[tuple[str, str]] = set()
        self._shown_start_failures: set[tuple[str, str]] = set()
        #: State in which each Job was shown, by UID; None if the caller shows their start.
        self._shown_starts: dict[str, str] | None = {} if queued else None
        self._done = asyncio.Event()
        self._failure: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: Log tasks, each with the UIDs of the Job and of the Pod.
        self._log_tasks: dict[asyncio.Task[None], tuple[str, str]] = {}
        #: Failed Pods whose last log lines are still being shown, by UID.
        self._pending_failures: dict[str, tuple[JobProgress, EndedPod]] = {}
        self._shown_ended: set[str] = set()
        self._followed: set[tuple[str, str, int]] = set()
        #: Events of Pods whose Jobs have not appeared yet, by UID of the Job; only of workflows.
        self._early: dict[str, list[WatchEvent]] = {}
        #: UIDs of Jobs that other clients created, through the API of the dashboard.
        self._foreign: set[str] = set()

    async def until_done(self, revision: int) -> None:
        """Follow all changes after `revision` until the run is done or blocked.

        Returns when every Job is finished or deleted and its last log lines were shown, or when
        none of the remaining Jobs can ever make progress; these have a `blocked_by` then. Raises
        any error that ends a watch.
        """
        self._tasks = [asyncio.create_task(self._tick())]
        for namespace, labels in self._scopes:
            watches: list[tuple[Selection, Callable[[WatchEvent], None]]] = [
                (Selection(JOBS, namespace, labels), self._job_event),
                (Selection(PODS, namespace, labels), self._pod_event),
                (Selection(EVENTS, namespace, fields="type=Warning"), self._warning),
            ]
            if self._run.workflows:
                watches.append((Selection(WORKFLOWS, namespace, labels), self._workflow_event))
            for what, handle in watches:
                self._tasks.append(asyncio.create_task(self._watch(what, revision, handle)))
        done = asyncio.create_task(self._done.wait())
        try:
            await asyncio.wait([done, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
            if self._failure is not None:
                raise self._failure
            if self._run.done:
                await self._settle()
        finally:
            done.cancel()

    async def close(self, *, wait: bool = True) -> None:
        """Cancel all tasks; with `wait`, after `patience_seconds` at most for the last output."""
        if self._log_tasks and wait:
            await asyncio.wait(self._log_tasks, timeout=self._patience_seconds)
        tasks = [*self._tasks, *self._log_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self) -> None:
        """Show the ended Jobs, after waiting for events that are still on their way.

        Watches are independent: the end of a Job may arrive before the earlier ends of its Pods.
        """
        deadline = self._clock.monotonic() + self._patience_seconds
        while self._clock.monotonic() < deadline or (self._outputs and self._log_tasks):
            self._show_ended()
            if len(self._shown_ended) == len(self._run.jobs) and self._run.all_seen:
                break
            await asyncio.sleep(_SETTLE_SECONDS)
        self._show_ended(at_last=True)
        for workflow in self._run.workflows.values():
            self._display.workflow_ended(workflow, self._clock.now())

    def _show_ended(self, *, at_last: bool = False) -> None:
        """Show Jobs that are done, once the logs of their Pods have been shown."""
        still_writing = {job for job, _ in self._log_tasks.values()}
        for uid, job in self._run.jobs.items():
            if uid not in self._shown_ended and job.done:
                quiet = _accounted_for(job) and uid not in still_writing
                if quiet or at_last:
                    self._shown_ended.add(uid)
                    self._display.job_ended(job, self._clock.now())

    async def _watch(
        self, what: Selection, revision: int, handle: Callable[[WatchEvent], None]
    ) -> None:
        while True:
            try:
                async with aclosing(self._client.watch(what, after=revision)) as batches:
                    async for batch in batches:
                        for event in batch:
                            revision = event.revision
                            if event.type != "BOOKMARK":
                                handle(event)
            except Expired:
                # The watch fell behind: relist, and continue from the current state.
                listing = await self._client.list(what)
                for document in listing.documents:
                    handle(WatchEvent("MODIFIED", _NO_KEY, listing.revision, document))
                revision = listing.revision

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.now()
            self._show_ended()
            self._read_waits(now)
            if not self._keep_waiting and self._run.blocked(now):
                for job in self._run:
                    if not job.done:
                        job.blocked_by = job.lasting_wait or job.any_wait
                        if job.workflow and job.blocked_by is not None:
                            workflow = self._run.workflows[job.workflow]
                            workflow.blocked_by = f"{job.title}: {job.blocked_by.text}"
                self._done.set()
            if self._data_dir is not None and self._clock.monotonic() >= self._progress_due:
                self._progress_due = self._clock.monotonic() + _PROGRESS_SECONDS
                await self._read_progress(self._data_dir, now)
            self._display.tick(self._run, now)

    async def _read_progress(self, data_dir: Path, now: datetime) -> None:
        for uid, job in self._run.jobs.items():
            if not job.done and any(mark in bytes(job.job.spec.template) for mark in _MARKS):
                from onejob.node.outputs.serving import OutputFiles
                from onejob.planning.progress import sum_up

                found = await OutputFiles(data_dir).progress(job.key.namespace, uid)
                job.reported = sum_up(found, now) if found else None

    def _read_waits(self, now: datetime) -> None:
        """Look up why Pods do not start; each of their documents is read once."""
        for uid, (job, document) in list(islice(self._unread_waits.items(), _LOOKS_PER_TICK)):
            pod = job.running.get(uid)
            if pod is not None and now - pod.since < _LOOK_AFTER:
                continue
            del self._unread_waits[uid]
            if pod is None:
                continue
            pod.record_wait(find_wait(document, self._node()), now)
            wait = pod.wait
            if wait is None or not wait.explained:
                continue
            # Pods of one Job mostly wait for the same reason, which is shown once.
            seen = (job.job.metadata.uid, wait.text.replace(pod.name, "").replace(uid, ""))
            if seen not in self._shown_waits:
                self._shown_waits.add(seen)
                self._display.pod_waits(job, pod.name, wait)

    def _job_event(self, event: WatchEvent) -> None:
        job = read_job(event.document)
        progress = self._run.jobs.get(job.metadata.uid)
        now = self._clock.now()
        if progress is None and self._run.workflows:
            progress = self._adopt(job, now)
        if progress is None:
            return
        if not progress.done:
            progress.saw_job(job, now, deleted=event.type == "DELETED")
            if progress.workflow and progress.done:
                self._run.workflows[progress.workflow].moved_at = now
        if self._shown_starts is not None:
            self._show_start(progress, self._shown_starts)
        if progress.done and self._run.done:
            self._done.set()

    def _adopt(self, job: Job, now: datetime) -> JobProgress | None:
        """Add the Job of a workflow's task, and handle the events of its Pods that came first."""
        from onejob.cli.workflows.progress import owner_of

        workflow = self._run.workflows.get(owner_of(job))
        if workflow is None:
            self._foreign.add(job.metadata.uid)
            self._early.pop(job.metadata.uid, None)
            return None
        progress = self._run.expect(job, now)
        progress.workflow = workflow.workflow.metadata.uid
        workflow.moved_at = now
        # What came before it, first.
        self._show_ended()
        if self._shown_starts is None:
            self._display.job_started(progress)
        for event in self._early.pop(job.metadata.uid, ()):
            self._pod_event(event)
        if progress.done and self._run.done:
            self._done.set()
        return progress

    def _workflow_event(self, event: WatchEvent) -> None:
        from onejob.cli.workflows.progress import end_text
        from onejob.objects.workflow import read_workflow

        workflow = read_workflow(event.document)
        progress = self._run.workflows.get(workflow.metadata.uid)
        if progress is None or progress.done:
            return
        progress.saw(workflow, self._clock.now(), deleted=event.type == "DELETED")
        for task in progress.new_ends():
            if text := end_text(task):
                self._display.task_ended(progress, text)
        if self._run.done:
            self._done.set()

    def _show_start(self, progress: JobProgress, shown: dict[str, str]) -> None:
        """Show once that a Job waits in the queue, and once that it has started."""
        job = progress.job
        uid, before = job.metadata.uid, shown.get(job.metadata.uid, "")
        if job.spec.suspend:
            if not before:
                shown[uid] = "queued"
                self._display.job_queued(progress)
        elif before != "started" and (job.status.start_time is not None or progress.done):
            shown[uid] = "started"
            self._display.job_started(progress)

    def _pod_event(self, event: WatchEvent) -> None:
        pod = read_pod(event.document)
        progress = self._run.of_pod(pod)
        if progress is None:
            owner = pod.metadata.controller_ref
            if self._run.workflows and owner is not None and owner.uid not in self._foreign:
                self._early.setdefault(owner.uid, []).append(event)
            return
        change = progress.saw_pod(pod, self._clock.now(), deleted=event.type == "DELETED")
        self._follow_logs(progress, event.document, pod)
        uid = pod.metadata.uid
        if uid in progress.running and (pod.phase == "Pending" or b'"waiting"' in event.document):
            self._unread_waits[uid] = (progress, event.document)
        else:
            self._unread_waits.pop(uid, None)
        if pod.spec.restart_policy != "Never" and not pod.terminal:
            self._show_restarting(progress, event.document, pod)
        if change == "failed":
            self._pending_failures[pod.metadata.uid] = (progress, progress.failures[-1])
            self._show_failed(pod.metadata.uid)

    def _show_failed(self, uid: str) -> None:
        """Show a failed Pod after its last log lines, which mostly explain the failure."""
        still_writing = {pod for _, pod in self._log_tasks.values()}
        if uid in self._pending_failures and uid not in still_writing:
            job, pod = self._pending_failures.pop(uid)
            self._display.pod_failed(job, pod)
            if pod.reason in _START_FAILURES:
                self._hint_at_start(job, pod.message)

    def _show_restarting(self, job: JobProgress, document: bytes, pod: Pod) -> None:
        """Show a container that cannot be started in a Pod that keeps restarting it."""
        statuses = statuses_decoder.decode(document).status
        for status in (*statuses.init_container_statuses, *statuses.container_statuses):
            end = status.last_end
            if end is None or end.reason not in _START_FAILURES:
                continue
            if (job.job.metadata.uid, end.message) not in self._shown_start_failures:
                name = pod.metadata.name
                self._display.notice(f"pod {name}: {status.name} cannot start: {end.message}")
                self._hint_at_start(job, end.message)

    def _hint_at_start(self, job: JobProgress, message: str) -> None:
        """Show the hint for a start failure once per Job and message."""
        seen = (job.job.metadata.uid, message)
        if seen not in self._shown_start_failures:
            self._shown_start_failures.add(seen)
            self._display.hint(start_hint(message, self._folder))

    def _warning(self, event: WatchEvent) -> None:
        seen = _event_decoder.decode(event.document)
        about = seen.involved_object
        # The end of a Job is shown from its status; rejected Pods appear only in Events.
        worth_showing = (about.kind == "Pod" and seen.reason not in _SHOWN_ELSEWHERE) or (
            about.kind == "Job" and seen.reason == "FailedCreate"
        )
        if event.type == "ADDED" and worth_showing and self._is_own(about):
            self._display.notice(f"{about.kind.lower()} {about.name}: {seen.message}")

    def _is_own(self, about: "_Involved") -> bool:
        """Return whether an Event may be about this run; its namespace may have other objects."""
        if self._scopes == (EVERYWHERE,):
            return True
        return about.uid in self._run.jobs or any(about.uid in job.running for job in self._run)

    def _follow_logs(self, job: JobProgress, document: bytes, pod: Pod) -> None:
        if self._logs is None:
            return
        statuses = statuses_decoder.decode(document).status
        several = len(pod.spec.containers) + len(pod.spec.init_containers) > 1
        for status in (*statuses.init_container_statuses, *statuses.container_statuses):
            # The status shows the last attempt only; several may have started since the previous
            # status.
            for attempt in range(status.begun):
                key = (pod.metadata.uid, status.name, attempt)
                if key in self._followed:
                    continue
                self._followed.add(key)
                if attempt < status.ended and self._logs.is_silent(*key):
                    continue
                pieces = self._logs.follow(*key)
                shown = status.name if several else ""
                shown_log = self._show_log(pieces, pod.metadata.name, shown, job.prefix(pod))
                task = asyncio.create_task(shown_log)
                self._log_tasks[task] = (job.job.metadata.uid, pod.metadata.uid)
                task.add_done_callback(self._log_ended)

    async def _show_log(
        self, pieces: AsyncIterator[bytes], pod: str, container: str, prefix: str
    ) -> None:
        rest = b""
        try:
            async for piece in pieces:
                for output in self._outputs:
                    output.write(pod, container, piece)
                *lines, rest = (rest + piece).split(b"\n")
                if lines:
                    self._display.wrote([LogLine(prefix, container, _text(line)) for line in lines])
            if rest:
                self._display.wrote([LogLine(prefix, container, _text(rest))])
        finally:
            for output in self._outputs:
                output.end(pod, container)

    def _log_ended(self, task: asyncio.Task[None]) -> None:
        _, pod = self._log_tasks.pop(task)
        self._show_failed(pod)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._done.set()


def _accounted_for(job: JobProgress) -> bool:
    status = job.job.status
    return job.gone or job.ended_pods >= status.succeeded + status.failed


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


class _LastState(View, frozen=True):
    terminated: Terminated | None = None


class _ContainerStatus(View, frozen=True):
    name: str = ""
    restart_count: int = 0
    #: One key: waiting, running or terminated.
    state: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    last_state: _LastState = _LastState()

    @property
    def begun(self) -> int:
        """Number of attempts that have started."""
        return self.ended + ("running" in self.state)

    @property
    def ended(self) -> int:
        """Number of attempts that have ended, also while the container waits for a restart."""
        waits = "waiting" in self.state and self.last_state.terminated is not None
        return self.restart_count + (self.has_ended or waits)

    @property
    def has_ended(self) -> bool:
        return "terminated" in self.state

    @property
    def last_end(self) -> Terminated | None:
        """Return the end of the container's last run, or None."""
        if self.has_ended:
            return msgspec.json.decode(self.state["terminated"], type=Terminated)
        return self.last_state.terminated


class _PodStatus(View, frozen=True):
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class ContainersOfPod(View, frozen=True):
    status: _PodStatus = _PodStatus()


class _Involved(View, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Event(View, frozen=True):
    involved_object: _Involved = _Involved()
    reason: str = ""
    message: str = ""


statuses_decoder = msgspec.json.Decoder(ContainersOfPod)
_event_decoder = msgspec.json.Decoder(_Event)
_NO_KEY: Final = Key("", "", "")
