"""Progress of a run: a model updated with every event of its Jobs and Pods. No I/O, no clock.

Jobs may have a hundred thousand Pods, so ended Pods are counted, and only a few are kept for
reporting: the last failures and the slowest Pods.
"""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from onejob.diagnosis.pod_waits import PodWait
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.objects.pod import ContainerStatus, Pod
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord, backoff_policy
from onejob.planning.job.failure_policy import match_failure_policy
from onejob.planning.job.indexes import read_index
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.pod_facts import failures_of_pod, finish_time
from onejob.planning.names import INDEX_ANNOTATION

if TYPE_CHECKING:
    from onejob.cli.workflows.progress import WorkflowProgress

KEPT_FAILURES: Final = 10
KEPT_SLOWEST: Final = 3
#: Distinct failures that are counted separately, per Job.
_MAX_CAUSES: Final = 50
#: Time for which a run must seem blocked before it is considered so: a Pod that has just ended may
#: make room for the next one.
_STANDSTILL: Final = timedelta(seconds=2)
#: Window for the success rate; short, so that the rate follows recent events.
_RATE_WINDOW: Final = timedelta(seconds=20)

PodChange = Literal["started", "succeeded", "failed", "stopped", "restarted"]
_SETTINGS: Final = Settings()

if TYPE_CHECKING:
    from onejob.planning.progress import JobProgress as ReportedProgress


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
    #: Index and parameters, `index 17: seed=54 lr=0.01`; "" without an index.
    title: str = ""
    #: Peak memory and CPU time of its containers; 0 if not measured.
    peak_bytes: int = 0
    cpu_seconds: float = 0.0
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
    #: Text of each index's parameters; () without parameters.
    rows: Sequence[str] = ()
    #: Index in the first Job of its lineage, by index; () if it is the first.
    origins: Sequence[int] = ()
    #: UID of the workflow whose task the Job is; "" if it is none's.
    workflow: str = ""
    #: Number and last Pod of each distinct failure.
    causes: dict[tuple[str, int | None, str, str], tuple[int, EndedPod]] = msgspec.field(
        default_factory=dict
    )
    running: dict[str, RunningPod] = msgspec.field(default_factory=dict)
    pods: int = 0
    ended_pods: int = 0
    retries: int = 0
    failures: list[EndedPod] = msgspec.field(default_factory=list)
    failed_pods: int = 0
    pod_seconds: float = 0.0
    #: Peak memory of the largest Pod, and CPU time of all ended Pods; 0 if not measured.
    peak_bytes: int = 0
    cpu_seconds: float = 0.0
    exit_codes: list[int] = msgspec.field(default_factory=list)
    gone: bool = False
    #: What its containers write to $ONEJOB_PROGRESS; None if they write nothing.
    reported: "ReportedProgress | None" = None
    #: Reason why the Job's Pods could never start, if that ended the run early.
    blocked_by: PodWait | None = None
    #: True while the run is being stopped: the exit of its Pods then has no bearing on the Job's
    #: outcome.
    stopping: bool = False
    #: Time at which a Pod last was created, started running or ended.
    moved_at: datetime | None = None
    finished_at: datetime | None = None
    #: Seconds of the last Pod of each index that ended by itself.
    index_seconds: dict[int, float] = msgspec.field(default_factory=dict)
    _slowest: list[tuple[float, str, EndedPod]] = msgspec.field(default_factory=list)
    _unanswered_failures: int = 0
    #: Indexes that failed at least once.
    _failed: set[str] = msgspec.field(default_factory=set)
    _backoff: BackoffRecord = NO_FAILURES
    _index_backoff: dict[str, tuple[int, datetime]] = msgspec.field(default_factory=dict)
    _ended: set[str] = msgspec.field(default_factory=set)
    _samples: list[tuple[datetime, int]] = msgspec.field(default_factory=list)

    # --- names ----------------------------------------------------------------------------

    def original_index(self, index: int) -> int:
        """Return the index that results and programs see: a resume keeps the first Job's."""
        return self.origins[index] if index < len(self.origins) else index

    def index_title(self, index: int) -> str:
        """Return `17: seed=54 lr=0.01`, or only the number."""
        row = f": {self.rows[index]}" if index < len(self.rows) else ""
        return f"{self.original_index(index)}{row}"

    def prefix(self, pod: Pod) -> str:
        """Return the prefix of a Pod's log lines: its parameters, or else its name."""
        index = read_index(pod.metadata.annotations.get(INDEX_ANNOTATION)) if self.rows else None
        if index is None or index >= len(self.rows):
            return pod.metadata.name
        return f"{self.original_index(index)} {self.rows[index]}"

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
    def distinct_failures(self) -> list[tuple[EndedPod, int]]:
        """Last Pod of each distinct failure and their number, the most frequent last."""
        return [(pod, count) for count, pod in sorted(self.causes.values(), key=lambda c: c[0])]

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
        if (index := read_index(ended.index)) is not None:
            ended = replace(ended, title=f"index {self.index_title(index)}")
        self.ended_pods += 1
        self.pod_seconds += ended.seconds
        self.peak_bytes = max(self.peak_bytes, ended.peak_bytes)
        self.cpu_seconds += ended.cpu_seconds
        if not ended.stopped and index is not None:
            self.index_seconds[index] = ended.seconds
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
        self._count_cause(ended)
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

    def _count_cause(self, pod: EndedPod) -> None:
        message = pod.message.partition("\n")[0]
        cause = (pod.container, pod.exit_code, pod.reason, message)
        if cause not in self.causes and len(self.causes) >= _MAX_CAUSES:
            # Too many to be distinct in a useful way: only by exit code.
            cause = (pod.container, pod.exit_code, pod.reason, "")
        count, _ = self.causes.get(cause, (0, pod))
        self.causes[cause] = (count + 1, pod)


