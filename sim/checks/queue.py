"""Invariants of the queue: limits on running Jobs are kept, and Jobs start in queue order."""

from collections.abc import Callable, Sequence

from onejob.objects.job import Job, JobStatus
from onejob.planning.queue.limits import Limits
from sim.checks.problems import Problems

LIMIT = "no more Jobs run at once than the limit"
ORDER = "Jobs of one priority begin in the order in which they entered the queue"
_QUEUED = "onejob.dev/queued"


class QueueCheck:
    """Check of the limits on running Jobs, and of the order of releases."""

    def __init__(
        self,
        problems: Problems,
        limits: Limits,
        priority_of: Callable[[Job], int] = lambda job: 0,
    ) -> None:
        self._problems = problems
        self._limits = limits
        self._priority_of = priority_of
        #: Scopes of each running Job, by UID.
        self._running: dict[str, Sequence[str]] = {}
        #: Scopes and rank of each Job that the queue suspended, by UID.
        self._waiting: dict[str, tuple[Sequence[str], tuple[int, int]]] = {}
        #: Status of each suspended Job, which may not show the suspension yet.
        self._suspended: dict[str, JobStatus] = {}

    def see_job(self, job: Job, *, gone: bool) -> None:
        scopes = self._limits.scopes_of(job)
        if not scopes or job.spec.managed_by is not None:
            return
        uid = job.metadata.uid
        if gone or job.finished or job.metadata.deleting:
            self._running.pop(uid, None)
            self._waiting.pop(uid, None)
        elif job.spec.suspend:
            self._see_suspended(job, scopes)
        elif self._suspended.get(uid) == job.status:
            # The Job was resumed, and the controller has not acted on it yet.
            self._see_resumed(job)
        elif job.status.start_time is not None and not job.condition_is_true("Suspended"):
            # A Job whose outcome is decided, and that was suspended and resumed meanwhile, starts
            # no more Pods.
            if uid in self._running or not _is_decided(job):
                self._see_running(job, scopes)
        else:
            self._see_resumed(job)

    def _see_resumed(self, job: Job) -> None:
        if _QUEUED not in job.metadata.annotations:
            self._see_released(job)

    def _see_suspended(self, job: Job, scopes: Sequence[str]) -> None:
        uid = job.metadata.uid
        self._running.pop(uid, None)
        self._suspended[uid] = job.status
        entered = job.metadata.annotations.get(_QUEUED)
        if entered is not None:
            self._waiting[uid] = scopes, (-self._priority_of(job), int(entered))
        else:
            self._waiting.pop(uid, None)

    def _see_released(self, job: Job) -> None:
        mine = self._waiting.pop(job.metadata.uid, None)
        if mine is None:
            return
        scopes, rank = mine
        # Jobs of other scopes may be blocked by a limit of their own.
        if any(other == scopes and before < rank for other, before in self._waiting.values()):
            self._problems.add(ORDER, f"Job {job.metadata.name} was let go before its turn")

    def _see_running(self, job: Job, scopes: Sequence[str]) -> None:
        self._waiting.pop(job.metadata.uid, None)
        self._running[job.metadata.uid] = scopes
        for scope in scopes:
            number = sum(scope in others for others in self._running.values())
            if number > self._limits.by_scope[scope]:
                self._problems.add(LIMIT, f"Job {job.metadata.name} is number {number} of {scope}")


def _is_decided(job: Job) -> bool:
    return job.condition_is_true("SuccessCriteriaMet") or job.condition_is_true("FailureTarget")
