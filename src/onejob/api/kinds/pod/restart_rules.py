"""Validation of container-level restart policies and their rules."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.wire.field_errors import FieldError, not_supported, required, too_many

_POLICIES: Final = ["Always", "Never", "OnFailure"]
_ACTIONS: Final = ["Restart", "RestartAllContainers"]
_MAX_RULES: Final = 20
_MAX_VALUES: Final = 255


def validate_restart_policy(container: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", ())
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported(f"{path}.restartPolicy", policy, _POLICIES))
    if not rules:
        return errors
    if policy is None:
        errors.append(
            required(
                f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"
            )
        )
    if len(rules) > _MAX_RULES:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), _MAX_RULES))
    for i, rule in enumerate(rules):
        errors += _validate_rule(rule, f"{path}.restartPolicyRules[{i}]")
    return errors


def _validate_rule(rule: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    action = rule.get("action", "")
    if not action:
        errors.append(required(f"{path}.action"))
    elif action not in _ACTIONS:
        errors.append(not_supported(f"{path}.action", action, _ACTIONS))
    exit_codes = rule.get("exitCodes")
    if exit_codes is None:
        errors.append(required(f"{path}.exitCodes", "must be specified"))
        return errors
    operator, values = exit_codes.get("operator", ""), exit_codes.get("values", ())
    if not operator:
        errors.append(required(f"{path}.exitCodes.operator"))
    elif operator not in ("In", "NotIn"):
        errors.append(not_supported(f"{path}.exitCodes.operator", operator, ["In", "NotIn"]))
    if not values:
        errors.append(required(f"{path}.exitCodes.values"))
    elif len(values) > _MAX_VALUES:
        errors.append(too_many(f"{path}.exitCodes.values", len(values), _MAX_VALUES))
    return errors


def may_run_again(
    pod_spec: Mapping[str, Any], container: Mapping[str, Any], exit_code: int
) -> bool:
    """Return whether a terminated container may be restarted in the same Pod."""
    for rule in container.get("restartPolicyRules", ()):
        codes = rule.get("exitCodes", {})
        listed = exit_code in codes.get("values", ())
        if listed is (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or pod_spec.get("restartPolicy")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
