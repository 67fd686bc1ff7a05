"""Lines of a run about its workflows: of the plain and of the live display, and the summary."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import Terminal, visible
from onejob.cli.workflows.progress import WorkflowProgress
from onejob.diagnosis.durations import short_seconds
from onejob.planning.counts import counted
from onejob.planning.workflow.states import COMPLETE, GIVEN, RUNNING, WAITING

if TYPE_CHECKING:
    from rich.table import Table

#: Waiting tasks drawn per workflow.
_SHOWN_WAITING: Final = 4


def started_text(progress: WorkflowProgress) -> str:
    given = len(progress.workflow.spec.given)
    taken_over = f", {given} taken over from an earlier run" if given else ""
    return f"started ({counted(progress.size, 'task')}{taken_over})"


def ended_text(progress: WorkflowProgress, now: datetime, terminal: Terminal) -> str:
    verdict = terminal.paint(progress.outcome, "green" if progress.complete else "red")
    text = f"{verdict} in {short_seconds(progress.wall_seconds(now))} ({progress.counts_text()})"
    condition = progress.workflow.finished_condition
    if condition is not None and not progress.complete:
        text += f": {condition.reason}: {visible(condition.message)}"
    return text


def add_live_rows(table: "Table", progress: WorkflowProgress, now: datetime, limit: int) -> int:
    """Add a row with the state of a workflow, and rows of waiting tasks; return their number."""
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    bar = ProgressBar(total=max(progress.size, 1), completed=progress.ended)
    text = f"{progress.counts_text()} {short_seconds(progress.wall_seconds(now))}"
    table.add_row(Text(progress.title, style="bold"), bar, Text(text, style="cyan"))
    waiting = [task for task in progress.workflow.status.tasks if task.state == WAITING]
    shown = waiting[: max(0, min(limit - 1, _SHOWN_WAITING))]
    for task in shown:
        table.add_row(Text(f"  {task.name}", style="dim"), "", Text(task.message, style="dim"))
    return 1 + len(shown)


def summary_lines(
    workflows: Sequence[WorkflowProgress], now: datetime, terminal: Terminal
) -> list[str]:
    """Return a line per workflow, and a table of its tasks that did not complete in this run."""
    lines = []
    for progress in workflows:
        lines.append(f"{terminal.paint(progress.title, 'bold')}: "
                     f"{ended_text(progress, now, terminal)}")  # fmt: skip
        rows = [
            [task.name, _final(task.state), visible(_why(task.reason, task.message))]
            for task in progress.workflow.status.tasks
            if task.state != COMPLETE or task.reason == GIVEN
        ]
        if rows:
            table = render_table(["TASK", "STATE", "WHY"], rows, terminal.width)
            lines += [f"  {line}" for line in table]
    return lines


def result_of(progress: WorkflowProgress, now: datetime) -> dict[str, Any]:
    """Return the workflow as `-o json` prints it."""
    condition = progress.workflow.finished_condition
    metadata = progress.workflow.metadata
    return {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "outcome": progress.outcome,
        "reason": condition.reason if condition else "",
        "message": condition.message if condition else progress.blocked_by,
        "wallSeconds": round(progress.wall_seconds(now), 3),
        "tasks": [
            {
                "name": task.name,
                "state": _final(task.state),
                "job": task.job_name or None,
                "reason": task.reason,
                "message": task.message,
                "results": task.results,
            }
            for task in progress.workflow.status.tasks
        ],
    }


def _final(state: str) -> str:
    """Return the state of a task at the end of the run, which stops what still runs."""
    return "Stopped" if state == RUNNING else state


def _why(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part)
