"""spec.podFailurePolicy: match failed Pods against a Job's rules."""

from collections.abc import Mapping
from typing import get_args

from msgspec import Struct

from onejob.metrics import FailurePolicyAction
from onejob.objects.job import ExitCodesRule, PodConditionPattern, PodFailurePolicy
from onejob.objects.pod import ContainerStatus, Pod

_ACTIONS: Mapping[str, FailurePolicyAction] = {
    action: action for action in get_args(FailurePolicyAction)
}


class PolicyMatch(Struct, frozen=True):
    """Result of matching one failed Pod against the policy."""

    #: Action of the matching rule; None if no rule matched.
    action: FailurePolicyAction | None = None
    rule_index: int | None = None
    #: Failure message of the Job, set for FailJob only.
    message: str | None = None

    @property
    def counts(self) -> bool:
        """True if the Pod counts as failed, which holds for all actions except Ignore."""
        return self.action != "Ignore"


NO_RULING = PolicyMatch()


def match_failure_policy(policy: PodFailurePolicy | None, pod: Pod) -> PolicyMatch:
    """Return the ruling of the first rule that matches `pod`, which must have failed."""
    if policy is None:
        return NO_RULING
    for position, rule in enumerate(policy.rules):
        # Skip actions introduced by a newer API instead of guessing their meaning.
        action = _ACTIONS.get(rule.action)
        if action is None:
            continue
        if rule.on_exit_codes is not None:
            container = _container_exiting_with(rule.on_exit_codes, pod)
            if container is None:
                continue
            evidence = _exit_code_evidence(container, pod)
        else:
            pattern = _pattern_matching(rule.on_pod_conditions, pod)
            if pattern is None:
                continue
            evidence = f"Pod {_display_name(pod)} has condition {pattern.type}"
        message = None
        if action == "FailJob":
            message = f"{evidence} matching FailJob rule at index {position}"
        return PolicyMatch(action, position, message)
    return NO_RULING


def _container_exiting_with(rule: ExitCodesRule, pod: Pod) -> ContainerStatus | None:
    """Return the first failed container whose exit code matches the rule, or None."""
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        terminated = status.state.terminated
        # Exit code 0 is never a failure, so not even NotIn may match it.
        if terminated is None or terminated.exit_code == 0:
            continue
        if rule.container_name is not None and rule.container_name != status.name:
            continue
        listed = terminated.exit_code in rule.values
        if (rule.operator == "In" and listed) or (rule.operator == "NotIn" and not listed):
            return status
    return None


def _pattern_matching(
    patterns: tuple[PodConditionPattern, ...], pod: Pod
) -> PodConditionPattern | None:
    """Return the first pattern that a condition of the Pod matches, or None."""
    for pattern in patterns:
        for condition in pod.status.conditions:
            if condition.type == pattern.type and condition.status == pattern.status:
                return pattern
    return None


def _exit_code_evidence(status: ContainerStatus, pod: Pod) -> str:
    terminated = status.state.terminated
    assert terminated is not None, "only a terminated container can match an exit code"
    return (
        f"Container {status.name} for pod {_display_name(pod)}"
        f" failed with exit code {terminated.exit_code}"
    )


def _display_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
