"""Failure reasons of a run's Jobs, for machine-readable reports. Pure."""

from collections.abc import Mapping, Sequence

from onejob.cli.display.terminal import visible
from onejob.cli.run.plain import pod_end_text
from onejob.cli.run.progress import EndedPod, JobProgress


def job_problem(job: JobProgress) -> str:
    """Return the reason for a Job's failure in one line."""
    condition = job.job.finished_condition
    if condition is not None:
        return visible(f"{condition.reason}: {' '.join(condition.message.split())}")
    if job.blocked_by is not None:
        return visible(" ".join(job.blocked_by.text.split()))
    return "the run ended before the Job"


def pod_problem(pod: EndedPod, last_lines: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the end of a Pod and its last lines. `last_lines` is by Pod UID."""
    lines = [visible(f"pod {pod.name}: {pod_end_text(pod)}")]
    return [*lines, *(f"| {visible(text)}" for text in last_lines.get(pod.uid, ()))]
