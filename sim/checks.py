"""What must hold at every moment of every history, and at its end.

Two watches record every version of every Pod and Job. They are judged when all is over, in the
order in which they were stored, so that a Job is compared with the Pods of its own moment.
"""

import sys
from dataclasses import dataclass, field

from onejob.client.base import Client, Selection
from onejob.objects.job import Job, UncountedPods, read_job
from onejob.objects.meta import JOBS
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.failure_policy import judge_failed_pod
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.pod_facts import completion_index, is_tracked


@dataclass(frozen=True)
class Version:
    """An object as it was stored at a revision, or as it was when it went."""

    revision: int
    subject: Job | Pod
    gone: bool


class History:
    """Follows what is stored, without faults, and judges it afterwards."""

    def __init__(self) -> None:
        self._versions: list[Version] = []

    async def follow(self, client: Client, resource: str) -> None:
        read = read_job if resource == JOBS else read_pod
        listing = await client.list(Selection(resource))
        for document in listing.documents:
            self._note(read(document))
        async for batch in client.watch(Selection(resource), after=listing.revision):
            for event in batch:
                if event.type != "BOOKMARK":
                    self._note(read(event.document), gone=event.type == "DELETED")

    def problems(self) -> tuple[str, ...]:
        judge = _Judge()
        for version in sorted(self._versions, key=lambda version: version.revision):
            if isinstance(version.subject, Job):
                judge.see_job(version.subject)
            else:
                judge.see_pod(version.subject, gone=version.gone)
        judge.see_the_end()
        return tuple(judge.problems)

    def _note(self, subject: Job | Pod, *, gone: bool = False) -> None:
        self._versions.append(Version(subject.metadata.revision, subject, gone))


@dataclass
class _Life:
    """What a Pod has been through."""

    now: Pod
    gone: bool = False
    succeeded: bool = False
    #: Failed, or deleted before it had ended: a Job may count it as failed.
    failed: bool = False
    #: Not the Job's own, or not selected by it, at some moment.
    strayed: bool = False


