"""GitHub Actions: workflow annotations for failed Jobs, and the step summary. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from onejob.cli.run.problems import job_problem, pod_problem
from onejob.cli.run.progress import JobProgress, RunProgress
from onejob.cli.run.summary import SHOWN_FAILURES
from onejob.diagnosis.durations import short_seconds


def annotations(run: RunProgress, last_lines: Mapping[str, Sequence[str]]) -> str:
    """Return `::error title=...::...` for each Job and workflow that failed; "" if all succeeded.

    `last_lines` is by Pod UID.
    """
    found = [
        _annotation(job, last_lines) for job in run if not job.complete and not run.is_handled(job)
    ]
    found += [
        f"::error title={_property(f'{workflow.title} {workflow.outcome}')}::"
        f"{_data(workflow.problem)}\n"
        for workflow in run.failed_workflows
    ]
    return "".join(found)


def _annotation(job: JobProgress, last_lines: Mapping[str, Sequence[str]]) -> str:
    lines = [job_problem(job)]
    for pod in job.failures[-SHOWN_FAILURES:]:
        lines += pod_problem(pod, last_lines)
    title = _property(f"{job.title} {job.outcome}")
    return f"::error title={title}::{_data(chr(10).join(lines))}\n"


def step_summary(
    run: RunProgress, now: datetime, outcome: str, last_lines: Mapping[str, Sequence[str]]
) -> str:
    """Return the run as Markdown: a table of its Jobs, and the problems of those that failed."""
    rows = ["| Job | Status | Succeeded | Failed | Retries | Time |", "|---|---|--:|--:|--:|--:|"]
    problems: list[str] = []
    for job in run:
        metadata, status = job.job.metadata, job.job.status
        goal = "" if job.goal is None else f"/{job.goal}"
        mark = "✅" if job.complete else "☑️" if run.is_handled(job) else "❌"
        cells = (
            f"{metadata.namespace}/{metadata.name}",
            f"{mark} {job.outcome}",
            f"{status.succeeded}{goal}",
            str(status.failed),
            str(job.retries),
            short_seconds(job.wall_seconds(now)),
        )
        rows.append(f"| {' | '.join(cells)} |")
        if not job.complete:
            lines = [job_problem(job)]
            for pod in job.failures[-SHOWN_FAILURES:]:
                lines += pod_problem(pod, last_lines)
            # Indented code: no output of a container can end the block, unlike a fence.
            problems += ["", f"{job.title}:", "", *(f"    {line}" for line in lines)]
    for workflow in run.failed_workflows:
        problems += ["", f"{workflow.title}: {workflow.outcome}", "", f"    {workflow.problem}"]
    return "\n".join((f"### onejob run: {outcome}", "", *rows, *problems, "", ""))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
