"""Validation of a Job's podFailurePolicy and successPolicy."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.planning.job.indexes import IndexFormatError, validate_indexes
from onejob.wire.field_errors import (
    OMITTED,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from onejob.wire.names import qualified_name_errors

_MAX_RULES: Final = 20
_MAX_EXIT_CODES: Final = 255
_MAX_CONDITIONS: Final = 20
_MAX_INDEXES_BYTES: Final = 65536

_ACTIONS: Final = ["Count", "FailIndex", "FailJob", "Ignore"]
_OPERATORS: Final = ["In", "NotIn"]
_STATUSES: Final = ["False", "True", "Unknown"]


def validate_failure_policy(
    spec: Mapping[str, Any], template_spec: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors = []
    rules = spec["podFailurePolicy"].get("rules", ())
    if len(rules) > _MAX_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), _MAX_RULES))
    names = {
        container.get("name")
        for field in ("containers", "initContainers")
        for container in template_spec.get(field, ())
    }
    for i, rule in enumerate(rules):
        place = f"{path}.rules[{i}]"
        errors += _one_of(rule.get("action", ""), _ACTIONS, f"{place}.action")
        if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            errors.append(
                invalid(
                    f"{place}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"
                )
            )
        errors += _validate_requirement(rule, names, place)
    return errors


def validate_success_policy(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    rules = spec["successPolicy"].get("rules", ())
    if not rules:
        return [
            required(
                f"{path}.rules",
                "at least one rules must be specified when the successPolicy is specified",
            )
        ]
    errors = []
    if len(rules) > _MAX_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), _MAX_RULES))
    completions = spec.get("completions") or 0
    for i, rule in enumerate(rules):
        errors += _validate_success_rule(rule, completions, f"{path}.rules[{i}]")
    return errors


def _validate_requirement(
    rule: Mapping[str, Any], container_names: set[Any], path: str
) -> list[FieldError]:
    exit_codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions", ())
    errors = []
    if exit_codes is not None:
        errors += _validate_exit_codes(exit_codes, container_names, f"{path}.onExitCodes")
    if conditions:
        errors += _validate_conditions(conditions, f"{path}.onPodConditions")
    if exit_codes is not None and conditions:
        errors.append(
            invalid(
                path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"
            )
        )
    if exit_codes is None and not conditions:
        errors.append(
            invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")
        )
    return errors


def _validate_exit_codes(
    exit_codes: Mapping[str, Any], container_names: set[Any], path: str
) -> list[FieldError]:
    operator = exit_codes.get("operator", "")
    errors = _one_of(operator, _OPERATORS, f"{path}.operator")
    container = exit_codes.get("containerName")
    if container is not None and container not in container_names:
        errors.append(
            invalid(
                f"{path}.containerName",
                container,
                "must be one of the container or initContainer names in the pod template",
            )
        )
    given = exit_codes.get("values")
    values = given or []
    if not values:
        errors.append(invalid(f"{path}.values", given, "at least one value is required"))
    elif len(values) > _MAX_EXIT_CODES:
        errors.append(too_many(f"{path}.values", len(values), _MAX_EXIT_CODES))
    ordered = True
    seen = set()
    for i, value in enumerate(values):
        place = f"{path}.values[{i}]"
        if operator == "In" and value == 0:
            errors.append(invalid(place, value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(duplicate(place, value))
        seen.add(value)
        ordered = ordered and (i == 0 or values[i - 1] <= value)
    if not ordered:
        errors.append(invalid(f"{path}.values", values, "must be ordered"))
    return errors


def _validate_conditions(conditions: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    if len(conditions) > _MAX_CONDITIONS:
        errors.append(too_many(path, len(conditions), _MAX_CONDITIONS))
    for i, pattern in enumerate(conditions):
        kind = pattern.get("type", "")
        errors += [invalid(f"{path}[{i}].type", kind, text) for text in qualified_name_errors(kind)]
        errors += _one_of(pattern.get("status", ""), _STATUSES, f"{path}[{i}].status")
    return errors


def _validate_success_rule(
    rule: Mapping[str, Any], completions: int, path: str
) -> list[FieldError]:
    errors = []
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if indexes is None and count is None:
        return [
            required(path, "at least one of succeededCount or succeededIndexes must be specified")
        ]
    listed = None
    if indexes is not None:
        place = f"{path}.succeededIndexes"
        if len(indexes.encode()) > _MAX_INDEXES_BYTES:
            errors.append(too_long(place, _MAX_INDEXES_BYTES))
        # Unreadable indexes count as an empty list.
        listed = 0
        try:
            listed = validate_indexes(indexes, completions)
        except IndexFormatError as error:
            errors.append(invalid(place, indexes, f"error parsing succeededIndexes: {error}"))
    if count is not None:
        errors += _validate_count(count, completions, listed, f"{path}.succeededCount")
    return errors


def _validate_count(
    count: int, completions: int, listed: int | None, path: str
) -> list[FieldError]:
    errors = []
    if count < 0:
        errors.append(invalid(path, count, "must be greater than or equal to 0"))
    if count > completions:
        errors.append(
            invalid(
                path,
                count,
                f"must be less than or equal to {completions} "
                "(the number of specified completions)",
            )
        )
    if listed is not None and count > listed:
        errors.append(
            invalid(
                path,
                count,
                f"must be less than or equal to {listed} "
                "(the number of indexes in the specified succeededIndexes field)",
            )
        )
    return errors


def _one_of(value: str, supported: list[str], path: str) -> list[FieldError]:
    if not value:
        listed = " ".join(f'"{text}"' for text in supported)
        return [required(path, f"valid values: [{listed}]")]
    return [] if value in supported else [not_supported(path, value, supported)]
