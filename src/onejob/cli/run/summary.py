"""Summary of a run: a table of Jobs, failed Pods with their last output lines, the slowest Pods."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from onejob.cli.display.quantities import memory_text
from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import Terminal, visible
from onejob.cli.run.plain import pod_end_text
from onejob.cli.run.progress import EndedPod, JobProgress, RunProgress
from onejob.diagnosis.durations import short_seconds
from onejob.planning.counts import counted

#: Number of Pods below which a list of the slowest is meaningless.
_SLOWEST_FROM: Final = 4
#: Seconds below which no Pod counts as slow.
_SLOW_SECONDS: Final = 1.0
SHOWN_FAILURES: Final = 3
LAST_LINES: Final = 5


def render_summary(
    run: RunProgress,
    now: datetime,
    *,
    cpu_seconds: float | None,
    last_lines: Mapping[str, Sequence[str]],
    terminal: Terminal,
) -> str:
    """Return the summary as text.

    `cpu_seconds` covers the whole run; `last_lines` is by Pod UID.
    """
    lines = [""]
    if run.workflows:
        from onejob.cli.workflows.screen import summary_lines

        lines += summary_lines([*run.workflows.values()], now, terminal)
        if not run.jobs:
            return "\n".join(lines) + "\n"
        lines.append("")
    rows = [_row(job, now, cpu_seconds if len(run.jobs) == 1 else None) for job in run]
    headers = ["JOB", "STATUS", "PODS", "RETRIES", "WALL", "CPU", "MEMORY"]
    unmeasured = not any(job.peak_bytes for job in run)
    if unmeasured:
        drop = 2 if cpu_seconds is None or len(run.jobs) != 1 else 1
        headers, rows = headers[:-drop], [row[:-drop] for row in rows]
    head, *body = render_table(headers, rows, terminal.width)
    lines.append(terminal.paint(head, "bold"))
    for text, job in zip(body, run, strict=True):
        lines.append(_color_row(text, job, terminal))
    if len(run.jobs) > 1 and cpu_seconds is not None:
        lines.append(f"CPU time of all Jobs: {short_seconds(cpu_seconds)}")
    for job in run:
        lines.extend(_blocked_lines(job, terminal))
        lines.extend(_failure_lines(job, last_lines, terminal))
        lines.extend(_slowest_lines(job))
    return "\n".join(lines) + "\n"


def result_document(
    run: RunProgress,
    now: datetime,
    *,
    run_id: str,
    exit_code: int,
    outcome: str,
    cpu_seconds: float | None,
) -> dict[str, Any]:
    """Return the document that `-o json` prints."""
    result: dict[str, Any] = {
        "run": run_id,
        "outcome": outcome,
        "exitCode": exit_code,
        "cpuSeconds": None if cpu_seconds is None else round(cpu_seconds, 3),
        "jobs": [_job_result(job, now) for job in run],
    }
    if run.workflows:
        from onejob.cli.workflows.screen import result_of

        result["workflows"] = [result_of(found, now) for found in run.workflows.values()]
    return result


def _job_result(job: JobProgress, now: datetime) -> dict[str, Any]:
    condition = job.job.finished_condition or job.blocked_by
    return {
        "namespace": job.job.metadata.namespace,
        "name": job.job.metadata.name,
        "outcome": job.outcome,
        "reason": condition.reason if condition else "",
        "message": condition.message if condition else "",
        "completions": job.goal,
        "succeeded": job.job.status.succeeded,
        "failed": job.job.status.failed,
        "completedIndexes": job.job.status.completed_indexes,
        "failedIndexes": job.job.status.failed_indexes,
        "pods": job.pods,
        "retries": job.retries,
        "wallSeconds": round(job.wall_seconds(now), 3),
        "cpuSeconds": round(job.cpu_seconds, 3),
        "peakMemoryBytes": job.peak_bytes or None,
        "failedPods": [_pod_result(job, pod) for pod in job.failures],
        "slowestPods": [_pod_result(job, pod) for pod in job.slowest],
    }


def _pod_result(job: JobProgress, pod: EndedPod) -> dict[str, Any]:
    result = {
        "name": pod.name,
        "container": pod.container,
        "exitCode": pod.exit_code,
        "reason": pod.reason,
        "message": pod.message,
        "seconds": round(pod.seconds, 3),
        "cpuSeconds": round(pod.cpu_seconds, 3),
        "peakMemoryBytes": pod.peak_bytes or None,
    }
    if not pod.index:
        return result
    index = int(pod.index)
    row = {"params": job.rows[index]} if index < len(job.rows) else {}
    return {**result, "index": job.original_index(index), **row}


def _row(job: JobProgress, now: datetime, cpu_seconds: float | None) -> list[str]:
    return [
        job.job.metadata.name,
        job.outcome,
        str(job.pods),
        str(job.retries),
        short_seconds(job.wall_seconds(now)),
        # Of a single Job, also the time of Pods that were stopped without a report.
        short_seconds(max(cpu_seconds or 0.0, job.cpu_seconds)),
        memory_text(job.peak_bytes) if job.peak_bytes else "",
    ]


def _color_row(row: str, job: JobProgress, terminal: Terminal) -> str:
    colour = "green" if job.complete else "yellow" if job.outcome == "Stopped" else "red"
    return row.replace(f" {job.outcome}", f" {terminal.paint(job.outcome, colour)}", 1)


def _blocked_lines(job: JobProgress, terminal: Terminal) -> list[str]:
    if job.done or job.blocked_by is None:
        return []
    what = terminal.paint("cannot start", "red")
    lines = ["", f"{job.title} {what}: {visible(job.blocked_by.text)}"]
    return [*lines, f"  {visible(job.blocked_by.next_step)}"] if job.blocked_by.next_step else lines


def _failure_lines(
    job: JobProgress, last_lines: Mapping[str, Sequence[str]], terminal: Terminal
) -> list[str]:
    # Pods that were stopped because the Job is Complete, or could not start, are not listed.
    quiet = job.complete or job.blocked_by is not None
    listed = [(pod, count) for pod, count in job.distinct_failures if not (pod.stopped and quiet)]
    if not listed:
        return []
    shown = listed[-SHOWN_FAILURES:]
    left_out = len(listed) - len(shown)
    rest = f", {len(shown)} of {len(listed)} causes" if left_out else ""
    title = "Stopped" if all(pod.stopped for pod, _ in shown) else "Failed"
    lines = ["", f"{title} pods of {job.title}{rest}:"]
    for pod, count in shown:
        index = f" ({visible(pod.title)})" if pod.title else ""
        name = terminal.paint(pod.name, "red")
        lines.append(f"  {name}{index} after {short_seconds(pod.seconds)}: {pod_end_text(pod)}")
        lines.extend(f"    | {visible(text)}" for text in last_lines.get(pod.uid, ()))
        if count > 1:
            lines.append(f"    and {counted(count - 1, 'other pod')} like this")
    return lines


def _slowest_lines(job: JobProgress) -> list[str]:
    quick = all(pod.seconds < _SLOW_SECONDS for pod in job.slowest)
    if job.ended_pods < _SLOWEST_FROM or quick:
        return []
    mean = short_seconds(job.pod_seconds / job.ended_pods)
    lines = ["", f"Slowest pods of {job.title} (mean {mean}):"]
    return [
        *lines,
        *(f"  {pod.name}{_parameters(job, pod)} {_amounts(pod)}" for pod in job.slowest),
    ]


def _parameters(job: JobProgress, pod: EndedPod) -> str:
    return f" ({visible(pod.title)})" if job.rows and pod.title else ""


def _amounts(pod: EndedPod) -> str:
    used = f", CPU {short_seconds(pod.cpu_seconds)}, {memory_text(pod.peak_bytes)}"
    return f"{short_seconds(pod.seconds)}{used if pod.peak_bytes else ''}"
