"""Progress of a run: a model updated with every event of its Jobs and Pods. No I/O, no clock.

Jobs may have a hundred thousand Pods, so ended Pods are counted, and only a few are kept for
reporting: the last failures and the slowest Pods.
"""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from onejob.diagnosis.pod_waits import PodWait
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.objects.pod import ContainerStatus, Pod
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord, backoff_policy
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.pod_facts import failures_of_pod, finish_time
from onejob.planning.names import INDEX_ANNOTATION

KEPT_FAILURES: Final = 10
KEPT_SLOWEST: Final = 3
#: Time for which a run must seem blocked before it is considered so: a Pod that has just ended may
#: make room for the next one.
_STANDSTILL: Final = timedelta(seconds=2)
#: Window for the success rate; short, so that the rate follows recent events.
_RATE_WINDOW: Final = timedelta(seconds=20)

PodChange = Literal["started", "succeeded", "failed", "stopped", "restarted"]
_SETTINGS: Final = Settings()


class EndedPod(msgspec.Struct, frozen=True):
    name: str
    uid: str
    index: str
    seconds: float
    #: The container that failed first, or else the last one that ended.
    container: str
    attempt: int
    exit_code: int | None
    reason: str
    message: str
    #: True if the Pod was deleted instead of ending by itself, mostly because its Job ended.
    stopped: bool = False


class RunningPod(msgspec.Struct):
    name: str
    #: Local observation time: API timestamps have no fractions of a second.
    since: datetime
    running: bool = False
    restarts: int = 0
    #: Reason why the Pod does not start, and the time of its first observation.
    wait: PodWait | None = None
    wait_since: datetime | None = None

    def record_wait(self, wait: PodWait | None, now: datetime) -> None:
        if wait is not None and self.wait is not None and wait.repeats(self.wait):
            self.wait = replace(self.wait, idle=wait.idle)
            return
        self.wait = wait
        self.wait_since = None if wait is None else now

    def stands_still(self, now: datetime) -> bool:
        """Return whether the Pod neither runs nor is about to.

        It waits for resources, or for a dependency that never appears.
        """
        if self.wait is None or self.wait_since is None:
            return False
        if self.running and not (self.wait.lasting and self.wait.idle):
            return False
        return now - self.wait_since >= timedelta(seconds=self.wait.patience_seconds or 0)


