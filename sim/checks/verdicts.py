"""Invariants of a Job's outcome and reason: each policy is kept, and no decision is lost.

A decision is recorded once the status has one of the conditions FailureTarget, SuccessCriteriaMet,
Failed or Complete. The controller may see the cause of one late, so a check compares with the
recorded state, for which the controller waits before it decides.
"""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from onejob.objects.job import Job
from onejob.objects.meta import Condition, Key
from onejob.objects.pod import Pod
from onejob.planning.job.pod_facts import completion_index, is_tracked
from onejob.planning.pod.restart_policy import restart_policy_of
from sim.checks import policies
from sim.checks.jobs import selects
from sim.checks.problems import Problems

FAILURE_POLICY = "the Pod failure policy is kept"
SUCCESS_POLICY = "the success policy is kept"
PER_INDEX = "backoffLimitPerIndex and maxFailedIndexes are kept"
SUSPENSION = "a suspended Job starts no Pods"
MANAGED = "a Job of another manager is left alone"
DEADLINE = "activeDeadlineSeconds is kept"
OVER = "no Pod is started after the verdict"
REASON = "a verdict has its reason"
TIME_TO_LIVE = "a finished Job stays for its time to live"

_VERDICTS = ("FailureTarget", "SuccessCriteriaMet", "Failed", "Complete")
#: Reasons that apply only where no other does.
_LAST_REASONS = ("FailedIndexes", "SuccessPolicy", "CompletionsReached")
#: A Pod is created in the sync that decided on it; commits take half a second at most.
_SYNC = timedelta(seconds=5)


