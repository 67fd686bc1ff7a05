"""Live terminal display: log lines scroll by, and below them one line per Job stays.

It uses rich, but only once a run has lasted long enough to be worth the import; until then, and for
scrolling lines, the output is that of the plain display.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TextIO

from onejob.cli.display.terminal import Terminal
from onejob.cli.run.plain import PlainDisplay, retry_text
from onejob.cli.run.progress import JobProgress, RunProgress
from onejob.diagnosis.durations import short_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_LIVE_AFTER: Final = timedelta(seconds=0.4)
#: Log lines shown per redraw; more are unreadable, and `onejob logs` has them all.
_LINES_PER_TICK: Final = 300
_TITLE_WIDTH: Final = 28
_BAR_WIDTH: Final = 40


class LiveDisplay(PlainDisplay):
    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        super().__init__(stream, terminal)
        self._first_tick: datetime | None = None
        self._live: Live | None = None
        self._waiting: list[str] = []

    def write(self, text: str) -> None:
        if self._live is None:
            super().write(text)
        else:
            self._waiting.extend(text.splitlines())

    def tick(self, run: RunProgress, now: datetime) -> None:
        """Redraw the display."""
        self._first_tick = self._first_tick or now
        if self._live is None:
            if now - self._first_tick < _LIVE_AFTER:
                return
            self._live = self._start()
        self._flush_lines(self._live)
        self._live.update(draw_jobs(run, now, self._live.console.height), refresh=True)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._flush_lines(live)
            live.stop()

    def _start(self) -> "Live":
        from rich.console import Console
        from rich.live import Live

        console = Console(
            file=self._stream,
            no_color=not self._terminal.colour,
            highlight=False,
            soft_wrap=True,
        )
        live = Live(console=console, auto_refresh=False, transient=True)
        live.start()
        return live

    def _flush_lines(self, live: "Live") -> None:
        """Print the waiting log lines above the live display."""
        if not self._waiting:
            return
        from rich.text import Text

        lines, self._waiting = self._waiting, []
        if len(lines) > _LINES_PER_TICK:
            skipped = len(lines) - _LINES_PER_TICK
            note = f"... {skipped} lines not shown (see onejob logs)"
            lines = [self._terminal.paint(note, "dim"), *lines[-_LINES_PER_TICK:]]
        # Programs may write escape sequences of their own: colours pass, the rest is dropped.
        live.console.print(Text.from_ansi("\n".join(lines)))


def draw_jobs(run: RunProgress, now: datetime, height: int) -> "RenderableType":
    """Return one line per unfinished Job, for half the height at most; log lines get the rest."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    unfinished = [job for job in run if not job.done]
    limit = max(1, height // 2)
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, max_width=_TITLE_WIDTH, overflow="ellipsis")
    table.add_column(min_width=6, max_width=_BAR_WIDTH)
    table.add_column(no_wrap=True)
    for workflow in run.workflows.values():
        from onejob.cli.workflows.screen import add_live_rows

        if not workflow.done and limit > 1:
            limit -= add_live_rows(table, workflow, now, limit // 2)
    shown = unfinished[: max(1, limit)]
    for job in shown:
        table.add_row(Text(job.title, style="bold"), _progress_bar(job), _progress_text(job, now))
    if len(shown) == len(unfinished):
        return table
    return Group(table, Text(f"... and {len(unfinished) - len(shown)} more Jobs", style="dim"))


def _progress_bar(job: JobProgress) -> "RenderableType":
    from rich.progress_bar import ProgressBar

    if job.goal is None:
        return ProgressBar(total=None, pulse=True, animation_time=0)
    return ProgressBar(total=max(job.goal, 1), completed=job.job.status.succeeded)


def _progress_text(job: JobProgress, now: datetime) -> "RenderableType":
    from rich.text import Text

    status = job.job.status
    goal = "" if job.goal is None else f"/{job.goal}"
    text = Text()
    text.append(f"{status.succeeded}{goal}", style="green")
    text.append(f" {status.active} active")
    if status.failed:
        text.append(f" {status.failed} failed", style="red")
    if job.reported is not None:
        from onejob.planning.progress import progress_bar

        text.append(f" {progress_bar(job.reported)}")
    retry_at = job.retry_at(now)
    rate, left = job.rate(now), job.seconds_left(now)
    if retry_at is not None:
        text.append(f" {retry_text(job, retry_at, now)}", style="yellow")
    elif left is not None:
        text.append(f" {rate:.1f}/s ETA {short_seconds(left)}", style="cyan")
    else:
        text.append(f" {short_seconds(job.wall_seconds(now))}", style="cyan")
    return text
