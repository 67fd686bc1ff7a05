"""Invariants of one Job and its Pods: exact counters, and the Pods that may run concurrently."""

import sys
from collections.abc import Set
from dataclasses import dataclass, field

from onejob.objects.job import Job, UncountedPods
from onejob.objects.pod import Pod
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.pod_facts import completion_index, is_tracked
from sim.checks.policies import fewest_successes, is_ignored
from sim.checks.problems import Problems

COUNTS, TERMINAL, FREED = "exact counts", "terminal status", "freed after counted"
COMPANY, FINISHED = "one Pod per index", "finished after its Pods"


@dataclass
class _Life:
    """History of one Pod."""

    now: Pod
    gone: bool = False
    succeeded: bool = False
    #: Failed, or deleted before it had ended. The Job may count such a Pod as failed even if its
    #: program still exits with 0.
    failed: bool = False
    #: At some time not owned or not selected by the Job.
    strayed: bool = False


@dataclass
class JobCheck:
    """Check of one Job and of all Pods that it ever owned."""

    problems: Problems
    job: Job
    #: UIDs of Pods whose tracking finalizer users removed.
    stripped: Set[str] = frozenset()
    #: Pods may have been counted without finalizers for a while. Work of deleted Pods may then be
    #: repeated, but no nonexistent Pod is counted and none is counted twice.
    gates_switched: bool = False
    gone: bool = False
    _lives: dict[str, _Life] = field(default_factory=dict)
    #: UIDs ever listed in `uncountedTerminatedPods`.
    _listed_succeeded: set[str] = field(default_factory=set)
    _listed_failed: set[str] = field(default_factory=set)
    #: Highest parallelism ever requested, and the lowest number of successes ever sufficient to
    #: complete.
    _most_parallel: int = 0
    _fewest_enough: int = sys.maxsize
    _fewest_completions: int = sys.maxsize
    #: Every spec so far had podReplacementPolicy Failed: terminating Pods are not replaced.
    _alone: bool = True

    def see_pod(self, pod: Pod, *, gone: bool, adopted: bool = False) -> None:
        """Record a version of a Pod. `adopted`: another Job owned it before."""
        uid = pod.metadata.uid
        life = self._lives.setdefault(uid, _Life(pod))
        if is_tracked(life.now) and (gone or not is_tracked(pod)):
            self._see_freed(life)
        life.now, life.gone = pod, gone
        life.succeeded |= pod.phase == "Succeeded"
        life.failed |= pod.phase == "Failed" or (pod.metadata.deleting and not life.succeeded)
        # Without a finalizer, an unscheduled Pod is removed at once.
        life.failed |= self.gates_switched and gone and not life.succeeded
        owner = pod.metadata.controller_ref
        life.strayed |= owner is None or owner.uid != self.job.metadata.uid
        life.strayed |= adopted or not selects(self.job, pod)
        self._check_company()

    def see_job(self, job: Job, *, gone: bool) -> None:
        before, self.job, self.gone = self.job, job, gone
        if gone:
            return
        self._fewest_completions = min(self._fewest_completions, job.spec.completions or 0)
        self._fewest_enough = min(self._fewest_enough, fewest_successes(job))
        self._most_parallel = max(self._most_parallel, job.spec.parallelism or 0)
        self._alone &= job.spec.pod_replacement_policy == "Failed"
        if before.finished and job.status != before.status:
            self._complain(TERMINAL, f"a finished status changed: {before.status} -> {job.status}")
        if _succeeds(job) and not _succeeds(before):
            self._see_success(job)
        if job.finished and not before.finished:
            self._see_finished(before, job)
        if self.gates_switched:
            self._see_sums(job)
            return
        old, new = _lists(before), _lists(job)
        self._see_listed(job, set(new.succeeded) - set(old.succeeded), self._listed_succeeded)
        self._see_listed(job, set(new.failed) - set(old.failed), self._listed_failed)
        for uid in set(new.succeeded) & set(new.failed):
            self._complain(COUNTS, f"{self._name(uid)} is listed as succeeded and as failed")
        self._see_counters(before, job)

    def see_the_end(self) -> None:
        if self.gone:
            return
        job = self.job
        if not job.finished and job.spec.managed_by is None:
            self._complain("convergence", f"did not finish after the faults: {job.status}")
            return
        for life in self._lives.values():
            if not (life.gone or life.strayed or life.now.terminal):
                self._complain("convergence", f"{life.now.metadata.name} still runs")

    def _see_success(self, job: Job) -> None:
        """Check the success criteria once they are met.

        Not at the end: indexes may be dropped before the Job is finished.
        """
        succeeded = job.status.succeeded + len(_lists(job).succeeded)
        if succeeded < self._fewest_enough:
            self._complain(COUNTS, f"succeeds with {succeeded} of {self._fewest_enough}")

    def _see_finished(self, before: Job, job: Job) -> None:
        status = job.status
        if _lists(job) != UncountedPods():
            self._complain(COUNTS, f"finished with uncounted Pods: {_lists(job)}")
        succeeded = len(self._listed_succeeded)
        if self.gates_switched:
            succeeded = status.succeeded
        elif job.indexed:
            completed = parse_indexes(status.completed_indexes, job.spec.completions or 0)
            succeeded = len(completed)
            if job.spec.completions != job.spec.parallelism:
                # An elastic Job that was scaled down and is no longer elastic keeps its count.
                succeeded = max(succeeded, before.status.succeeded)
        failed = status.failed if self.gates_switched else len(self._listed_failed)
        if (status.succeeded, status.failed) != (succeeded, failed):
            self._complain(COUNTS, f"{status} is not the sum of what was listed")
        for life in self._lives.values():
            if not (life.gone or life.strayed or life.now.terminal):
                name = life.now.metadata.name
                self._complain(FINISHED, f"is finished while {name} is {life.now.phase}")

    def _see_counters(self, before: Job, job: Job) -> None:
        old, new = _lists(before), _lists(job)
        if not job.indexed:
            left = set(old.succeeded) - set(new.succeeded)
            self._check_counted("succeeded", before.status.succeeded, job.status.succeeded, left)
        left = set(old.failed) - set(new.failed)
        self._check_counted("failed", before.status.failed, job.status.failed, left)

    def _see_sums(self, job: Job) -> None:
        """Check that no more Pods are counted than existed."""
        lists, status = _lists(job), job.status
        succeeded = sum(life.succeeded for life in self._lives.values())
        failed = sum(life.failed for life in self._lives.values())
        if not job.indexed and status.succeeded + len(lists.succeeded) > succeeded:
            self._complain(COUNTS, f"{succeeded} Pods succeeded, and the status is {status}")
        if status.failed + len(lists.failed) > failed:
            self._complain(COUNTS, f"{failed} Pods failed, and the status is {status}")

    def _see_freed(self, life: _Life) -> None:
        """Check that an ended Pod was counted before its finalizer was removed."""
        pod, job = life.now, self.job
        if not pod.terminal or life.strayed or self.gone or job.finished or job.metadata.deleting:
            return
        if self.gates_switched or pod.metadata.uid in self.stripped:
            return
        index = completion_index(pod)
        if job.indexed and (index is None or index >= self._fewest_completions):
            return  # Results of an index that the Job no longer has are dropped.
        if index is not None and pod.phase == "Succeeded":
            recorded = parse_indexes(job.status.completed_indexes, job.spec.completions or 0)
            if index in recorded:
                return
        if pod.phase == "Failed" and not _counts(job, pod):
            return
        # Once a Job succeeds, the finalizers of the Pods that it terminated are removed regardless,
        # as in Kubernetes (`canRemoveFinalizer`): a Pod may end, either way, before the controller
        # sees that.
        if job.condition_is_true("SuccessCriteriaMet") and pod.metadata.deleting:
            return
        # Once the Job fails, Pods still running at that time have failed, and are not counted if
        # its policy ignores their failures: one may have succeeded at that very moment.
        failing = job.condition_is_true("FailureTarget")
        if failing and pod.metadata.deleting and not _counts(job, pod):
            return
        if pod.metadata.uid not in self._listed_succeeded | self._listed_failed:
            name = pod.metadata.name
            self._complain(FREED, f"{name} ended ({pod.phase}), was freed and never counted")

    def _see_listed(self, job: Job, added: set[str], ever: set[str]) -> None:
        for uid in sorted(added):
            life = self._lives.get(uid)
            if uid in ever:
                self._complain(COUNTS, f"{self._name(uid)} is listed a second time")
            if life is None:
                self._complain(COUNTS, f"{uid} is listed and was never seen")
            elif ever is self._listed_succeeded and not life.succeeded:
                self._complain(COUNTS, f"{self._name(uid)} is listed as succeeded and has not")
            elif ever is self._listed_failed and not life.failed:
                self._complain(COUNTS, f"{self._name(uid)} is listed as failed and has not")
            elif life.now.phase == "Failed" and not (
                _counts(job, life.now) or _ended(job, life.now)
            ):
                self._complain(COUNTS, f"{self._name(uid)} is counted though a rule ignores it")
        ever |= added

    def _check_counted(self, what: str, before: int, after: int, left: set[str]) -> None:
        if after - before != len(left):
            self._complain(COUNTS, f"{what} went from {before} to {after} for {len(left)} Pods")

    def _check_company(self) -> None:
        """Check the number of live Pods, in total and per index."""
        if self.gone:
            return
        live = [life for life in self._lives.values() if not life.gone and not life.now.terminal]
        counted = [life.now for life in live if self._alone or not life.now.metadata.deleting]
        if self.job.indexed and not any(life.strayed for life in live):
            indexes = [completion_index(pod) for pod in counted]
            if len(indexes) != len(set(indexes)):
                names = [pod.metadata.name for pod in counted]
                self._complain(COMPANY, f"two of these have one index: {names}")
        strayed = any(life.strayed for life in self._lives.values())
        if len(counted) > self._most_parallel and not strayed:
            most = self._most_parallel
            self._complain("parallelism", f"{len(counted)} Pods at once, at most {most} asked")

    def _complain(self, check: str, text: str) -> None:
        metadata = self.job.metadata
        self.problems.add(check, f"Job {metadata.namespace}/{metadata.name}: {text}")

    def _name(self, uid: str) -> str:
        return self._lives[uid].now.metadata.name if uid in self._lives else uid


def selects(job: Job, pod: Pod) -> bool:
    """Return whether the Job's selector matches the Pod's labels."""
    wanted = job.spec.selector.match_labels if job.spec.selector is not None else {}
    return all(pod.metadata.labels.get(name) == value for name, value in wanted.items())


def _succeeds(job: Job) -> bool:
    return job.condition_is_true("SuccessCriteriaMet") or job.condition_is_true("Complete")


def _ended(job: Job, pod: Pod) -> bool:
    """Return whether a failing Job terminated this Pod.

    Such a Pod counts as failed while it still runs, as in Kubernetes
    (`trackJobStatusAndRemoveFinalizers`), whatever its exit code is before the controller sees its
    end.
    """
    return job.condition_is_true("FailureTarget") and pod.metadata.deleting


def _counts(job: Job, failed: Pod) -> bool:
    return not is_ignored(job, failed)


def _lists(job: Job) -> UncountedPods:
    return job.status.uncounted_terminated_pods or UncountedPods()
