"""Reference implementation of the Job policies for the checks.

Written from the specification, independently of the production code that the checks verify with it.
"""

from collections.abc import Iterable

from onejob.objects.job import ExitCodesRule, FailureRule, Job, PodFailurePolicy, SuccessRule
from onejob.objects.pod import Pod

_BACKOFF_LIMIT = 6
_SUCCESS_TTL = "onejob.dev/ttl-seconds-after-success"
_FAILURE_TTL = "onejob.dev/ttl-seconds-after-failure"


def action_for(policy: PodFailurePolicy | None, failed: Pod) -> str | None:
    """Return the action of the first rule that matches a failed Pod, or None."""
    rules = () if policy is None else policy.rules
    return next((rule.action for rule in rules if _matches(rule, failed)), None)


def is_ignored(job: Job, failed: Pod) -> bool:
    """Return whether the failure policy of the Job ignores this failed Pod."""
    return action_for(job.spec.pod_failure_policy, failed) == "Ignore"


def succeeds_early(job: Job) -> bool:
    """Return whether the completed indexes of the status meet a rule of the success policy."""
    policy, done = job.spec.success_policy, completed_indexes(job)
    if policy is None or not done:
        return False
    return any(_is_met(rule, done, job.spec.completions or 0) for rule in policy.rules)


def fewest_successes(job: Job) -> int:
    """Return the lowest number of successes that may complete the Job."""
    policy, completions = job.spec.success_policy, job.spec.completions or 0
    rules = () if policy is None else policy.rules
    return min((_fewest(rule, completions) for rule in rules), default=completions)


def completed_indexes(job: Job) -> set[int]:
    """Return the completed indexes of the status."""
    return _below(job.status.completed_indexes, job.spec.completions or 0)


def failed_indexes(job: Job) -> set[int]:
    """Return the failed indexes of the status."""
    return _below(job.status.failed_indexes or "", job.spec.completions or 0)


def too_many_failed_indexes(job: Job) -> bool:
    """Return whether more indexes have failed than maxFailedIndexes allows."""
    most = job.spec.max_failed_indexes
    return most is not None and len(failed_indexes(job)) > most


def too_many_failures(job: Job) -> bool:
    """Return whether the status counts more failed Pods than backoffLimit allows."""
    lists = job.status.uncounted_terminated_pods
    failed = job.status.failed + (len(lists.failed) if lists is not None else 0)
    limit = job.spec.backoff_limit
    return failed > (_BACKOFF_LIMIT if limit is None else limit)


def time_to_live(job: Job) -> int | None:
    """Return the seconds for which a finished Job is kept, or None."""
    name = _SUCCESS_TTL if job.condition_is_true("Complete") else _FAILURE_TTL
    by_outcome = job.metadata.annotations.get(name)
    return job.spec.ttl_seconds_after_finished if by_outcome is None else int(by_outcome)


def _matches(rule: FailureRule, pod: Pod) -> bool:
    if rule.on_exit_codes is not None:
        return any(_has_code(rule.on_exit_codes, *end) for end in _ends(pod))
    return any(
        (pattern.type, pattern.status) == (condition.type, condition.status)
        for pattern in rule.on_pod_conditions
        for condition in pod.status.conditions
    )


def _ends(pod: Pod) -> Iterable[tuple[str, int]]:
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if status.state.terminated is not None and status.state.terminated.exit_code != 0:
            yield status.name, status.state.terminated.exit_code


def _has_code(rule: ExitCodesRule, container: str, code: int) -> bool:
    if rule.container_name not in (None, container):
        return False
    return (code in rule.values) == (rule.operator == "In")


def _is_met(rule: SuccessRule, done: set[int], completions: int) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and len(done) >= rule.succeeded_count
    listed = _below(rule.succeeded_indexes, completions)
    if not listed:
        return False
    return listed <= done or (
        rule.succeeded_count is not None and len(listed & done) >= rule.succeeded_count
    )


def _fewest(rule: SuccessRule, completions: int) -> int:
    listed = _below(rule.succeeded_indexes or "", completions)
    most = completions if rule.succeeded_indexes is None else len(listed)
    return most if rule.succeeded_count is None else min(most, rule.succeeded_count)


def _below(text: str, completions: int) -> set[int]:
    """Parse indexes such as `1,3-5` into a set, without those beyond `completions`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return {index for index in found if index < completions}
