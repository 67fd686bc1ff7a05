"""Exponential backoff before a failed Pod is replaced: 10 s, doubling up to 10 minutes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from onejob.objects.job import Job
from onejob.planning.job.operator_settings import Settings
from onejob.planning.metadata_values import annotated_number
from onejob.planning.names import BACKOFF_SECONDS_ANNOTATION
from onejob.planning.pod.restart_policy import restart_policy_of

_NO_DELAY = timedelta(0)
#: Upper bound of the base delay in seconds (100 years). The API field is 64 bits wide, more than a
#: `timedelta` can hold.
_MAX_BASE_SECONDS = 100 * 365 * 24 * 3600


class BackoffRecord(Struct, frozen=True):
    """Failure history of a Job, as far as backoff needs it.

    Held in memory only: after a restart it is rebuilt from the Pods that still exist
    (`FinishHistory`).
    """

    failures_since_success: int = 0
    last_failure_at: datetime | None = None

    def after(
        self, succeeded_at: Sequence[datetime], failed_at: Sequence[datetime]
    ) -> "BackoffRecord":
        """Return the record updated with Pods that succeeded and failed at the given times."""
        if succeeded_at:
            latest_success = max(succeeded_at)
            later = [moment for moment in failed_at if moment > latest_success]
            return BackoffRecord(len(later), max(later) if later else None)
        if failed_at:
            return BackoffRecord(self.failures_since_success + len(failed_at), max(failed_at))
        return self


NO_FAILURES = BackoffRecord()


class FinishHistory:
    """Finish times, in any order, of Pods counted before this process cached their Job."""

    __slots__ = ("_failed_at", "_succeeded_at")

    def __init__(self) -> None:
        self._succeeded_at: datetime | None = None
        #: Failure times after the latest success; by UID, as a Pod may be observed repeatedly.
        self._failed_at: dict[str, datetime] = {}

    def note(self, uid: str, finished_at: datetime, *, succeeded: bool) -> None:
        """Record the finish time of a Pod."""
        latest = self._succeeded_at
        if latest is not None and finished_at <= latest:
            return
        if not succeeded:
            self._failed_at[uid] = finished_at
            return
        self._succeeded_at = finished_at
        self._failed_at = {failed: at for failed, at in self._failed_at.items() if at > finished_at}

    def record(self, job: Job) -> BackoffRecord:
        """Return the record that a process running all the time would hold."""
        if not self._failed_at:
            return NO_FAILURES
        failures = len(self._failed_at)
        if self._succeeded_at is None and not job.status.succeeded:
            # Failed Pods may have been deleted, but the status still counts them.
            failures = max(failures, job.status.failed)
        return BackoffRecord(failures, max(self._failed_at.values()))


class BackoffPolicy(Struct, frozen=True):
    base: timedelta
    ceiling: timedelta

    def remaining(
        self, failures: int, last_failure_at: datetime | None, now: datetime
    ) -> timedelta:
        """Return the time left until a failed Pod may be replaced."""
        if failures <= 0 or last_failure_at is None or not self.base:
            return _NO_DELAY
        delay = self.ceiling
        if self.base < self.ceiling:
            delay = min(self.base * (1 << min(failures - 1, 31)), self.ceiling)
        # A failure time in the future means the clock was set back: treat it as just now.
        passed = max(now - last_failure_at, _NO_DELAY)
        return max(delay - passed, _NO_DELAY)


def backoff_policy(job: Job, settings: Settings) -> BackoffPolicy:
    """Return the Job's own backoff base (field, else annotation), or the default from `settings`.

    A base above the common ceiling becomes the ceiling of that Job.
    """
    seconds = _own_base(job)
    if seconds is None:
        seconds = settings.backoff_base_seconds
    base = timedelta(seconds=min(seconds, _MAX_BASE_SECONDS))
    return BackoffPolicy(base, max(base, timedelta(seconds=settings.backoff_ceiling_seconds)))


def _own_base(job: Job) -> int | None:
    """Return the backoff base in seconds that the Job sets, or None.

    With restartPolicy OnFailure the kubelet retries containers in place, so the Job's base is
    ignored.
    """
    if restart_policy_of(job) == "OnFailure":
        return None
    if job.spec.backoff_seconds is not None:
        return job.spec.backoff_seconds
    return annotated_number(job.metadata, BACKOFF_SECONDS_ANNOTATION)
