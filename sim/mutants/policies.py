"""Mutants of Job policies, limits, suspension, manager and queue."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import msgspec

from onejob.controllers import job as job_module
from onejob.controllers import job_events
from onejob.controllers import ttl as ttl_module
from onejob.informers import workqueue
from onejob.informers.workqueue import WorkQueue
from onejob.objects.job import Job, PodFailurePolicy, SuccessPolicy
from onejob.objects.pod import Pod
from onejob.planning.job import counting, fate, oom, per_index, planner, scaling, tracking
from onejob.planning.job.failure_policy import NO_RULING, PolicyMatch, match_failure_policy
from onejob.planning.job.fate import deadline_of
from onejob.planning.job.indexes import IndexSet
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import JobOutcome, Plan
from onejob.planning.job.pod_facts import completion_index, pod_failed
from onejob.planning.job.success_policy import matching_success_rule
from onejob.planning.queue.order import JobQueue
from onejob.planning.ttl import Expires, Expiry
from onejob.wire.errors import Forbidden
from sim.mutants.planting import Plant, replace

#: Modules that evaluate failed Pods.
_JUDGING = (tracking, fate, per_index, counting)


def _lose_the_verdict(undo: ExitStack) -> None:
    """A Pod that fails the Job loses its finalizer while the decision is postponed."""

    def may_lose_finalizer(plan: Plan, pod: Pod, fate: JobOutcome | None) -> bool:
        job = plan.job
        if fate is not None or job.metadata.deleting or pod.phase == "Succeeded":
            return True
        if not pod_failed(pod, job):
            return False
        keeper = plan.ledger.tally.retained.get(completion_index(pod) or 0)
        return keeper is None or keeper.metadata.uid != pod.metadata.uid

    replace(undo, tracking, "_may_lose_finalizer", may_lose_finalizer)


def _overlook(undo: ExitStack, action: str) -> None:
    """Rules with this action are ignored."""

    def check(policy: PodFailurePolicy | None, pod: Pod) -> PolicyMatch:
        ruling = match_failure_policy(policy, pod)
        return NO_RULING if ruling.action == action else ruling

    for module in _JUDGING:
        replace(undo, module, "match_failure_policy", check)


def _take_the_last_rule(undo: ExitStack) -> None:
    """The last matching rule of a failure policy decides instead of the first."""

    def check(policy: PodFailurePolicy | None, pod: Pod) -> PolicyMatch:
        if policy is not None:
            policy = PodFailurePolicy(rules=tuple(reversed(policy.rules)))
        return match_failure_policy(policy, pod)

    for module in _JUDGING:
        replace(undo, module, "match_failure_policy", check)


def _overlook_success(undo: ExitStack) -> None:
    """Success policies are evaluated only once all indexes are completed."""

    def match(policy: SuccessPolicy | None, completions: int, completed: IndexSet) -> int | None:
        if len(completed) < completions:
            return None
        return matching_success_rule(policy, completions, completed)

    replace(undo, fate, "matching_success_rule", match)


def _succeed_early(undo: ExitStack) -> None:
    """A success policy is met with one index too few."""

    def match(policy: SuccessPolicy | None, completions: int, completed: IndexSet) -> int | None:
        more = completed.with_indexes([next(iter(completed.gaps(completions)), [0])[0]])
        return matching_success_rule(policy, completions, more if completed else completed)

    replace(undo, fate, "matching_success_rule", match)


def _retry_an_index_once_more(undo: ExitStack) -> None:
    def fails(job: Job, pod: Pod) -> bool:
        spec = job.spec
        if spec.backoff_limit_per_index is not None:
            more = spec.backoff_limit_per_index + 1
            spec = msgspec.structs.replace(spec, backoff_limit_per_index=more)
        return original(msgspec.structs.replace(job, spec=spec), pod)

    original = per_index.fails_its_index
    replace(undo, per_index, "fails_its_index", fails)


def _allow_one_more_failed_index(undo: ExitStack) -> None:
    def failed(job: Job, tally: Any) -> JobOutcome | None:
        spec = job.spec
        if spec.max_failed_indexes is not None:
            spec = msgspec.structs.replace(spec, max_failed_indexes=spec.max_failed_indexes + 1)
        return original(msgspec.structs.replace(job, spec=spec), tally)

    original = fate._indexes_failed
    replace(undo, fate, "_indexes_failed", failed)


def _run_while_suspended(undo: ExitStack) -> None:
    """A suspended Job replaces failed Pods."""
    original = scaling.change_pods

    def change(job: Job, *rest: Any) -> Any:
        if job.spec.suspend and job.status.failed:
            spec = msgspec.structs.replace(job.spec, suspend=False)
            job = msgspec.structs.replace(job, spec=spec)
        return original(job, *rest)

    replace(undo, planner, "change_pods", change)


def _manage_all(undo: ExitStack) -> None:
    """A Job of another manager is synced when it changes."""

    def is_ours(job: Job, settings: Settings) -> bool:
        return True

    for module in (planner, job_module, job_events):
        replace(undo, module, "is_ours", is_ours)


def _overlook_deadlines(undo: ExitStack) -> None:
    for module in (fate, planner):
        replace(undo, module, "deadline_of", lambda job, start_time: None)


def _exceed_deadlines_early(undo: ExitStack) -> None:
    def deadline(job: Job, start_time: datetime | None) -> datetime | None:
        due = deadline_of(job, start_time)
        return None if due is None else due - timedelta(seconds=1)

    for module in (fate, planner):
        replace(undo, module, "deadline_of", deadline)


def _expire_early(undo: ExitStack) -> None:
    """A finished object with a TTL is deleted at once."""

    def early(expiry_of_kind: Callable[[Any], Expiry]) -> Callable[[Any], Expiry]:
        def expires(finished: Any) -> Expiry:
            expiry = expiry_of_kind(finished)
            if isinstance(expiry, Expires):
                return Expires(expiry.finished_at, expiry.finished_at)
            return expiry

        return expires

    for name in ("job_expiry", "pod_expiry"):
        replace(undo, ttl_module, name, early(getattr(ttl_module, name)))


def _give_up_when_denied(undo: ExitStack) -> None:
    """A reconciliation that was forbidden once is not retried."""

    async def worker(queue: WorkQueue[Any], reconcile: Any, name: str) -> None:
        async def once(key: Any) -> float | None:
            try:
                seconds: float | None = await reconcile(key)
                return seconds
            except Forbidden:
                return None

        await original(queue, once, name)

    original = workqueue._worker
    replace(undo, workqueue, "_worker", worker)


def _start_all_that_wait(undo: ExitStack) -> None:
    """The queue releases all waiting Jobs."""

    def start(line: JobQueue) -> Sequence[str]:
        waiting = dict(line._waiting)
        for uid, (_, scopes) in waiting.items():
            line.put_running(uid, scopes)
        return list(waiting)

    replace(undo, JobQueue, "start", start)


def _forget_lack_of_memory(undo: ExitStack) -> None:
    """A Pod that runs out of memory does not add the OOM kills of its predecessors."""
    replace(undo, oom, "retries_after", lambda pod: int(oom.ran_out_of_memory(pod)))


MUTANTS: Mapping[str, Plant] = {
    "verdict of a FailJob rule lost": _lose_the_verdict,
    "FailJob rules overlooked": lambda undo: _overlook(undo, "FailJob"),
    "FailIndex rules overlooked": lambda undo: _overlook(undo, "FailIndex"),
    "Ignore rules overlooked": lambda undo: _overlook(undo, "Ignore"),
    "last matching rule decides": _take_the_last_rule,
    "success policy overlooked": _overlook_success,
    "success policy met too early": _succeed_early,
    "index retried once too often": _retry_an_index_once_more,
    "one failed index too many allowed": _allow_one_more_failed_index,
    "suspended Job starts Pods": _run_while_suspended,
    "Job of another manager synced": _manage_all,
    "active deadline overlooked": _overlook_deadlines,
    "active deadline a second early": _exceed_deadlines_early,
    "time to live cut short": _expire_early,
    "forbidden write given up": _give_up_when_denied,
    "queue lets all Jobs go": _start_all_that_wait,
    "lack of memory forgotten": _forget_lack_of_memory,
}
