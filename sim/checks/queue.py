"""The queue: no more Jobs run at once than allowed, and they begin in the order they came."""

from onejob.objects.job import Job
from sim.checks.problems import Problems

LIMIT = "no more Jobs run at once than the limit"
ORDER = "Jobs of one priority begin in the order in which they entered the queue"
_QUEUED = "onejob.dev/queued"


class QueueCheck:
    def __init__(self, problems: Problems, limit: int | None) -> None:
        self._problems = problems
        self._limit = limit
        self._running: set[str] = set()
        #: Jobs that the queue has suspended: when each entered.
        self._waiting: dict[str, int] = {}

    def see_job(self, job: Job, *, gone: bool) -> None:
        if self._limit is None:
            return
        uid = job.metadata.uid
        if gone or job.finished or job.metadata.deleting:
            self._running.discard(uid)
            self._waiting.pop(uid, None)
        elif job.spec.suspend:
            self._see_suspended(job)
        elif job.status.start_time is not None and not job.condition_is_true("Suspended"):
            self._see_running(job)
        elif _QUEUED not in job.metadata.annotations:
            self._see_released(job)

    def _see_suspended(self, job: Job) -> None:
        uid = job.metadata.uid
        self._running.discard(uid)
        entered = job.metadata.annotations.get(_QUEUED)
        if entered is not None:
            self._waiting[uid] = int(entered)
        else:
            self._waiting.pop(uid, None)

    def _see_released(self, job: Job) -> None:
        entered = self._waiting.pop(job.metadata.uid, None)
        if entered is not None and any(other < entered for other in self._waiting.values()):
            self._problems.add(ORDER, f"Job {job.metadata.name} was let go before its turn")

    def _see_running(self, job: Job) -> None:
        assert self._limit is not None
        self._waiting.pop(job.metadata.uid, None)
        self._running.add(job.metadata.uid)
        if len(self._running) > self._limit:
            self._problems.add(LIMIT, f"Job {job.metadata.name} is number {len(self._running)}")
