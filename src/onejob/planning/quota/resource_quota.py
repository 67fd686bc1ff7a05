"""ResourceQuotas: usage of an object, matching quotas, and the admission check."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.planning.quota.amounts import (
    ZERO,
    Amounts,
    container_amounts,
    plus,
    pod_limits,
    pod_requests,
    read_amounts,
)
from onejob.wire.quantity import Quantity

ONE: Final = Quantity(10**9)
PODS: Final = "pods"
SERVICES: Final = "services"
CLAIMS: Final = "persistentvolumeclaims"

#: Older names of object counts.
_ALIASES: Final = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
#: If a quota limits one of these, every container must specify it.
_MUST_BE_GIVEN: Final = frozenset(
    ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)
_OF_PODS: Final = frozenset(
    {"pods", "count/pods"}
    | {f"{prefix}{name}" for name in _COMPUTE for prefix in ("", "requests.", "limits.")}
)


class Scope(msgspec.Struct, frozen=True):
    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Quota(msgspec.Struct, frozen=True):
    name: str
    hard: Amounts
    scopes: tuple[Scope, ...] = ()


class ObjectUsage(msgspec.Struct, frozen=True):
    """Quota usage of one object, and the attributes that quota scopes match."""

    amounts: Amounts
    is_pod: bool = False
    terminating: bool = False
    best_effort: bool = False
    priority_class: str = ""
    #: True with affinity to Pods of other namespaces.
    crosses_namespaces: bool = False


def read_quota(document: Mapping[str, Any]) -> Quota:
    spec = document.get("spec") or {}
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return Quota(
        document["metadata"]["name"],
        read_amounts(spec.get("hard")),
        (
            *(Scope(name) for name in spec.get("scopes") or ()),
            *(
                Scope(each["scopeName"], each["operator"], tuple(each.get("values") or ()))
                for each in expressions
            ),
        ),
    )


def count_name(resource: str) -> str:
    return f"count/{resource}"


def usage_of(resource: str, document: Mapping[str, Any]) -> ObjectUsage:
    """Return the usage of an object by its document."""
    match resource:
        case "pods":
            ended = (document.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            return pod_usage(document.get("spec") or {}, ended=ended)
        case "services":
            return ObjectUsage(_service_amounts(document.get("spec") or {}))
        case "persistentvolumeclaims":
            return ObjectUsage(_claim_amounts(document.get("spec") or {}))
        case _:
            return counted(resource)


def counted(resource: str) -> ObjectUsage:
    """Return the usage of a resource for which only the number of objects counts."""
    amounts = {count_name(resource): ONE}
    if resource in _ALIASES:
        amounts[resource] = ONE
    return ObjectUsage(amounts, is_pod=resource == PODS)


def pod_usage(spec: Mapping[str, Any], *, ended: bool) -> ObjectUsage:
    """Return the usage of a Pod. An ended Pod counts as an object but uses no compute resources."""
    requests, limits = pod_requests(spec, overhead=True), pod_limits(spec, overhead=True)
    amounts = {count_name(PODS): ONE}
    if not ended:
        amounts |= {PODS: ONE, **_quota_amounts(requests, limits)}
    return ObjectUsage(
        amounts,
        is_pod=True,
        terminating=spec.get("activeDeadlineSeconds") is not None,
        best_effort=not any(
            amount.nanos
            for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
            for field in ("requests", "limits")
            for name, amount in container_amounts(each, field).items()
            if name in ("cpu", "memory")
        ),
        priority_class=spec.get("priorityClassName") or "",
        crosses_namespaces=_crosses_namespaces(spec.get("affinity") or {}),
    )


def _quota_amounts(requests: Amounts, limits: Amounts) -> Amounts:
    """Return requests and limits under the names that quotas use."""
    amounts: Amounts = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            amounts |= {name: amount, f"requests.{name}": amount}
        else:
            amounts[f"requests.{name}"] = amount
    return amounts | {f"limits.{name}": limits[name] for name in _COMPUTE if name in limits}


def _crosses_namespaces(affinity: Mapping[str, Any]) -> bool:
    """Return whether an affinity refers to Pods of other namespaces."""
    for field in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(field) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each.get("podAffinityTerm") or {} for each in preferred]
        if any(term.get("namespaces") or "namespaceSelector" in term for term in terms):
            return True
    return False


def _service_amounts(spec: Mapping[str, Any]) -> Amounts:
    ports = spec.get("ports") or ()
    kind = spec.get("type")
    node_ports = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(bool(port.get("nodePort")) for port in ports)
    return {
        count_name(SERVICES): ONE,
        SERVICES: ONE,
        "services.loadbalancers": ONE if kind == "LoadBalancer" else ZERO,
        "services.nodeports": Quantity(node_ports * 10**9),
    }


def _claim_amounts(spec: Mapping[str, Any]) -> Amounts:
    amounts = {count_name(CLAIMS): ONE, CLAIMS: ONE}
    storage = container_amounts(spec, "requests").get("storage")
    if storage is not None:
        amounts["requests.storage"] = storage
        if class_name := spec.get("storageClassName"):
            prefix = f"{class_name}.storageclass.storage.k8s.io/"
            amounts |= {prefix + "requests.storage": storage, prefix + CLAIMS: ONE}
    return amounts


def counts(quota: Quota, usage: ObjectUsage) -> bool:
    """Return whether the quota's scopes match the object."""
    return all(_in_scope(scope, usage) for scope in quota.scopes)


