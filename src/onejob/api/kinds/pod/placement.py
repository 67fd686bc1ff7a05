"""Validation of a pod spec's tolerations and affinity (well-formedness only)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported, required
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import label_value_errors, qualified_name_errors

_EFFECTS: Final = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_tolerations(tolerations: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, toleration in enumerate(tolerations):
        errors += _validate_toleration(toleration, f"{path}[{i}]")
    return errors


def _validate_toleration(toleration: Mapping[str, Any], path: str) -> list[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    errors = []
    if key:
        errors += [invalid(f"{path}.key", key, text) for text in qualified_name_errors(key)]
    elif operator != "Exists":
        errors.append(
            invalid(
                f"{path}.operator",
                operator,
                "operator must be Exists when `key` is empty, which means "
                '"match all values and all keys"',
            )
        )
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        errors.append(
            invalid(
                f"{path}.effect",
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        )
    match operator:
        case "" | "Equal":
            errors += [invalid(f"{path}.operator", value, t) for t in label_value_errors(value)]
        case "Exists":
            if value:
                errors.append(
                    invalid(
                        f"{path}.operator",
                        dict(toleration),
                        "value must be empty when `operator` is 'Exists'",
                    )
                )
        case _:
            errors.append(not_supported(f"{path}.operator", operator, ["Equal", "Exists"]))
    if effect and effect not in _EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, _EFFECTS))
    return errors


def validate_affinity(affinity: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if "nodeAffinity" in affinity:
        errors += _validate_node_affinity(affinity["nodeAffinity"], f"{path}.nodeAffinity")
    for field in ("podAffinity", "podAntiAffinity"):
        if field in affinity:
            errors += _validate_pod_affinity(affinity[field], f"{path}.{field}")
    return errors


def _validate_node_affinity(affinity: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if _REQUIRED in affinity:
        place = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = affinity[_REQUIRED].get("nodeSelectorTerms", ())
        if not terms:
            errors.append(required(place, "must have at least one node selector term"))
        for i, term in enumerate(terms):
            errors += _validate_node_selector_term(term, f"{place}[{i}]")
    for i, preference in enumerate(affinity.get(_PREFERRED, ())):
        place = f"{path}.{_PREFERRED}[{i}]"
        errors += _validate_weight(preference, place)
        errors += _validate_node_selector_term(
            preference.get("preference", {}), f"{place}.preference"
        )
    return errors


def _validate_node_selector_term(term: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for i, requirement in enumerate(term.get("matchExpressions", ())):
        place = f"{path}.matchExpressions[{i}]"
        operator, values = requirement.get("operator", ""), requirement.get("values", ())
        match operator:
            case "In" | "NotIn":
                if not values:
                    errors.append(
                        required(
                            f"{place}.values",
                            "must be specified when `operator` is 'In' or 'NotIn'",
                        )
                    )
            case "Exists" | "DoesNotExist":
                if values:
                    errors.append(
                        forbidden(
                            f"{place}.values",
                            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                        )
                    )
            case "Gt" | "Lt":
                if len(values) != 1:
                    errors.append(
                        required(
                            f"{place}.values",
                            "must be specified single value when `operator` is 'Lt' or 'Gt'",
                        )
                    )
            case _:
                errors.append(
                    invalid(f"{place}.operator", operator, "not a valid selector operator")
                )
        key = requirement.get("key", "")
        errors += [invalid(f"{place}.key", key, text) for text in qualified_name_errors(key)]
    return errors


def _validate_pod_affinity(affinity: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, term in enumerate(affinity.get(_REQUIRED, ())):
        errors += _validate_pod_affinity_term(term, f"{path}.{_REQUIRED}[{i}]")
    for i, preference in enumerate(affinity.get(_PREFERRED, ())):
        place = f"{path}.{_PREFERRED}[{i}]"
        errors += _validate_weight(preference, place)
        errors += _validate_pod_affinity_term(
            preference.get("podAffinityTerm", {}), f"{place}.podAffinityTerm"
        )
    return errors


def _validate_pod_affinity_term(term: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for field in ("labelSelector", "namespaceSelector"):
        if field in term:
            errors += validate_label_selector(term[field], f"{path}.{field}")
    key = term.get("topologyKey", "")
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    else:
        errors += [invalid(f"{path}.topologyKey", key, t) for t in qualified_name_errors(key)]
    return errors


def _validate_weight(preference: Mapping[str, Any], path: str) -> list[FieldError]:
    weight = preference.get("weight", 0)
    if 1 <= weight <= 100:
        return []
    return [invalid(f"{path}.weight", weight, "must be in the range 1-100")]
