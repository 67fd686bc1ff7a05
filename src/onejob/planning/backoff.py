"""How long to wait before a failed Pod is replaced: 10 s, doubling up to 10 minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from onejob.objects.job import Job
from onejob.objects.meta import Meta
from onejob.planning.names import BACKOFF_SECONDS_ANNOTATION
from onejob.planning.restart_policy import restart_policy_of
from onejob.planning.settings import Settings

_NO_DELAY = timedelta(0)
#: The field is 64 bits wide; more seconds than these are as good as for ever.
_LONGEST_SECONDS = 100 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class BackoffRecord:
    """What is remembered of a Job's failures. Kept in memory only: a restart forgets the delay
    but not the count of failures, which is in the status."""

    failures_since_success: int = 0
    last_failure_at: datetime | None = None

    def after(
        self, succeeded_at: Sequence[datetime], failed_at: Sequence[datetime]
    ) -> "BackoffRecord":
        """The record once Pods have ended at these times."""
        if succeeded_at:
            latest_success = max(succeeded_at)
            later = [moment for moment in failed_at if moment > latest_success]
            return BackoffRecord(len(later), max(later) if later else None)
        if failed_at:
            return BackoffRecord(self.failures_since_success + len(failed_at), max(failed_at))
        return self


NO_FAILURES = BackoffRecord()


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    base: timedelta
    ceiling: timedelta

    def remaining(
        self, failures: int, last_failure_at: datetime | None, now: datetime
    ) -> timedelta:
        if failures <= 0 or last_failure_at is None or not self.base:
            return _NO_DELAY
        delay = self.ceiling
        if self.base < self.ceiling:
            delay = min(self.base * (1 << min(failures - 1, 31)), self.ceiling)
        return max(delay - (now - last_failure_at), _NO_DELAY)


def backoff_policy(job: Job, settings: Settings) -> BackoffPolicy:
    """The Job's own base (field, else annotation) or the common one; a base above the common
    ceiling is its own ceiling."""
    seconds = _own_base(job)
    if seconds is None:
        seconds = settings.backoff_base_seconds
    base = timedelta(seconds=min(seconds, _LONGEST_SECONDS))
    return BackoffPolicy(base, max(base, timedelta(seconds=settings.backoff_ceiling_seconds)))


def annotated_number(metadata: Meta, annotation: str) -> int | None:
    """A count written as an annotation; one that cannot be read is as good as absent."""
    text = metadata.annotations.get(annotation)
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return int(text)


def _own_base(job: Job) -> int | None:
    """Where containers are retried in place, it is not for the Job to say how."""
    if restart_policy_of(job) == "OnFailure":
        return None
    if job.spec.backoff_seconds is not None:
        return job.spec.backoff_seconds
    return annotated_number(job.metadata, BACKOFF_SECONDS_ANNOTATION)
