"""spec.successPolicy: early success of an Indexed Job, before all its indexes succeed."""

from onejob.objects.job import SuccessPolicy, SuccessRule
from onejob.planning.job.indexes import IndexSet, parse_indexes


def matching_success_rule(
    policy: SuccessPolicy | None, completions: int, completed: IndexSet
) -> int | None:
    """Return the position of the first rule that is met, or None."""
    if policy is None or not completed:
        return None
    for position, rule in enumerate(policy.rules):
        if _is_met(rule, completions, completed):
            return position
    return None


def success_message(rule_index: int) -> str:
    return f"Matched rules at index {rule_index}"


def _is_met(rule: SuccessRule, completions: int, completed: IndexSet) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and rule.succeeded_count <= len(completed)
    listed = parse_indexes(rule.succeeded_indexes, completions)
    if not listed:
        return False
    reached = completed.common_with(listed)
    if reached == len(listed):
        return True
    return rule.succeeded_count is not None and reached >= rule.succeeded_count