@dataclass
class _Judge:
    problems: list[str] = field(default_factory=list)
    _job: Job | None = None
    _lives: dict[str, _Life] = field(default_factory=dict)
    #: UIDs that were ever in the status' lists.
    _listed_succeeded: set[str] = field(default_factory=set)
    _listed_failed: set[str] = field(default_factory=set)
    #: The Job as it was when it had just finished.
    _finished: Job | None = None
    #: The most that was ever asked for at once, and the least that was ever enough to complete.
    _most_parallel: int = 0
    _fewest_enough: int = sys.maxsize
    _fewest_completions: int = sys.maxsize

    def see_pod(self, pod: Pod, *, gone: bool) -> None:
        uid = pod.metadata.uid
        life = self._lives.setdefault(uid, _Life(pod))
        if is_tracked(life.now) and (gone or not is_tracked(pod)):
            self._see_freed(life)
        life.now, life.gone = pod, gone
        life.succeeded |= pod.phase == "Succeeded"
        life.failed |= pod.phase == "Failed" or (pod.metadata.deleting and not life.succeeded)
        life.strayed |= pod.metadata.controller_ref is None
        life.strayed |= "batch.kubernetes.io/controller-uid" not in pod.metadata.labels
        self._check_company()

    def see_job(self, job: Job) -> None:
        before, self._job = self._job, job
        if self._finished is None and job.finished:
            self._finished = job
        self._fewest_completions = min(self._fewest_completions, job.spec.completions or 0)
        self._fewest_enough = min(self._fewest_enough, _enough(job))
        self._most_parallel = max(self._most_parallel, job.spec.parallelism or 0)
        if before is None:
            return
        if before.finished and job.status != before.status:
            self._complain(f"a finished Job's status changed: {before.status} -> {job.status}")
        old, new = _lists(before), _lists(job)
        self._see_listed(job, set(new.succeeded) - set(old.succeeded), self._listed_succeeded)
        self._see_listed(job, set(new.failed) - set(old.failed), self._listed_failed)
        for uid in set(new.succeeded) & set(new.failed):
            self._complain(f"{self._name(uid)} is listed as succeeded and as failed")
        if not job.indexed:
            counted = set(old.succeeded) - set(new.succeeded)
            self._check_counted(before.status.succeeded, job.status.succeeded, counted)
        self._check_counted(
            before.status.failed, job.status.failed, set(old.failed) - set(new.failed)
        )

    def see_the_end(self) -> None:
        job = self._finished
        if job is None:
            self._complain("the Job did not finish after the faults had ended")
            return
        status = job.status
        if _lists(job) != UncountedPods():
            self._complain(f"a finished Job has uncounted Pods: {_lists(job)}")
        succeeded = (
            len(parse_indexes(status.completed_indexes, job.spec.completions or 0))
            if job.indexed
            else len(self._listed_succeeded)
        )
        if (status.succeeded, status.failed) != (succeeded, len(self._listed_failed)):
            self._complain(f"{status} is not the sum of what was listed")
        if job.condition_is_true("Complete") and status.succeeded < self._fewest_enough:
            self._complain(f"Complete with {status.succeeded} of {self._fewest_enough}")
        for life in self._lives.values():
            if life.gone:
                continue
            if life.now.metadata.finalizers:
                self._complain(f"a finalizer is left on {life.now.metadata.name}")
            if not life.now.terminal and not life.strayed:
                self._complain(f"{life.now.metadata.name} still runs")

    def _see_freed(self, life: _Life) -> None:
        """A Pod that has ended may go only once it is accounted for."""
        pod, job = life.now, self._job
        if not pod.terminal or job is None or life.strayed or job.finished:
            return
        index = completion_index(pod)
        if job.indexed and (index is None or index >= self._fewest_completions):
            return  # An index that the Job has no more is forgotten.
        if index is not None and pod.phase == "Succeeded":
            recorded = parse_indexes(job.status.completed_indexes, job.spec.completions or 0)
            if index in recorded:
                return
        if pod.phase == "Failed" and (
            not _counts(job, pod) or job.condition_is_true("SuccessCriteriaMet")
        ):
            return
        if pod.metadata.uid not in self._listed_succeeded | self._listed_failed:
            self._complain(f"{pod.metadata.name} ended ({pod.phase}), was freed and never counted")

    def _see_listed(self, job: Job, added: set[str], ever: set[str]) -> None:
        for uid in added:
            life = self._lives.get(uid)
            if uid in ever:
                self._complain(f"{self._name(uid)} is listed a second time")
            if life is None:
                self._complain(f"{uid} is listed and was never seen")
            elif ever is self._listed_succeeded and not life.succeeded:
                self._complain(f"{self._name(uid)} is listed as succeeded and has not")
            elif ever is self._listed_failed and not (life.failed and not life.succeeded):
                self._complain(f"{self._name(uid)} is listed as failed and has not")
            elif life.now.phase == "Failed" and not _counts(job, life.now):
                self._complain(f"{self._name(uid)} is counted though a rule ignores it")
        ever |= added

    def _check_counted(self, before: int, after: int, left: set[str]) -> None:
        if after - before != len(left):
            self._complain(f"a counter went from {before} to {after} for {len(left)} Pods")

    def _check_company(self) -> None:
        """Which Pods may live side by side."""
        if self._job is None:
            return
        alone = self._job.spec.pod_replacement_policy == "Failed"
        live = [
            life.now for life in self._lives.values() if not life.gone and not life.now.terminal
        ]
        counted = [pod for pod in live if alone or not pod.metadata.deleting]
        if self._job.indexed:
            indexes = [completion_index(pod) for pod in counted]
            if len(indexes) != len(set(indexes)):
                names = [pod.metadata.name for pod in counted]
                self._complain(f"two of these have one index: {names}")
        strayed = any(life.strayed for life in self._lives.values())
        if len(counted) > self._most_parallel and not strayed:
            self._complain(f"{len(counted)} Pods at once, at most {self._most_parallel} asked")

    def _complain(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _name(self, uid: str) -> str:
        return self._lives[uid].now.metadata.name if uid in self._lives else uid


def _counts(job: Job, failed: Pod) -> bool:
    return judge_failed_pod(job.spec.pod_failure_policy, failed).counts


def _enough(job: Job) -> int:
    """How many successes complete a Job."""
    policy = job.spec.success_policy
    counts = [rule.succeeded_count for rule in policy.rules] if policy is not None else []
    return min((count for count in counts if count is not None), default=job.spec.completions or 0)


def _lists(job: Job) -> UncountedPods:
    return job.status.uncounted_terminated_pods or UncountedPods()
