"""Line-by-line display of a run: for pipes, CI logs, `--plain`, and before the live display."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol, TextIO

import msgspec

from onejob.cli.display.terminal import Terminal, visible
from onejob.cli.run.progress import EndedPod, JobProgress, RunProgress
from onejob.diagnosis.durations import short_seconds
from onejob.diagnosis.pod_waits import PodWait
from onejob.planning.names import AFTER_ANNOTATION

if TYPE_CHECKING:
    from onejob.cli.workflows.progress import WorkflowProgress

#: Minimum interval between two progress lines of a Job.
_PROGRESS_EVERY: Final = timedelta(seconds=5)
#: Failures printed as they happen, per Job; the summary counts them all.
_FAILURES_SHOWN: Final = 20
_PREFIX_COLOURS: Final = ("cyan", "magenta", "blue", "yellow", "green")


class LogLine(msgspec.Struct, frozen=True):
    #: Name of the Pod, or its parameters.
    pod: str
    #: "" if the Pod has only one container.
    container: str
    text: str


class Display(Protocol):
    """Receiver of all events of a run.

    Guarantees: calls come in the order of events, from one thread. Requirements: `notice` must work
    after `close`, and `close` may be called twice.
    """

    def job_started(self, job: JobProgress) -> None: ...

    def job_queued(self, job: JobProgress) -> None: ...

    def pod_failed(self, job: JobProgress, pod: EndedPod) -> None: ...

    def pod_waits(self, job: JobProgress, pod: str, wait: PodWait) -> None: ...

    def hint(self, text: str) -> None:
        """Show how to fix the problem that was shown last."""

    def job_ended(self, job: JobProgress, now: datetime) -> None: ...

    def workflow_started(self, workflow: "WorkflowProgress") -> None: ...

    def task_ended(self, workflow: "WorkflowProgress", text: str) -> None:
        """Show the end of a task that started no Job."""

    def workflow_ended(self, workflow: "WorkflowProgress", now: datetime) -> None: ...

    def wrote(self, lines: Sequence[LogLine]) -> None: ...

    def notice(self, text: str) -> None: ...

    def tick(self, run: RunProgress, now: datetime) -> None:
        """Redraw, or print progress; called regularly."""

    def close(self) -> None:
        """Stop drawing and leave the screen as it is; ordinary output may follow."""


class QuietDisplay:
    """Display for `-q`: prints nothing; the caller prints the result at the end."""

    def job_started(self, job: JobProgress) -> None: ...

    def job_queued(self, job: JobProgress) -> None: ...

    def pod_failed(self, job: JobProgress, pod: EndedPod) -> None: ...

    def pod_waits(self, job: JobProgress, pod: str, wait: PodWait) -> None: ...

    def hint(self, text: str) -> None: ...

    def job_ended(self, job: JobProgress, now: datetime) -> None: ...

    def workflow_started(self, workflow: "WorkflowProgress") -> None: ...

    def task_ended(self, workflow: "WorkflowProgress", text: str) -> None: ...

    def workflow_ended(self, workflow: "WorkflowProgress", now: datetime) -> None: ...

    def wrote(self, lines: Sequence[LogLine]) -> None: ...

    def notice(self, text: str) -> None: ...

    def tick(self, run: RunProgress, now: datetime) -> None: ...

    def close(self) -> None: ...


class PlainDisplay:
    """Display that writes one line per event and never redraws.

    Guarantees: each event is flushed, so that pipes and CI logs show it at once. Per Job, at most
    `_FAILURES_SHOWN` failures are printed, and one progress line per `_PROGRESS_EVERY`. `close` has
    no effect, so every method works after it.
    """

    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        self._stream = stream
        self._terminal = terminal
        self._shown_failures: dict[str, int] = {}
        self._shown_progress: dict[str, tuple[datetime, str]] = {}
        self._shown_retry: dict[str, datetime] = {}
        self._colours: dict[str, str] = {}

    def write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def job_started(self, job: JobProgress) -> None:
        self.write(f"{self._title(job)}: started ({job_size_text(job)})\n")

    def job_queued(self, job: JobProgress) -> None:
        after = job.job.metadata.annotations.get(AFTER_ANNOTATION)
        text = f"waits for {visible(after)}" if after else "queued"
        self.write(f"{self._title(job)}: {text} ({job_size_text(job)})\n")

    def pod_failed(self, job: JobProgress, pod: EndedPod) -> None:
        uid = job.job.metadata.uid
        shown = self._shown_failures[uid] = self._shown_failures.get(uid, 0) + 1
        if shown <= _FAILURES_SHOWN:
            title = f" ({visible(pod.title)})" if job.rows else ""
            what = self._terminal.paint(f"pod {pod.name}{title} failed", "red")
            self.write(f"{self._title(job)}: {what}: {pod_end_text(pod)}\n")
        if shown == _FAILURES_SHOWN:
            self.write(f"{self._title(job)}: further failures are shown in the summary\n")

    def pod_waits(self, job: JobProgress, pod: str, wait: PodWait) -> None:
        if wait.lasting:
            what = self._terminal.paint(f"pod {pod} cannot start", "red")
            self.write(f"{self._title(job)}: {what}: {visible(wait.text)}\n")
            self.hint(wait.next_step)
        else:
            text = visible(wait.message if wait.for_room else wait.text)
            self.write(f"{self._title(job)}: pod {pod}: {text}\n")

    def hint(self, text: str) -> None:
        if text:
            self.write(f"{self._terminal.paint('hint', 'yellow')}: {visible(text)}\n")

    def job_ended(self, job: JobProgress, now: datetime) -> None:
        colour = "green" if job.complete else "red"
        verdict = self._terminal.paint(job.outcome, colour)
        took = short_seconds(job.wall_seconds(now))
        condition = job.job.finished_condition
        why = ""
        if condition is not None and not job.complete:
            why = f": {condition.reason}: {visible(condition.message)}"
        self.write(f"{self._title(job)}: {verdict} in {took}{why}\n")

    def workflow_started(self, workflow: "WorkflowProgress") -> None:
        from onejob.cli.workflows.screen import started_text

        self.write(f"{self._terminal.paint(workflow.title, 'bold')}: {started_text(workflow)}\n")

    def task_ended(self, workflow: "WorkflowProgress", text: str) -> None:
        self.write(f"{self._terminal.paint(workflow.title, 'bold')}: {text}\n")

    def workflow_ended(self, workflow: "WorkflowProgress", now: datetime) -> None:
        from onejob.cli.workflows.screen import ended_text

        text = ended_text(workflow, now, self._terminal)
        self.write(f"{self._terminal.paint(workflow.title, 'bold')}: {text}\n")

    def wrote(self, lines: Sequence[LogLine]) -> None:
        """Print log lines with their prefix."""
        self.write("".join(f"{self._prefix(line)} {self._shown(line)}\n" for line in lines))

    def notice(self, text: str) -> None:
        self.write(f"{self._terminal.paint('note', 'yellow')}: {visible(text)}\n")

    def tick(self, run: RunProgress, now: datetime) -> None:
        for job in run:
            if not job.done:
                self._print_retry(job, now)
                self._print_progress(job, now)

    def close(self) -> None:
        pass

    def _print_retry(self, job: JobProgress, now: datetime) -> None:
        uid = job.job.metadata.uid
        retry_at = job.retry_at(now)
        shown = self._shown_retry.get(uid)
        # The same retry, computed again a moment later.
        if retry_at is None or (shown is not None and abs(retry_at - shown) < timedelta(seconds=1)):
            return
        self._shown_retry[uid] = retry_at
        self.write(f"{self._title(job)}: {retry_text(job, retry_at, now)}\n")

    def _print_progress(self, job: JobProgress, now: datetime) -> None:
        uid = job.job.metadata.uid
        text = counts_text(job)
        shown_at, shown = self._shown_progress.setdefault(uid, (now, text))
        if text != shown and now - shown_at >= _PROGRESS_EVERY:
            self._shown_progress[uid] = (now, text)
            self.write(f"{self._title(job)}: {text}\n")

    def _title(self, job: JobProgress) -> str:
        return self._terminal.paint(job.title, "bold")

    def _shown(self, line: LogLine) -> str:
        """Return the line's text; on a terminal, only the part after the last carriage return.

        The redraws of a progress bar would overwrite the prefix.
        """
        if not self._terminal.interactive or "\r" not in line.text:
            return line.text
        return line.text.rstrip("\r").rpartition("\r")[2]

    def _prefix(self, line: LogLine) -> str:
        name = f"{line.pod}/{line.container}" if line.container else line.pod
        return self._terminal.paint(f"[{visible(name)}]", self.colour_of(name))

    def colour_of(self, name: str) -> str:
        if name not in self._colours:
            if len(self._colours) > 1000:
                self._colours.clear()
            self._colours[name] = _PREFIX_COLOURS[len(self._colours) % len(_PREFIX_COLOURS)]
        return self._colours[name]


class NotesDisplay(PlainDisplay):
    """Display without container output, which `-o raw` writes to stdout."""

    def wrote(self, lines: Sequence[LogLine]) -> None: ...


def job_size_text(job: JobProgress) -> str:
    spec = job.job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    at_a_time = f"{parallelism} at a time"
    if spec.completions is None:
        return f"work queue, {at_a_time}"
    one, many = ("index", "indexes") if job.job.indexed else ("completion", "completions")
    size = f"{spec.completions} {one if spec.completions == 1 else many}"
    return f"{size}, {at_a_time}" if spec.completions > 1 else size


def pod_end_text(pod: EndedPod) -> str:
    code = f"exit code {pod.exit_code}" if pod.exit_code is not None else ""
    known = pod.reason if pod.reason not in ("", "Error", "Completed") else ""
    parts = [part for part in (code, known) if part]
    text = ", ".join(parts) or "no exit status"
    if pod.stopped:
        text = f"stopped ({text})"
    return f"{text}: {visible(' '.join(pod.message.split()))}" if pod.message else text


def counts_text(job: JobProgress) -> str:
    status = job.job.status
    goal = "" if job.goal is None else f"/{job.goal}"
    parts = [f"{status.succeeded}{goal} succeeded", f"{status.active} active"]
    if status.failed:
        parts.append(f"{status.failed} failed")
    if job.reported is not None:
        from onejob.planning.progress import progress_bar

        parts.append(f"progress {progress_bar(job.reported, width=0)}")
    return ", ".join(parts)


def retry_text(job: JobProgress, retry_at: datetime, now: datetime) -> str:
    seconds = max(0, ceil((retry_at - now).total_seconds()))
    limit = job.job.spec.backoff_limit
    per_index = job.job.spec.backoff_limit_per_index is not None
    of = f" of {limit}" if limit is not None and not per_index else ""
    number = "" if per_index else f" {job.failed_pods}{of}"
    return f"retry{number} in {seconds}s"
