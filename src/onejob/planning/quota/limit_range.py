"""LimitRanges: default requests and limits of containers, and bounds on them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.planning.quota.amounts import (
    Amounts,
    container_amounts,
    pod_limits,
    pod_requests,
    read_amounts,
)
from onejob.wire.quantity import Quantity

ANNOTATION: Final = "kubernetes.io/limit-ranger"
_KINDS: Final = (("containers", "container"), ("initContainers", "init container"))


class Limit(msgspec.Struct, frozen=True):
    type: str
    min: Amounts
    max: Amounts
    default: Amounts
    default_request: Amounts
    max_ratio: Amounts


def read_limits(limit_range: Mapping[str, Any]) -> tuple[Limit, ...]:
    return tuple(
        Limit(
            item["type"],
            read_amounts(item.get("min")),
            read_amounts(item.get("max")),
            read_amounts(item.get("default")),
            read_amounts(item.get("defaultRequest")),
            read_amounts(item.get("maxLimitRequestRatio")),
        )
        for item in (limit_range.get("spec") or {}).get("limits") or ()
    )


def set_defaults(limits: Sequence[Limit], spec: dict[str, Any]) -> str:
    """Set the missing requests and limits of containers.

    Returns a description of the defaults set, for an annotation; "" if there were none.
    """
    requests: Amounts = {}
    maximums: Amounts = {}
    for limit in limits:
        if limit.type == "Container":
            requests |= limit.default_request
            maximums |= limit.default
    said: list[str] = []
    for field, what in _KINDS:
        for container in spec.get(field) or ():
            for kind, values in (("request", requests), ("limit", maximums)):
                if names := _fill_defaults(container, kind + "s", values):
                    said.append(f"{', '.join(names)} {kind} for {what} {container['name']}")
    return "LimitRanger plugin set: " + "; ".join(said) if said else ""


def _fill_defaults(container: dict[str, Any], field: str, values: Amounts) -> list[str]:
    """Set missing amounts of a container in place; return the names of the added ones."""
    resources = container.get("resources") or {}
    own = resources.get(field) or {}
    missing = {name: str(amount) for name, amount in values.items() if name not in own}
    if missing:
        container["resources"] = {**resources, field: {**own, **missing}}
    return sorted(missing)


def pod_refusal(limits: Sequence[Limit], spec: Mapping[str, Any]) -> str:
    """Return why the Pod is out of bounds; "" if it is not."""
    said: list[str] = []
    for limit in limits:
        if limit.type == "Container":
            for field, _ in _KINDS:
                for container in spec.get(field) or ():
                    requests = container_amounts(container, "requests")
                    maximums = container_amounts(container, "limits")
                    said += _out_of_bounds(limit, requests, maximums)
        elif limit.type == "Pod":
            requests = pod_requests(spec, overhead=False)
            said += _out_of_bounds(limit, requests, pod_limits(spec, overhead=False))
    return _combine_errors(said)


def claim_refusal(limits: Sequence[Limit], spec: Mapping[str, Any]) -> str:
    """Return why a PersistentVolumeClaim violates the limits; "" if it does not."""
    requests = container_amounts(spec, "requests")
    said: list[str] = []
    for limit in limits:
        if limit.type == "PersistentVolumeClaim":
            for name, least in limit.min.items():
                said += _minimum_errors(limit.type, name, least, requests, {})
            for name, most in limit.max.items():
                if name not in requests:
                    said.append(_bound_text("maximum", limit.type, name, most) + ".  No request is "
                                "specified")  # fmt: skip
                elif requests[name].nanos > most.nanos:
                    text = _bound_text("maximum", limit.type, name, most)
                    said.append(f"{text}, but request is {requests[name]}")
    return _combine_errors(said)


def _combine_errors(said: Sequence[str]) -> str:
    """Combine errors into one message as upstream does, without duplicates."""
    texts = list(dict.fromkeys(said))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)


def _out_of_bounds(limit: Limit, requests: Amounts, maximums: Amounts) -> Iterator[str]:
    for name, least in limit.min.items():
        yield from _minimum_errors(limit.type, name, least, requests, maximums)
    for name, most in limit.max.items():
        yield from _maximum_errors(limit.type, name, most, requests, maximums)
    for name, ratio in limit.max_ratio.items():
        yield from _ratio_errors(limit.type, name, ratio, requests, maximums)


def _bound_text(which: str, kind: str, name: str, bound: Quantity) -> str:
    return f"{which} {name} usage per {kind} is {bound}"


def _minimum_errors(
    kind: str, name: str, least: Quantity, requests: Amounts, maximums: Amounts
) -> Iterator[str]:
    text = _bound_text("minimum", kind, name, least)
    if name not in requests:
        yield f"{text}.  No request is specified"
    elif requests[name].nanos < least.nanos:
        yield f"{text}, but request is {requests[name]}"
    elif name in maximums and maximums[name].nanos < least.nanos:
        yield f"{text}, but limit is {maximums[name]}"


def _maximum_errors(
    kind: str, name: str, most: Quantity, requests: Amounts, maximums: Amounts
) -> Iterator[str]:
    text = _bound_text("maximum", kind, name, most)
    if name not in maximums:
        yield f"{text}.  No limit is specified"
    elif maximums[name].nanos > most.nanos:
        yield f"{text}, but limit is {maximums[name]}"
    elif name in requests and requests[name].nanos > most.nanos:
        yield f"{text}, but request is {requests[name]}"


def _ratio_errors(
    kind: str, name: str, ratio: Quantity, requests: Amounts, maximums: Amounts
) -> Iterator[str]:
    text = f"{name} max limit to request ratio per {kind} is {ratio}, but"
    if name not in requests or not requests[name].nanos:
        yield f"{text} no request is specified or request is 0"
    elif name not in maximums or not maximums[name].nanos:
        yield f"{text} no limit is specified or limit is 0"
    elif maximums[name].nanos * 10**9 > ratio.nanos * requests[name].nanos:
        provided = maximums[name].nanos / requests[name].nanos
        yield f"{text} provided ratio is {provided:f}"