class JobProgress(msgspec.Struct):
    """Progress of one Job. `job` is its newest version; it is kept after the object's deletion."""

    job: Job
    created_at: datetime
    running: dict[str, RunningPod] = msgspec.field(default_factory=dict)
    pods: int = 0
    ended_pods: int = 0
    retries: int = 0
    failures: list[EndedPod] = msgspec.field(default_factory=list)
    failed_pods: int = 0
    pod_seconds: float = 0.0
    exit_codes: list[int] = msgspec.field(default_factory=list)
    gone: bool = False
    #: Reason why the Job's Pods could never start, if that ended the run early.
    blocked_by: PodWait | None = None
    #: True while the run is being stopped: the exit of its Pods then has no bearing on the Job's
    #: outcome.
    stopping: bool = False
    #: Time at which a Pod last was created, started running or ended.
    moved_at: datetime | None = None
    finished_at: datetime | None = None
    _slowest: list[tuple[float, str, EndedPod]] = msgspec.field(default_factory=list)
    _unanswered_failures: int = 0
    #: Indexes that failed at least once.
    _failed: set[str] = msgspec.field(default_factory=set)
    _backoff: BackoffRecord = NO_FAILURES
    _index_backoff: dict[str, tuple[int, datetime]] = msgspec.field(default_factory=dict)
    _ended: set[str] = msgspec.field(default_factory=set)
    _samples: list[tuple[datetime, int]] = msgspec.field(default_factory=list)

    # --- state ----------------------------------------------------------------------------

    @property
    def key(self) -> Key:
        return self.job.key

    @property
    def title(self) -> str:
        return f"job/{self.job.metadata.name}"

    @property
    def done(self) -> bool:
        """True if nothing more will happen: the Job has finished or was deleted."""
        return self.job.finished or self.gone

    @property
    def complete(self) -> bool:
        return self.job.condition_is_true("Complete")

    @property
    def outcome(self) -> str:
        """Complete, Failed or Deleted; Blocked or Stopped if the run ends before that."""
        condition = self.job.finished_condition
        if condition is not None:
            return condition.type
        if self.gone:
            return "Deleted"
        return "Stopped" if self.blocked_by is None else "Blocked"

    @property
    def goal(self) -> int | None:
        """Number of required successes; None for a work queue."""
        return self.job.spec.completions

    @property
    def slowest(self) -> list[EndedPod]:
        return [pod for _, _, pod in sorted(self._slowest, reverse=True)]

    def rate(self, now: datetime) -> float:
        """Return the recent successes per second."""
        if not self._samples:
            return 0.0
        then, succeeded = self._samples[0]
        passed = (now - then).total_seconds()
        return (self.job.status.succeeded - succeeded) / passed if passed > 0 else 0.0

    def seconds_left(self, now: datetime) -> float | None:
        """Return the estimated seconds until completion; None without a rate or a goal."""
        rate = self.rate(now)
        if self.goal is None or rate <= 0:
            return None
        return max(self.goal - self.job.status.succeeded, 0) / rate

    def retry_at(self, now: datetime) -> datetime | None:
        """Return the time of the next retry of a failed Pod; None if the Job waits for none."""
        if self.done or self.job.spec.suspend or self.job.condition_is_true("FailureTarget"):
            return None
        policy = backoff_policy(self.job, _SETTINGS)
        most = self.job.spec.backoff_limit_per_index
        if most is not None:
            waits = [
                policy.remaining(failures, at, now)
                for failures, at in self._index_backoff.values()
                # With more failures the index has failed for good.
                if failures <= most
            ]
            wait = min((w for w in waits if w), default=timedelta(0))
        elif self.failed_pods > (self.job.spec.backoff_limit or 0):
            return None
        else:
            record = self._backoff
            wait = policy.remaining(record.failures_since_success, record.last_failure_at, now)
        return now + wait if wait and self._wants_more() else None

    def _wants_more(self) -> bool:
        spec = self.job.spec
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        if spec.completions is None:
            return len(self.running) < parallelism and not self.job.status.succeeded
        return len(self.running) < min(parallelism, spec.completions - self.job.status.succeeded)

    def standstill(self, now: datetime) -> bool:
        """Return whether no Pod of the Job runs, is about to start or is about to be created."""
        if self.done or not self.running or self.retry_at(now) is not None:
            return False
        if self.moved_at is not None and now - self.moved_at < _STANDSTILL:
            return False
        return all(pod.stands_still(now) for pod in self.running.values())

    @property
    def lasting_wait(self) -> PodWait | None:
        waits = (pod.wait for pod in self.running.values())
        return next((wait for wait in waits if wait is not None and wait.lasting), None)

    @property
    def any_wait(self) -> PodWait | None:
        return next((pod.wait for pod in self.running.values() if pod.wait is not None), None)

    def wall_seconds(self, now: datetime) -> float:
        return ((self.finished_at or now) - self.created_at).total_seconds()

    # --- events ---------------------------------------------------------------------------

    def saw_job(self, job: Job, now: datetime, *, deleted: bool) -> None:
        grew = job.status.succeeded > self.job.status.succeeded
        self.job = job
        self.gone = self.gone or deleted
        if grew or not self._samples:
            self._samples.append((now, job.status.succeeded))
            while len(self._samples) > 2 and now - self._samples[1][0] > _RATE_WINDOW:
                del self._samples[0]
        if self.done and self.finished_at is None:
            self.finished_at = now

    def saw_pod(self, pod: Pod, now: datetime, *, deleted: bool) -> PodChange | None:
        uid = pod.metadata.uid
        if uid in self._ended:
            return None
        known = self.running.get(uid)
        if known is None and not deleted:
            self.pods += 1
            self._count_retry(pod)
            known = self.running[uid] = RunningPod(pod.metadata.name, now)
            self.moved_at = now
            if not pod.terminal:
                return "started"
        if known is None:
            return None
        if pod.terminal or deleted:
            return self._ended_pod(pod, now)
        if pod.phase == "Running" and not known.running:
            known.running, known.since = True, now
            known.record_wait(None, now)
            self.moved_at = now
        restarts = sum(status.restart_count for status in pod.status.container_statuses)
        if restarts > known.restarts:
            self.retries += restarts - known.restarts
            known.restarts = restarts
            return "restarted"
        return None

    def _count_retry(self, pod: Pod) -> None:
        """Count a new Pod as a retry if it replaces a failed one.

        That is one of the same index, or any Pod if the Job has no indexes.
        """
        if self.job.indexed:
            self.retries += pod.metadata.annotations.get(INDEX_ANNOTATION, "") in self._failed
        elif self._unanswered_failures:
            self._unanswered_failures -= 1
            self.retries += 1

    def _ended_pod(self, pod: Pod, now: datetime) -> PodChange:
        uid = pod.metadata.uid
        since = self.running.pop(uid).since
        self._ended.add(uid)
        self.moved_at = now
        ended = _describe_end(pod, (now - since).total_seconds(), stopping=self.stopping)
        self.ended_pods += 1
        self.pod_seconds += ended.seconds
        if len(self.exit_codes) < 2 and ended.exit_code is not None:
            self.exit_codes.append(ended.exit_code)
        entry = (ended.seconds, ended.uid, ended)
        if len(self._slowest) < KEPT_SLOWEST:
            heapq.heappush(self._slowest, entry)
        else:
            heapq.heappushpop(self._slowest, entry)
        at = finish_time(pod)
        if pod.phase == "Succeeded":
            self._backoff = self._backoff.after([at], [])
            self._index_backoff.pop(ended.index, None)
            return "succeeded"
        self.failures = [*self.failures, ended][-KEPT_FAILURES:]
        if ended.stopped:
            return "stopped"
        self.failed_pods += 1
        self._unanswered_failures += 1
        self._failed.add(ended.index)
        self._backoff = self._backoff.after([], [at])
        count, _ = self._index_backoff.get(ended.index, (0, at))
        if match_failure_policy(self.job.spec.pod_failure_policy, pod).action == "FailIndex":
            count = self.job.spec.backoff_limit_per_index or 0
        self._index_backoff[ended.index] = (count + 1, at)
        return "failed"