def _in_scope(scope: Scope, usage: ObjectUsage) -> bool:
    """Return whether the scope selects the object."""
    if not usage.is_pod:
        return False
    match scope.name:
        case "Terminating":
            return usage.terminating
        case "NotTerminating":
            return not usage.terminating
        case "BestEffort":
            return usage.best_effort
        case "NotBestEffort":
            return not usage.best_effort
        case "CrossNamespacePodAffinity":
            return usage.crosses_namespaces
        case "PriorityClass":
            return _has_class(scope, usage.priority_class)
        case _:
            return False


def _has_class(scope: Scope, name: str) -> bool:
    match scope.operator:
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return bool(name) and name in scope.values
        case _:
            return name not in scope.values


def unstated(quota: Quota, spec: Mapping[str, Any]) -> str:
    """Return the missing resource settings that the quota makes mandatory; "" if none."""
    shared = spec.get("resources") or {}
    if shared.get("requests") or shared.get("limits"):
        return ""
    missing: dict[str, set[str]] = {}
    for name in sorted(_MUST_BE_GIVEN & quota.hard.keys()):
        for field in ("containers", "initContainers"):
            for container in spec.get(field) or ():
                requests = container_amounts(container, "requests")
                if name not in _quota_amounts(requests, container_amounts(container, "limits")):
                    missing.setdefault(name, set()).add(container["name"])
    if not missing:
        return ""
    said = [f"{name} for: {','.join(sorted(who))}" for name, who in missing.items()]
    return "must specify " + "; ".join(said)


def refusal(
    quotas: Sequence[tuple[Quota, Mapping[str, Quantity]]],
    usage: ObjectUsage,
    spec: Mapping[str, Any] | None,
    before: ObjectUsage | None = None,
) -> str:
    """Return why an object may not be created or updated; "" if it may.

    Args:
        quotas: The quotas of its namespace, each with its current usage.
        usage: Usage of the new object.
        spec: The Pod's spec; None for other resources.
        before: Usage of the object before an update.
    """
    concerned = [
        (quota, used)
        for quota, used in quotas
        if counts(quota, usage) and quota.hard.keys() & _names(usage)
    ]
    for quota, _ in concerned:
        if spec is not None and (missing := unstated(quota, spec)):
            return f"failed quota: {quota.name}: {missing}"
    for quota, used in concerned:
        wanted = _more(usage, before if before is not None and counts(quota, before) else None)
        exceeded = sorted(
            name
            for name, amount in wanted.items()
            if name in quota.hard
            and amount.nanos + used.get(name, ZERO).nanos > quota.hard[name].nanos
        )
        if exceeded:
            return (
                f"exceeded quota: {quota.name}, requested: {_list_text(exceeded, wanted)}, "
                f"used: {_list_text(exceeded, used)}, limited: {_list_text(exceeded, quota.hard)}"
            )
    return ""


def _names(usage: ObjectUsage) -> frozenset[str]:
    """Return all names that a quota may limit for this kind of object, requested or not."""
    return frozenset(usage.amounts) | (_OF_PODS if usage.is_pod else frozenset())


def _more(usage: ObjectUsage, before: ObjectUsage | None) -> Amounts:
    """Return the usage requested in addition to `before`; zero and negative amounts are omitted."""
    old = {} if before is None else before.amounts
    more = {
        name: Quantity(amount.nanos - old.get(name, ZERO).nanos, amount.format)
        for name, amount in usage.amounts.items()
    }
    return {name: amount for name, amount in more.items() if amount.nanos > 0}


def _list_text(names: Sequence[str], amounts: Mapping[str, Quantity]) -> str:
    return ",".join(f"{name}={amounts.get(name, ZERO)}" for name in names)


def change(used: Amounts, usage: ObjectUsage, hard: Mapping[str, Quantity], sign: int) -> None:
    """Add an object's usage to a quota's, or subtract it, depending on `sign`."""
    for name, amount in usage.amounts.items():
        if name in hard:
            used[name] = plus(used.get(name, ZERO), Quantity(sign * amount.nanos, amount.format))
