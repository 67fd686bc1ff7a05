"""Requests and limits of containers."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.wire.field_errors import FieldError, forbidden, invalid, required
from onejob.wire.names import qualified_name_errors
from onejob.wire.quantity import parse_quantity

_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def validate_resources(resources: Mapping[str, Any], path: str) -> list[FieldError]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    errors: list[FieldError] = []
    for name, amount in limits.items():
        errors += _validate_amount(name, amount, f"{path}.limits")
    for name, amount in requests.items():
        errors += _validate_amount(name, amount, f"{path}.requests")
        errors += _compare_with_limit(name, amount, limits, path)
    if any(map(_is_huge_page, [*limits, *requests])) and not (
        {"cpu", "memory"} & (limits.keys() | requests.keys())
    ):
        errors.append(forbidden(path, "HugePages require cpu or memory"))
    return errors


def _validate_amount(name: str, amount: Any, path: str) -> list[FieldError]:
    place = f"{path}[{name}]"
    if name in _STANDARD or _is_huge_page(name):
        errors = []
    else:
        errors = [invalid(place, name, text) for text in qualified_name_errors(name)]
        if "/" not in name:
            errors += [
                invalid(place, name, "must be a standard resource type or fully qualified"),
                invalid(place, name, "must be a standard resource for containers"),
            ]
    quantity = parse_quantity(amount)
    if quantity.nanos < 0:
        errors.append(invalid(place, str(amount), "must be greater than or equal to 0"))
    if not _may_be_overcommitted(name) and quantity.nanos % 10**9:
        errors.append(invalid(place, str(amount), "must be an integer"))
    return errors


def _compare_with_limit(
    name: str, amount: Any, limits: Mapping[str, Any], path: str
) -> list[FieldError]:
    if name not in limits:
        if _may_be_overcommitted(name):
            return []
        return [required(f"{path}.limits", "Limit must be set for non overcommitable resources")]
    limit = limits[name]
    asked, allowed = parse_quantity(amount).nanos, parse_quantity(limit).nanos
    if not _may_be_overcommitted(name):
        if asked == allowed:
            return []
        return [
            invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit of {limit}")
        ]
    if asked <= allowed:
        return []
    return [
        invalid(
            f"{path}.requests",
            str(amount),
            f"must be less than or equal to {name} limit of {limit}",
        )
    ]


def _may_be_overcommitted(name: str) -> bool:
    """Resources of devices and huge pages are handed out whole."""
    if _is_huge_page(name):
        return False
    return "/" not in name or "kubernetes.io/" in name


def _is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")
