"""Cause of a Job's state as one line, for lists of Jobs. Pure functions."""

from collections.abc import Sequence
from typing import Final

import msgspec

from onejob.objects.job import Job

#: Reasons that only count failures: the cause is in the Pods.
_COUNTING_REASONS: Final = frozenset(
    {"BackoffLimitExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"}
)


class Cause(msgspec.Struct, frozen=True):
    """Cause of a Job's state."""

    text: str
    #: Whether the Job makes no progress until the cause is removed.
    blocked: bool = False


class PodFailure(msgspec.Struct, frozen=True):
    """Failure of a Pod; `exit_code` is None if no container exited."""

    exit_code: int | None
    reason: str
    message: str
    #: Last line of the log of the container that failed; "" if unknown.
    last_line: str = ""

    @property
    def text(self) -> str:
        how = self.reason if self.exit_code is None else f"exit code {self.exit_code}"
        return ": ".join(filter(None, (how, self.last_line or self.message)))


def cause_of_job(
    job: Job,
    cause: Sequence[str],
    evidence: Sequence[str],
    failure: PodFailure | None,
    *,
    blocked: bool,
) -> Cause:
    """Return why a Job has failed or makes no progress.

    `cause` and `evidence` are those of its explanation, `failure` is its most frequent one.
    """
    end = job.finished_condition
    if end is None:
        running = bool(job.status.ready)
        # The first line of the evidence counts the Pods; the second is about one of them.
        stuck = [*cause, *evidence[1:]]
        detail = evidence[0] if running and evidence else next(iter(stuck), "")
        line = "" if blocked or failure is None else failure.last_line
        return Cause(": ".join(filter(None, (detail, line))), blocked)
    if end.type == "Complete":
        return Cause("")
    if failure is None:
        return Cause(next(iter(cause), end.message))
    if end.reason in _COUNTING_REASONS:
        return Cause(failure.text)
    return Cause(f"{end.reason}, {failure.text}")
