"""Total resource requests and limits of a Pod."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from onejob.wire.quantity import Quantity, parse_quantity

#: Quantity by resource name.
Amounts: TypeAlias = dict[str, Quantity]

#: Resources that a Pod's own `resources` may set; all others are summed over its containers.
OF_PODS: Final = ("cpu", "memory")
ZERO: Final = Quantity(0)


def read_amounts(amounts: Mapping[str, Any] | None) -> Amounts:
    return {name: parse_quantity(amount) for name, amount in (amounts or {}).items()}


def plus(a: Quantity, b: Quantity) -> Quantity:
    """Return the sum, in the format of the first operand unless that is zero."""
    return Quantity(a.nanos + b.nanos, a.format if a.nanos else b.format)


def added(amounts: Iterable[Mapping[str, Quantity]]) -> Amounts:
    """Return the sum of amounts by resource."""
    total: Amounts = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = plus(total[name], amount) if name in total else amount
    return total


def pod_requests(spec: Mapping[str, Any], *, overhead: bool) -> Amounts:
    total = _pod_total(spec, "requests")
    if overhead and spec.get("overhead"):
        total = added((total, read_amounts(spec["overhead"])))
    return total


def pod_limits(spec: Mapping[str, Any], *, overhead: bool) -> Amounts:
    total = _pod_total(spec, "limits")
    if overhead and spec.get("overhead"):
        more = read_amounts(spec["overhead"])
        total = added((total, {name: more[name] for name in more if name in total}))
    return total


def _pod_total(spec: Mapping[str, Any], field: str) -> Amounts:
    total = containers_total(spec, field)
    shared = read_amounts((spec.get("resources") or {}).get(field))
    return total | {name: shared[name] for name in OF_PODS if name in shared}


def containers_total(spec: Mapping[str, Any], field: str) -> Amounts:
    """Return the total of all containers.

    Regular containers run together; init containers run one after the other, together with the
    sidecars that were started before them.
    """
    total = added(container_amounts(each, field) for each in spec.get("containers") or ())
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = container_amounts(container, field)
        if container.get("restartPolicy") == "Always":
            total = added((total, own))
            own = sidecars = added((sidecars, own))
        else:
            own = added((own, sidecars))
        most = _elementwise_maximum(most, own)
    return _elementwise_maximum(total, most)


def container_amounts(container: Mapping[str, Any], field: str) -> Amounts:
    return read_amounts((container.get("resources") or {}).get(field))


def _elementwise_maximum(a: Amounts, b: Amounts) -> Amounts:
    result = dict(a)
    for name, amount in b.items():
        if name not in result or amount.nanos > result[name].nanos:
            result[name] = amount
    return result
