"""GitHub Actions workflow annotations for failed Jobs. Pure."""

from collections.abc import Mapping, Sequence

from onejob.cli.run.problems import job_problem, pod_problem
from onejob.cli.run.progress import JobProgress, RunProgress
from onejob.cli.run.summary import SHOWN_FAILURES


def annotations(run: RunProgress, last_lines: Mapping[str, Sequence[str]]) -> str:
    """Return `::error title=...::...` for each Job that did not succeed; "" if all did.

    `last_lines` is by Pod UID.
    """
    return "".join(_annotation(job, last_lines) for job in run if not job.complete)


def _annotation(job: JobProgress, last_lines: Mapping[str, Sequence[str]]) -> str:
    lines = [job_problem(job)]
    for pod in job.failures[-SHOWN_FAILURES:]:
        lines += pod_problem(pod, last_lines)
    title = _property(f"{job.title} {job.outcome}")
    return f"::error title={title}::{_data(chr(10).join(lines))}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