class RunProgress(msgspec.Struct):
    """Progress of all Jobs of a run, by UID. Iteration yields them in the order of `expect`.

    `of_pod` returns None for Pods of other Jobs. `done` and `all_complete` are True without Jobs.
    Jobs of workflows are added as they appear; the outcome is that of their workflows.
    """

    jobs: dict[str, JobProgress] = msgspec.field(default_factory=dict)
    workflows: "dict[str, WorkflowProgress]" = msgspec.field(default_factory=dict)

    def expect(
        self, job: Job, now: datetime, rows: Sequence[str] = (), origins: Sequence[int] = ()
    ) -> JobProgress:
        """Add a Job; `rows` are texts of its indexes' parameters, `origins` their first indexes."""
        progress = JobProgress(job, now, rows, origins)
        progress.saw_job(job, now, deleted=False)
        self.jobs[job.metadata.uid] = progress
        return progress

    def of_pod(self, pod: Pod) -> JobProgress | None:
        owner = pod.metadata.controller_ref
        return self.jobs.get(owner.uid) if owner is not None else None

    @property
    def done(self) -> bool:
        # Workflows end last, and are few.
        return all(workflow.done for workflow in self.workflows.values()) and all(
            job.done for job in self.jobs.values()
        )

    @property
    def all_seen(self) -> bool:
        """True if no Job of a workflow is still to appear: watches are independent."""
        return all(
            uid in self.jobs for workflow in self.workflows.values() for uid in workflow.job_uids
        )

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
            and not any(workflow.moves(now) for workflow in self.workflows.values())
            and all(job.standstill(now) for job in unfinished)
            and any(job.lasting_wait is not None for job in unfinished)
        )

    @property
    def all_complete(self) -> bool:
        return all(job.complete for job in self.jobs.values() if not job.workflow) and all(
            workflow.complete for workflow in self.workflows.values()
        )

    def is_handled(self, job: JobProgress) -> bool:
        """Return whether a Job did not complete, but its workflow did nevertheless."""
        workflow = self.workflows.get(job.workflow)
        return workflow is not None and workflow.complete and not job.complete

    @property
    def failed_workflows(self) -> "list[WorkflowProgress]":
        """Workflows that did not complete: perhaps because of a task that started no Job."""
        return [workflow for workflow in self.workflows.values() if not workflow.complete]

    def __iter__(self) -> Iterator[JobProgress]:
        return iter(self.jobs.values())


def _describe_end(pod: Pod, seconds: float, *, stopping: bool) -> EndedPod:
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    ended = [status for status in statuses if status.state.terminated is not None]
    failed = failures_of_pod(pod)
    reported = failed[0] if failed else ended[-1] if ended else ContainerStatus()
    measured = [status.state.terminated for status in ended if status.state.terminated]
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
        peak_bytes=sum(end.peak_memory_bytes for end in measured),
        cpu_seconds=sum(end.cpu_milliseconds for end in measured) / 1000,
        stopped=(stopping or pod.metadata.deleting) and pod.phase != "Succeeded",
    )