class RunProgress(msgspec.Struct):
    """Progress of all Jobs of a run, by UID. Iteration yields them in the order of `expect`.

    `of_pod` returns None for Pods of other Jobs. `done` and `all_complete` are True without Jobs.
    """

    jobs: dict[str, JobProgress] = msgspec.field(default_factory=dict)

    def expect(self, job: Job, now: datetime) -> JobProgress:
        progress = JobProgress(job, now)
        progress.saw_job(job, now, deleted=False)
        self.jobs[job.metadata.uid] = progress
        return progress

    def of_pod(self, pod: Pod) -> JobProgress | None:
        owner = pod.metadata.controller_ref
        return self.jobs.get(owner.uid) if owner is not None else None

    @property
    def done(self) -> bool:
        return all(job.done for job in self.jobs.values())

    def stop(self) -> None:
        for job in self:
            job.stopping = True

    def blocked(self, now: datetime) -> bool:
        """Return whether no Job can ever make progress.

        Pods that wait for resources do not count as progress: the Pods that hold these resources
        wait for a dependency that never appears.
        """
        unfinished = [job for job in self if not job.done]
        return (
            bool(unfinished)
            and all(job.standstill(now) for job in unfinished)
            and any(job.lasting_wait is not None for job in unfinished)
        )

    @property
    def all_complete(self) -> bool:
        return all(job.complete for job in self.jobs.values())

    def __iter__(self) -> Iterator[JobProgress]:
        return iter(self.jobs.values())


def _describe_end(pod: Pod, seconds: float, *, stopping: bool) -> EndedPod:
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    ended = [status for status in statuses if status.state.terminated is not None]
    failed = failures_of_pod(pod)
    reported = failed[0] if failed else ended[-1] if ended else ContainerStatus()
    end = reported.state.terminated
    return EndedPod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        index=pod.metadata.annotations.get(INDEX_ANNOTATION, ""),
        seconds=seconds,
        container=reported.name,
        attempt=reported.restart_count,
        exit_code=end.exit_code if end else None,
        reason=pod.status.reason or (end.reason if end else ""),
        message=end.message if end else "",
        stopped=(stopping or pod.metadata.deleting) and pod.phase != "Succeeded",
    )