@dataclass
class VerdictCheck:
    """Check of one Job.

    `steady_clock`: the clock was never set; conditions that depend on time are only checked then.
    `deleted_by_users` holds the keys that users tried to delete.
    """

    problems: Problems
    job: Job
    steady_clock: bool
    deleted_by_users: Set[Key]
    #: UIDs of Pods whose tracking finalizer users removed.
    stripped_by_users: Set[str]
    gone: bool = False
    _pods: dict[str, Pod] = field(default_factory=dict)
    #: UIDs of Pods that left the Job at some time.
    _strayed: set[str] = field(default_factory=set)
    #: UIDs ever listed as failed in the status.
    _listed: set[str] = field(default_factory=set)
    _listed_by_index: Counter[int] = field(default_factory=Counter)
    #: The controller deleted Pods on its own initiative, and with them their record of failures.
    _counts_lost: bool = False
    _fewest_completions: int = 1 << 31
    _deadline_edited_at: datetime | None = None
    #: Reason why no Pod may be started any more, if recorded for the current spec; else empty.
    _over: str = ""
    #: The status records the suspension that the spec requests.
    _suspended: bool = False

    # --- the Job

    def see_job(self, job: Job, at: datetime, *, gone: bool) -> None:
        before, self.job = self.job, job
        first = before is job
        # An edit during deletion is too late to keep the Job.
        if (gone or job.metadata.deleting) and not before.metadata.deleting:
            self._see_deleted(job, at)
        self.gone = self.gone or gone
        if gone:
            return
        if job.spec.managed_by is not None:
            if job.status != before.status or job.status.start_time is not None:
                self._complain(MANAGED, f"has the status {job.status}")
            return
        self._see_spec(before, job, at)
        verdict = _verdict(job)
        if verdict is not None and (first or _verdict(before) is None):
            self._see_verdict(job, verdict)
        self._see_listed(job)
        changed_status = first or job.status != before.status
        if changed_status and job.metadata.generation == before.metadata.generation:
            self._see_recorded(before, job)

    def _see_spec(self, before: Job, job: Job, at: datetime) -> None:
        spec, old = job.spec, before.spec
        if spec.active_deadline_seconds != old.active_deadline_seconds:
            self._deadline_edited_at = at
        self._fewest_completions = min(self._fewest_completions, spec.completions or 0)
        shrunk = (spec.parallelism or 0) < (old.parallelism or 0)
        shrunk |= (spec.completions or 0) < (old.completions or 0)
        self._counts_lost |= spec.suspend or shrunk
        if job.metadata.generation != before.metadata.generation:
            self._over = ""
            self._suspended = False

    def _see_recorded(self, before: Job, job: Job) -> None:
        """Note the consequences of a status that was written for the current spec."""
        if _verdict(job) is not None:
            self._over = "its verdict is on record"
        elif policies.too_many_failures(job):
            self._over = f"{job.status.failed} of its Pods have failed"
        elif policies.too_many_failed_indexes(job):
            self._over = f"its indexes {job.status.failed_indexes} have failed"
        elif policies.succeeds_early(job):
            self._over = f"its indexes {job.status.completed_indexes} are enough"
        recorded = job.condition_is_true("Suspended")
        if job.spec.suspend and recorded and not before.condition_is_true("Suspended"):
            self._suspended = True
        elif not recorded:
            self._suspended = False

    def _see_verdict(self, job: Job, verdict: Condition) -> None:
        reason, failed = verdict.reason, policies.failed_indexes(job)
        if reason in _LAST_REASONS:
            self._see_outranked(job, verdict)
        match reason:
            case "PodFailurePolicy":
                if not any(self._fails_the_job(pod) for pod in self._pods.values()):
                    self._complain(REASON, f"{verdict.message}: no Pod matches such a rule")
            case "BackoffLimitExceeded":
                retries_in_place = restart_policy_of(job) == "OnFailure"
                if not (retries_in_place or policies.too_many_failures(job)):
                    self._complain(REASON, f"{reason} with {job.status}")
            case "MaxFailedIndexesExceeded":
                if not policies.too_many_failed_indexes(job):
                    self._complain(REASON, f"{reason} with {job.status.failed_indexes}")
            case "FailedIndexes":
                done = policies.completed_indexes(job)
                if not failed or len(failed | done) < (job.spec.completions or 0):
                    self._complain(REASON, f"{reason} with {job.status}")
            case "SuccessPolicy":
                if not policies.succeeds_early(job):
                    self._complain(SUCCESS_POLICY, f"succeeds with {job.status.completed_indexes}")
            case "CompletionsReached":
                if failed:
                    self._complain(PER_INDEX, f"succeeds though {failed} have failed")
                if policies.succeeds_early(job):
                    self._complain(SUCCESS_POLICY, "its rules were met, and nobody noticed")
            case "DeadlineExceeded":
                self._see_deadline_exceeded(job, verdict)
            case _:
                pass

    def _see_outranked(self, job: Job, verdict: Condition) -> None:
        """Complain if a reason of higher precedence applies."""
        if policies.too_many_failures(job):
            self._complain(REASON, f"{verdict.reason} in spite of {job.status}")
        if policies.too_many_failed_indexes(job):
            self._complain(PER_INDEX, f"{verdict.reason} in spite of {job.status.failed_indexes}")
        deadline, decided = self._deadline_known(job), verdict.last_transition_time
        if deadline is None or decided is None or not self.steady_clock:
            return
        if decided >= deadline:
            self._complain(DEADLINE, f"{verdict.reason} at {decided}, after {deadline}")

    def _see_deadline_exceeded(self, job: Job, verdict: Condition) -> None:
        deadline = self._deadline(job)
        if deadline is None:
            self._complain(DEADLINE, "has none, and exceeds it")
        elif self.steady_clock and (verdict.last_transition_time or deadline) < deadline:
            self._complain(DEADLINE, f"ended at {verdict.last_transition_time}, before {deadline}")

    def _see_listed(self, job: Job) -> None:
        lists = job.status.uncounted_terminated_pods
        new = set(lists.failed if lists is not None else ()) - self._listed
        self._listed |= new
        limit = job.spec.backoff_limit_per_index
        for uid in sorted(new & self._pods.keys()):
            pod = self._pods[uid]
            self._require_verdict(pod, "was counted")
            index = completion_index(pod)
            if limit is None or index is None:
                continue
            self._listed_by_index[index] += 1
            times = self._listed_by_index[index]
            if times > limit + 1 and self._knows_all_failures(index):
                self._complain(PER_INDEX, f"index {index} failed {times} times, of {limit + 1}")

    def _knows_all_failures(self, index: int) -> bool:
        return not (self._counts_lost or self._strayed) and index < self._fewest_completions

    def _see_deleted(self, job: Job, at: datetime) -> None:
        """Check that users, its owner, its namespace or its TTL deleted a finished Job."""
        metadata, finished = job.metadata, job.finished_condition
        others = job.key in self.deleted_by_users or metadata.owner_references
        if finished is None or others or metadata.namespace != "default" or not self.steady_clock:
            return
        seconds, since = policies.time_to_live(job), finished.last_transition_time
        if seconds is None or since is None:
            self._complain(TIME_TO_LIVE, f"has none, and was deleted at {at}")
        elif at < since + timedelta(seconds=seconds):
            self._complain(TIME_TO_LIVE, f"finished at {since}, was deleted at {at}")

    # --- its Pods

    def see_pod(self, pod: Pod, *, gone: bool, adopted: bool = False) -> None:
        """Check a version of a Pod. `adopted`: another Job owned it before."""
        uid = pod.metadata.uid
        before = self._pods.get(uid)
        self._pods[uid] = pod
        owner = pod.metadata.controller_ref
        if owner is None or owner.uid != self.job.metadata.uid:
            self._strayed.add(uid)
        if adopted or not selects(self.job, pod) or uid in self.stripped_by_users:
            self._strayed.add(uid)
        if before is None:
            if not adopted:
                self._see_created(pod)
        elif is_tracked(before) and (gone or not is_tracked(pod)):
            self._see_freed(before)

    def _see_created(self, pod: Pod) -> None:
        job, name, index = self.job, pod.metadata.name, completion_index(pod)
        if self.gone:
            return
        if job.spec.managed_by is not None:
            self._complain(MANAGED, f"{name} was created for it")
        if self._over:
            self._complain(OVER, f"{name} was created though {self._over}")
        if self._suspended:
            self._complain(SUSPENSION, f"{name} was created")
        if index is not None and index in policies.failed_indexes(job):
            self._complain(PER_INDEX, f"{name} was created though its index has failed")
        deadline, created = self._deadline_known(job), pod.metadata.creation_timestamp
        if deadline is None or created is None or not self.steady_clock:
            return
        if created > deadline + _SYNC:
            self._complain(DEADLINE, f"{name} was created at {created}, after {deadline}")

    def _see_freed(self, pod: Pod) -> None:
        self._require_verdict(pod, "was let go")
        job, index = self.job, completion_index(pod)
        action = policies.action_for(job.spec.pod_failure_policy, pod)
        if pod.phase != "Failed" or action != "FailIndex" or self._excused(pod):
            return
        if index is not None and index >= self._fewest_completions:
            return
        if index not in policies.failed_indexes(job):
            self._complain(FAILURE_POLICY, f"{pod.metadata.name} fails index {index}, unrecorded")

    def _require_verdict(self, pod: Pod, what: str) -> None:
        """Complain if the Pod fails the Job and no decision is recorded yet.

        No later sync evaluates it.
        """
        if self._fails_the_job(pod) and not self._excused(pod):
            self._complain(FAILURE_POLICY, f"{pod.metadata.name} fails the Job and {what} before")

    def _excused(self, pod: Pod) -> bool:
        """Return whether a decision is recorded already or none is due."""
        job = self.job
        over = self.gone or job.metadata.deleting or _verdict(job) is not None
        return over or pod.metadata.uid in self._strayed

    def _fails_the_job(self, pod: Pod) -> bool:
        policy = self.job.spec.pod_failure_policy
        return pod.phase == "Failed" and policies.action_for(policy, pod) == "FailJob"

    def _deadline(self, job: Job) -> datetime | None:
        seconds, since = job.spec.active_deadline_seconds, job.status.start_time
        if seconds is None or since is None or job.spec.suspend:
            return None
        return since + timedelta(seconds=seconds)

    def _deadline_known(self, job: Job) -> datetime | None:
        """Return the deadline, but not before the controller can have seen an edit of it."""
        deadline, edited_at = self._deadline(job), self._deadline_edited_at
        if deadline is None or edited_at is None:
            return deadline
        return max(deadline, edited_at + _SYNC)

    def _complain(self, check: str, text: str) -> None:
        metadata = self.job.metadata
        self.problems.add(check, f"Job {metadata.namespace}/{metadata.name}: {text}")


def _verdict(job: Job) -> Condition | None:
    found = (job.condition(kind) for kind in _VERDICTS)
    return next((one for one in found if one is not None and one.status == "True"), None)
