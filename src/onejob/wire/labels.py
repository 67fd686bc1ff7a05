"""Validation of labels, annotations and label selectors."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from onejob.wire.field_errors import FieldError, forbidden, invalid, required, too_long
from onejob.wire.names import label_value_errors, qualified_name_errors

_MAX_ANNOTATIONS_BYTES: Final = 256 * 1024


def validate_labels(labels: Mapping[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for label in labels.items():
        if _is_good_label(label):
            continue
        key, value = label
        errors += [invalid(path, key, text) for text in qualified_name_errors(key)]
        errors += [invalid(path, value, text) for text in label_value_errors(value)]
    return errors


@lru_cache(maxsize=4096)
def _is_good_label(label: tuple[str, str]) -> bool:
    """Return whether a label is valid, from a cache: the same few labels come with every Pod."""
    return not qualified_name_errors(label[0]) and not label_value_errors(label[1])


def validate_annotations(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    errors = []
    size = 0
    for key, value in annotations.items():
        # Upstream allows upper case in the prefix of annotation keys as well.
        errors += [invalid(path, key, text) for text in qualified_name_errors(key.lower())]
        size += len(key) + len(value)
    # Count characters first: bytes matter only near the limit.
    if size * 4 > _MAX_ANNOTATIONS_BYTES:
        size = sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
        if size > _MAX_ANNOTATIONS_BYTES:
            errors.append(too_long(path, _MAX_ANNOTATIONS_BYTES))
    return errors


def validate_label_selector(
    selector: Mapping[str, Any], path: str, *, tolerate_bad_values: bool = False
) -> list[FieldError]:
    """Return the errors of a label selector.

    `tolerate_bad_values` is for selectors stored before their values were validated.
    """
    errors = validate_labels(selector.get("matchLabels", {}), f"{path}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions", ())):
        errors += _validate_expression(
            expression, f"{path}.matchExpressions[{i}]", tolerate_bad_values
        )
    return errors


def _validate_expression(
    expression: Mapping[str, Any], path: str, tolerate_bad_values: bool
) -> list[FieldError]:
    errors = []
    operator = expression.get("operator", "")
    values = expression.get("values", ())
    match operator:
        case "In" | "NotIn":
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(required(f"{path}.values", text))
        case "Exists" | "DoesNotExist":
            if values:
                errors.append(
                    forbidden(
                        f"{path}.values",
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    )
                )
        case _:
            errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    key = expression.get("key", "")
    errors += [invalid(f"{path}.key", key, text) for text in qualified_name_errors(key)]
    if not tolerate_bad_values:
        for i, value in enumerate(values):
            errors += [
                invalid(f"{path}.values[{i}]", value, text) for text in label_value_errors(value)
            ]
    return errors
