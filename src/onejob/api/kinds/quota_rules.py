"""Defaults and validation of LimitRanges and ResourceQuotas, as upstream."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, duplicate, forbidden, invalid, required
from onejob.wire.names import qualified_name_errors
from onejob.wire.quantity import Quantity, parse_quantity

_LIMIT_TYPES: Final = frozenset(("Pod", "Container", "PersistentVolumeClaim"))
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = frozenset(
    ("pods", "resourcequotas", "services", "replicationcontrollers", "secrets",
     "persistentvolumeclaims", "configmaps", "services.nodeports", "services.loadbalancers")
)  # fmt: skip
_QUOTA_NAMES: Final = (
    _COUNTED
    | {f"{prefix}{name}" for name in _COMPUTE for prefix in ("", "requests.", "limits.")}
    | {"requests.storage"}
)
_IN_POD_SCOPES: Final = frozenset(
    {"pods"}
    | {f"{prefix}{n}" for n in ("cpu", "memory") for prefix in ("", "requests.", "limits.")}
)
_FIXED_SCOPES: Final = frozenset(
    ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")
)
_SCOPES: Final = _FIXED_SCOPES | {"PriorityClass", "VolumeAttributesClass"}
_CONFLICTS: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def default_limit_range(doc: Document) -> None:
    """Set the defaults of container limits in place."""
    for item in (doc.get("spec") or {}).get("limits") or ():
        if item.get("type") != "Container":
            continue
        limits = {**item.get("max", {}), **item.get("default", {})}
        requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


def check_limit_range(doc: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate((doc.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = item["type"]
        if "/" not in kind and kind not in _LIMIT_TYPES:
            text = "must be a standard limit type or fully qualified"
            errors.append(invalid(f"{path}.type", kind, text))
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        errors += _check_limits(item, path)
    return errors


def _check_limits(item: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = item["type"]
    for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        if kind == "Pod" and field.startswith("default"):
            if item.get(field):
                text = "may not be specified when `type` is 'Pod'"
                yield forbidden(f"{path}.{field}", text)
            continue
        for name in item.get(field) or ():
            yield from _check_limit_name(kind, name, f"{path}.{field}[{name}]")
    if kind == "PersistentVolumeClaim" and "storage" not in (
        (item.get("min") or {}).keys() | (item.get("max") or {}).keys()
    ):
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", text)
    names = {name for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
             for name in item.get(field) or ()}  # fmt: skip
    for name in sorted(names):
        yield from _check_order(item, name, path)


def _check_name(name: str, path: str) -> Iterator[FieldError]:
    for text in qualified_name_errors(name):
        yield invalid(path, name, text)
    if "/" not in name and not _is_standard(name) and name != "storage":
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def _check_limit_name(kind: str, name: str, path: str) -> Iterator[FieldError]:
    yield from _check_name(name, path)
    of_containers = kind in ("Pod", "Container")
    if of_containers and "/" not in name and not _is_compute(name):
        yield invalid(path, name, "must be a standard resource for containers")


def _check_order(item: Mapping[str, Any], name: str, path: str) -> Iterator[FieldError]:
    least, most = _amount(item, "min", name), _amount(item, "max", name)
    default, request = _amount(item, "default", name), _amount(item, "defaultRequest", name)
    ratio = _amount(item, "maxLimitRequestRatio", name)

    def above(
        a: Quantity | None, b: Quantity | None, words: tuple[str, str], field: str, shown: Any
    ) -> Iterator[FieldError]:
        if a is not None and b is not None and a.nanos > b.nanos:
            text = f"{words[0]} value {a} is greater than {words[1]} value {b}"
            yield invalid(f"{path}.{field}[{name}]", str(shown), text)

    yield from above(least, most, ("min", "max"), "min", least)
    yield from above(least, request, ("min", "default request"), "defaultRequest", request)
    yield from above(request, most, ("default request", "max"), "defaultRequest", request)
    words = ("default request", "default limit")
    yield from above(request, default, words, "defaultRequest", request)
    yield from above(least, default, ("min", "default"), "default", least)
    yield from above(default, most, ("default", "max"), "default", most)
    if ratio is not None:
        place = f"{path}.maxLimitRequestRatio[{name}]"
        if ratio.nanos < 10**9:
            yield invalid(place, str(ratio), f"ratio {ratio} is less than 1")
        if least is not None and most is not None and least.nanos:
            largest = most.nanos / least.nanos
            if ratio.nanos / 10**9 > largest:
                text = f"ratio {ratio} is greater than max/min = {largest:f}"
                yield invalid(place, str(ratio), text)


def _amount(item: Mapping[str, Any], field: str, name: str) -> Quantity | None:
    """Return an amount of a limit item; None if it is absent."""
    value = (item.get(field) or {}).get(name)
    return None if value is None else parse_quantity(value)


def _is_compute(name: str) -> bool:
    return name in _COMPUTE or name.startswith("hugepages-")


def check_quota(doc: Document) -> list[FieldError]:
    spec = doc.get("spec") or {}
    hard = spec.get("hard") or {}
    errors: list[FieldError] = []
    for name, amount in hard.items():
        errors += _check_hard(name, parse_quantity(amount), f"spec.hard[{name}]")
    errors += _check_scopes(spec, hard)
    if "scopeSelector" in spec:
        errors += _check_selector(spec, hard)
    return errors


def _check_hard(name: str, amount: Quantity, path: str) -> Iterator[FieldError]:
    yield from _check_name(name, path)
    if "/" not in name and not _is_standard(name):
        yield invalid(path, name, "must be a standard resource for quota")
    if amount.nanos < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    if (name in _COUNTED or name.startswith("count/")) and amount.nanos % 10**9:
        yield invalid(path, str(amount), "must be an integer")


def _is_standard(name: str) -> bool:
    return name in _QUOTA_NAMES or name.startswith(("hugepages-", "requests.hugepages-"))


def _check_scopes(spec: Mapping[str, Any], hard: Mapping[str, Any]) -> Iterator[FieldError]:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid("spec.scopes", scopes, "unsupported scope")
        for name in sorted(hard):
            if _is_standard(name) and not _scope_applies(scope, name):
                yield invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            yield invalid("spec.scopes", scopes, "conflicting scopes")


def _scope_applies(scope: str, name: str) -> bool:
    """Return whether a quota with this scope may limit the resource."""
    if scope == "BestEffort":
        return name == "pods"
    if scope in _FIXED_SCOPES or scope == "PriorityClass":
        return name in _IN_POD_SCOPES
    return True


def _check_selector(spec: Mapping[str, Any], hard: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    expressions = (spec["scopeSelector"] or {}).get("matchExpressions") or ()
    for each in expressions:
        scope, operator = each.get("scopeName", ""), each.get("operator", "")
        values = each.get("values") or []
        if scope not in _SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        for name in sorted(hard):
            if _is_standard(name) and not _scope_applies(scope, name):
                text = "unsupported scope applied to resource"
                yield invalid(path, spec["scopeSelector"], text)
        if scope in _FIXED_SCOPES and operator != "Exists":
            text = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield invalid(f"{path}.operator", operator, text)
        if operator in ("In", "NotIn"):
            if not values:
                text = (
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope "
                    "selector"
                )
                yield required(f"{path}.values", text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = (
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope "
                    "selector"
                )
                yield invalid(f"{path}.values", values, text)
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    for pair in _CONFLICTS:
        if pair <= {each.get("scopeName") for each in expressions}:
            yield invalid(path, spec.get("scopes"), "conflicting scopes")
