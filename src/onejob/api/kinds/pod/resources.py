"""Requests and limits of containers and of whole Pods: validation and Quality of Service class."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.planning.quota.amounts import OF_PODS, containers_total
from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported, required
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


def validate_pod_resources(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Validate Pod-level resources, which quotas count: they must not be less than the containers'
    total."""
    errors: list[FieldError] = []
    if overhead := spec.get("overhead"):
        errors += validate_resources({"limits": overhead}, f"{path}.overhead")
    shared = spec.get("resources") or {}
    if not shared:
        return errors
    place = f"{path}.resources"
    errors += validate_resources(shared, place)
    for field in ("limits", "requests"):
        errors += [
            not_supported(f"{place}.{field}[{name}]", name, ["cpu", "hugepages-", "memory"])
            for name in shared.get(field) or {}
            if name not in OF_PODS and not _is_huge_page(name)
        ]
    # Upstream's messages. Unparsable quantities were rejected when the body was decoded.
    requests, limits = shared.get("requests") or {}, shared.get("limits") or {}
    for name, wanted in containers_total(spec, "requests").items():
        if name in requests and wanted.nanos > parse_quantity(requests[name]).nanos:
            text = f"must be greater than or equal to aggregate container requests of {wanted}"
            errors.append(invalid(f"{place}.requests[{name}]", str(requests[name]), text))
    for i, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse_quantity(limit).nanos > parse_quantity(limits[name]).nanos:
                own = f"{path}.containers[{i}].resources.limits[{name}]"
                text = f"must be less than or equal to pod limits of {limits[name]}"
                errors.append(invalid(own, str(limit), text))
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
    """Return the errors of a request that exceeds its limit or lacks one."""
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
    """Return whether the limit may exceed the request.

    Devices and huge pages cannot be overcommitted.
    """
    if _is_huge_page(name):
        return False
    return "/" not in name or "kubernetes.io/" in name


def _is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


_COUNTED: Final = ("cpu", "memory")


def quality_of_service(spec: Mapping[str, Any]) -> str:
    """Return the QoS class of a Pod."""
    anything = False
    guaranteed = True
    for field in ("containers", "initContainers"):
        for container in spec.get(field, ()):
            resources = container.get("resources")
            if not resources:
                guaranteed = False
                continue
            requests = _amounts(resources.get("requests", {}))
            limits = _amounts(resources.get("limits", {}))
            anything = anything or bool(requests or limits)
            guaranteed = guaranteed and len(limits) == len(_COUNTED) and requests == limits
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """Return the positive amounts of the resources that determine the QoS class."""
    amounts = {
        name: parse_quantity(resources[name]).nanos for name in _COUNTED if name in resources
    }
    return {name: amount for name, amount in amounts.items() if amount > 0}
